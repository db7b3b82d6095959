"""A plan as a picture: SVG text, with operators from left to right and frames around what shares a thread or a region.

Each operator stands one column right of the last that feeds it, and in the row of the first that feeds it where that is
free. A dashed frame is a thread, a coloured one a region in several copies, the outer one the PE; what holds the rest
back has a red one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from penstock.compiler.layout_text import copies, held_back, rate
from penstock.compiler.physical import Physical
from penstock.compiler.planner import micros
from penstock.graph.graph import Graph, Node
from penstock.graph.operations import Feedback

_WIDE, _HIGH = 148, 58  # of a box
_ACROSS, _DOWN = 196, 112  # from one box to the next
_LEFT, _TOP = 44, 92
_LONGEST = 20  # letters of a name
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 10.5px; fill: #555 }
.box { fill: #fff; stroke: #456; stroke-width: 1.2 }
.stateless { fill: #eef6ff } .partitioned { fill: #fff4df } .stateful { fill: #f4eefc }
.stream { stroke: #678; stroke-width: 1.2; fill: none; marker-end: url(#end) }
.back { stroke-dasharray: 2 3 }
.pe { fill: none; stroke: #999 } .thread { fill: none; stroke: #89a; stroke-dasharray: 5 4 }
.region { fill: #2a7f62; fill-opacity: .07; stroke: #2a7f62; stroke-width: 1.4 }
.label { font-size: 11px; fill: #2a7f62; font-weight: 600 }
.slow { stroke: #c22; stroke-width: 2 }
"""
_ARROW = """<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#678"/></marker></defs>"""


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float


def picture(
    graph: Graph,
    physical: Physical | None = None,
    summary: str | None = None,
    labels: Sequence[str] = (),
    pes: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """`graph` as SVG text, with the layout, costs and rates of `physical` where they are known, under a `summary`.

    Regions in several copies have a frame; with `labels`, all of them, and these words on it. With `pes`, the operators
    of each, by its label, have a frame of their own in place of the one around everything.

    >>> import penstock as pn
    >>> flow = pn.Flow("demo")
    >>> _ = flow.source([1], name="a<b").collect(name="out")
    >>> text = picture(flow.graph())
    >>> text.startswith("<svg "), "a&lt;b" in text
    (True, True)
    """
    places = _places(graph)
    width = max(place.x for place in places.values()) + _WIDE + _LEFT
    height = max(place.y for place in places.values()) + _HIGH + 44
    title = f"flow '{graph.name}'"
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW,
        _text(16, 24, title, "title"),
    ]
    if not pes:
        parts.append(f'<rect class="pe" x="12" y="48" width="{width - 24:g}" height="{height - 60:g}" rx="10"/>')
    slowest = physical.expected.slowest_pe if physical is not None and physical.expected is not None else None
    by_gil = slowest is not None and physical is not None and _limit(physical) == "gil"
    for number, (label, nodes) in enumerate((pes or {}).items()):
        parts.append(_frame(nodes, places, 23, "pe slow" if by_gil and number == slowest else "pe"))
        corner = min((places[node] for node in nodes), key=lambda place: (place.y, place.x))
        parts.append(_text(corner.x - 18, corner.y + _HIGH + 19, label, "small"))
    if physical is not None:
        parts.append(_text(16, 42, _summary(graph, physical) if summary is None else summary, "small"))
        parts += _frames(physical, places, labels)
    parts += _streams(graph, places)
    for node in graph:
        parts += _box(node, places[node.index], physical)
    return "\n".join([*parts, "</svg>\n"])


def _limit(physical: Physical) -> str | None:
    return None if physical.expected is None else physical.expected.limit


def _summary(graph: Graph, physical: Physical) -> str:
    expected = physical.expected
    threads = f"{physical.threads} thread" + ("" if physical.threads == 1 else "s")
    if expected is None:
        return threads
    return f"{rate(expected.throughput)} expected, {threads}, held back by {held_back(graph, physical, expected)}"


def _places(graph: Graph) -> dict[int, _Place]:
    column: dict[int, int] = {}
    row: dict[int, int] = {}
    taken: set[tuple[int, int]] = set()
    for index in graph.topological:
        feeders = [feeder for feeder in graph.upstream(graph.nodes[index]) if feeder in column]
        at = max((column[feeder] for feeder in feeders), default=-1) + 1
        wanted = row[feeders[0]] if feeders else 0
        # A row that is free here and, so that no stream runs through a box, on the way here.
        start = min((column[feeder] for feeder in feeders), default=at - 1) + 1
        while any((between, wanted) in taken for between in range(start, at + 1)):
            wanted += 1
        column[index], row[index] = at, wanted
        taken |= {(between, wanted) for between in range(start, at + 1)}
    return {index: _Place(_LEFT + _ACROSS * column[index], _TOP + _DOWN * row[index]) for index in column}


def _frames(physical: Physical, places: dict[int, _Place], labels: Sequence[str]) -> Iterator[str]:
    for number, group in enumerate(physical.groups):
        slowest = physical.expected is not None and physical.expected.bottleneck == number
        limits = _limit(physical) in ("region", "stage")
        slow = " slow" if slowest and limits else ""
        framed = group.width > 1 or bool(labels)
        if framed:
            yield _frame(group.nodes, places, 18, "region" + slow)
            corner = min((places[node] for node in group.nodes), key=lambda place: (place.y, place.x))
            yield _text(corner.x - 14, corner.y - 22, labels[number] if labels else copies(group), "label")
        for line in group.pipelines:
            yield _frame(line, places, 9, "thread" + ("" if framed else slow))


def _frame(nodes: Iterable[int], places: dict[int, _Place], room: float, style: str) -> str:
    found = [places[node] for node in nodes]
    left, top = min(place.x for place in found) - room, min(place.y for place in found) - room
    width = max(place.x for place in found) + _WIDE + room - left
    height = max(place.y for place in found) + _HIGH + room - top
    return f'<rect class="{style}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="8"/>'


def _streams(graph: Graph, places: dict[int, _Place]) -> Iterator[str]:
    for node in graph:
        for entry in node.inputs:
            for stream in entry.streams:
                start, end = places[stream.node], places[node.index]
                back = isinstance(node.operation, Feedback) or end.x <= start.x
                x1, y1, x2, y2 = start.x + _WIDE, start.y + _HIGH / 2, end.x, end.y + _HIGH / 2
                bend = 24 if not back else 60
                path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
                yield f'<path class="stream{" back" if back else ""}" d="{path}"/>'


def _box(node: Node, place: _Place, physical: Physical | None) -> Iterator[str]:
    keyed = f" by {node.key}" if node.kind == "partitioned" and node.key is not None else ""
    label = node.name if len(node.name) <= _LONGEST else node.name[: _LONGEST - 1] + "…"
    yield (
        f"<g><title>{escape(f'{node.name}: {node.operation.verb}, {node.kind}{keyed} ({node.location})')}</title>"
        f'<rect class="box {node.kind}" x="{place.x:g}" y="{place.y:g}" width="{_WIDE}" height="{_HIGH}" rx="5"/>'
    )
    yield _text(place.x + 9, place.y + 19, label)
    yield _text(place.x + 9, place.y + 34, f"{node.operation.verb}, {node.kind}"[:26], "small")
    if physical is not None and physical.costs:
        flow = physical.rate(node.index)
        cost = micros(physical.costs.get(node.index, 0.0))
        yield _text(place.x + 9, place.y + 49, cost + (f"   {rate(flow)}" if flow is not None else ""), "small")
    yield "</g>"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    chosen = f' class="{style}"' if style else ""
    return f'<text{chosen} x="{x:g}" y="{y:g}">{escape(text)}</text>'
