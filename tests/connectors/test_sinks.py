"""Plain Python values as sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.base import Sink, as_sink
from penstock.connectors.sinks import CallableSink
from penstock.errors import FlowError
from penstock.graph.stream import Collected


def run(sink: Sink, *chunks: list[Any]) -> None:
    sink.open()
    for chunk in chunks:
        sink.write(chunk)
    sink.close()


def test_a_list_is_appended_to() -> None:
    target: list[int] = [0]
    run(as_sink(target), [1, 2], [3])
    run(as_sink(target), [4])
    assert target == [0, 1, 2, 3, 4]


def test_a_collected_list_starts_each_run_empty() -> None:
    target = Collected([0])
    run(as_sink(target), [1, 2])
    run(as_sink(target), [3])
    assert target == [3]


def test_a_function_is_called_per_tuple() -> None:
    seen: list[int] = []
    run(as_sink(seen.append), [1, 2], [3])
    assert seen == [1, 2, 3]


def test_a_failing_function_has_got_what_came_before() -> None:
    seen: list[float] = []
    sink = as_sink(lambda n: seen.append(1 / n))
    assert isinstance(sink, CallableSink)
    with pytest.raises(ZeroDivisionError):
        run(sink, [1, 2, 0, 4])
    assert seen == [1.0, 0.5]


def test_a_sink_is_taken_as_it_is() -> None:
    class Null(Sink):
        def write(self, tuples: list[Any]) -> None:
            pass

    sink = Null()
    assert as_sink(sink) is sink
    assert isinstance(sink, Sink)


def test_an_open_file_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file, pytest.raises(FlowError, match=r"lacks open\(\).*pn.files.write"):
        as_sink(file)  # type: ignore[arg-type]


def test_what_is_no_sink_is_refused() -> None:
    with pytest.raises(FlowError, match="not 7"):
        as_sink(7)  # type: ignore[arg-type]
