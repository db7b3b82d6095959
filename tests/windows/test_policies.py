"""What window policies accept, how they read, and what they refuse."""

import pickle
from datetime import timedelta

import pytest

from penstock.errors import FlowError
from penstock.windows.policies import session, sliding, tumbling


def time_of(t):
    return t


@pytest.mark.parametrize(
    ("window", "text", "spans"),
    [
        (tumbling(count=10), "tumbling(count=10)", "count"),
        (tumbling(time=1.5), "tumbling(time=1.5)", "time"),
        (tumbling(time=60, on="ts", late=5), "tumbling(time=60, on='ts', late=5)", "event"),
        (tumbling(delta=5, on=time_of, partial=True), "tumbling(delta=5, on=time_of(), partial=True)", "delta"),
        (tumbling(punctuation=True), "tumbling(punctuation=True)", "punctuation"),
        (sliding(count=10, every=5), "sliding(count=10, every=5)", "count"),
        (sliding(time=300, every=60, on="ts"), "sliding(time=300, every=60, on='ts')", "event"),
        (sliding(time=5, every=60, on="ts"), "sliding(time=5, every=60, on='ts')", "event"),
        (session(gap=30, on="ts", watermark="stream"), "session(gap=30, on='ts', watermark='stream')", "session"),
    ],
)
def test_a_policy_reads_as_it_was_written_and_can_be_pickled(window, text, spans):
    assert str(window) == text
    assert window.spans == spans
    assert pickle.loads(pickle.dumps(window)) == window


def test_timedeltas_become_seconds_and_whole_ones_stay_whole():
    window = sliding(time=timedelta(minutes=5), every=timedelta(milliseconds=500), on="ts", late=timedelta(seconds=1))
    assert (window.size, window.every, window.late) == (300, 0.5, 1)
    assert isinstance(window.size, int)
    assert session(gap=timedelta(hours=1), on="ts").size == 3600


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (tumbling, "needs exactly one of count=, time=, delta= or punctuation=True; it got none"),
        (lambda: tumbling(count=1, time=2), "it got count= and time="),
        (sliding, "needs exactly one of count=, time= or delta=; it got none"),
        (lambda: tumbling(count=0), "count= as a whole number from 1, not 0"),
        (lambda: tumbling(count=2.5), "whole number"),
        (lambda: tumbling(count=True), "whole number"),
        (lambda: tumbling(time=0), "time= above 0"),
        (lambda: tumbling(time=float("nan")), "time= above 0"),
        (lambda: tumbling(time="1 minute"), "a number or a timedelta, not '1 minute'"),
        (lambda: tumbling(time=timedelta(0)), "time= above 0"),
        (lambda: tumbling(delta=-1, on="x"), "delta= above 0"),
        (lambda: tumbling(delta=1), "with delta= needs on="),
        (lambda: tumbling(count=1, on="x"), "takes on= with time= or delta="),
        (lambda: tumbling(punctuation=True, on="x"), "takes on= with time= or delta="),
        (lambda: tumbling(time=1, on=3), "on= as an attribute name or a function"),
        (lambda: tumbling(count=1, late=1), "takes late= only with event time"),
        (lambda: tumbling(time=1, late=1), "takes late= only with event time"),
        (lambda: sliding(count=1, watermark="stream"), "takes watermark= only with event time"),
        (lambda: tumbling(time=1, on="ts", watermark="all"), "watermark= 'key' or 'stream', not 'all'"),
        (lambda: tumbling(time=1, on="ts", late=-1), "late= from 0"),
        (lambda: sliding(count=1, every=0), "every= as a whole number from 1"),
        (lambda: sliding(time=1, every=0), "every= above 0"),
        (lambda: session(gap=1), "session() at"),
        (lambda: session(gap=0, on="ts"), "gap= above 0"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_users_line(make, problem):
    with pytest.raises(FlowError, match=r"test_policies\.py") as caught:
        make()
    assert problem in str(caught.value)
