"""What `validate` finds, with operator and line."""

from __future__ import annotations

import pytest

import penstock as pn


class Counting(pn.Operator):
    kind = "partitioned"

    def process(self, t: object, port: int) -> object:
        return t


class Steered(pn.Operator):
    inputs = 2
    control = (1,)

    def process(self, t: object, port: int) -> object:
        return t if port == 0 else None


def _message(flow: pn.Flow) -> str:
    with pytest.raises(pn.FlowError) as caught:
        flow.graph()
    return str(caught.value)


def test_an_empty_flow() -> None:
    assert "has no source" in _message(pn.Flow("nothing"))


def test_duplicate_names_name_both_lines() -> None:
    flow = pn.Flow("twice")
    flow.source([], name="a").map(str, name="b").map(str, name="b").collect()
    message = _message(flow)
    assert "operator 'b'" in message
    assert message.count("test_validate.py") == 2


def test_a_partitioned_operator_without_key() -> None:
    flow = pn.Flow("keyless")
    flow.source([]).process(Counting(), name="count").collect()
    assert "operator 'count'" in (message := _message(flow))
    assert "key_by" in message


def test_a_feedback_that_is_never_connected() -> None:
    flow = pn.Flow("open")
    flow.source([]).process(Steered(), flow.feedback(name="back")).collect()
    assert "'back'" in (message := _message(flow))
    assert "never connected" in message


def test_a_cycle_into_an_ordinary_port() -> None:
    flow = pn.Flow("cycle")
    back = flow.feedback(name="back")
    merged = flow.source([]).union(back, name="merge")
    back.connect(merged.map(str))
    assert "no control port" in (message := _message(flow))
    assert "'merge'" in message


def test_a_cycle_into_a_control_port_is_fine() -> None:
    flow = pn.Flow("cycle")
    back = flow.feedback()
    out = flow.source([1]).process(Steered(), back)
    back.connect(out.map(str))
    out.collect()
    assert len(flow.graph()) == 5


def test_dead_letters_that_nobody_sends() -> None:
    flow = pn.Flow("letters")
    flow.source([]).collect()
    flow.dead_letters().collect()
    assert "on_error=" in _message(flow)


def test_late_tuples_of_a_window_nobody_uses() -> None:
    flow = pn.Flow("late")
    flow.source([]).window(pn.tumbling(time=1, on="t")).late_stream().collect()
    assert "connected to no stream" in _message(flow)


def test_every_mistake_is_listed() -> None:
    flow = pn.Flow("many")
    flow.source([], name="a").process(Counting(), name="a").collect()
    flow.feedback()
    assert _message(flow).count("\n  - ") == 3
