"""The entry of a replicated region: numbers what comes and deals it to the channels (DESIGN §6).

Without a key a chunk is cut into as many pieces as there are channels, and the pieces are dealt in turn: piece n goes
to channel n mod width, followed by the mark n. With a key the tuples of a chunk go to the channels of their key groups,
each with its place in the chunk, followed by the mark n in every channel: a channel that got nothing answers too, so
that a key that is never met does not hold up the merge.

The marks travel in band, through whatever queues there are inside the channels, and tell the merger (`runtime.merger`)
what is complete. A window punctuation is a piece of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import PenstockError
from penstock.graph.graph import Output
from penstock.graph.operations import Deal
from penstock.runtime.failure import operator_error
from penstock.runtime.segment import Outlet, Segment, TrackedChunk
from penstock.tuples import Numbered, Punctuation

# Keys are hashed to so many groups, and groups are given to channels.
KEY_GROUPS = 128
_MIX = 0x9E3779B1  # small integers are their own hash: spread them


def channel_of(key: Any, width: int) -> int:
    """The channel a key belongs to.

    >>> sorted({channel_of(n, 3) for n in range(100)})
    [0, 1, 2]
    """
    return (hash(key) * _MIX >> 20) % KEY_GROUPS * width // KEY_GROUPS


class SplitterSegment(Segment):
    """Runs a `Deal`."""

    number = 0

    def compile(self) -> None:
        super().compile()
        operation = self.root.operation
        assert isinstance(operation, Deal)
        self._width = operation.width
        self._key = None if operation.key is None else operation.key.getter()

    def _channel(self, channel: int) -> Outlet | None:
        return self.outlets.get(Output(self.plan.root, channel))

    def _send(self, channel: int, *items: Any) -> None:
        outlet = self._channel(channel)
        for target in outlet.targets if outlet is not None else ():
            for item in items:
                self.turn.push(target, item)

    def _run_chunk(self, chunk: list[Any], port: int) -> None:
        self.received += len(chunk)
        if self._key is None:
            size = -(-len(chunk) // self._width)
            for start in range(0, len(chunk), size):
                self._send(self.number % self._width, chunk[start : start + size], Numbered(self.number))
                self.number += 1
            return
        width, key_of = self._width, self._key
        boxes: list[tuple[list[Any], list[int]]] = [([], []) for _ in range(width)]
        item = None
        try:
            for place, item in enumerate(chunk):
                tuples, origins = boxes[(hash(key_of(item)) * _MIX >> 20) % KEY_GROUPS * width // KEY_GROUPS]
                tuples.append(item)
                origins.append(place)
        except PenstockError:
            raise
        except Exception as error:
            raise operator_error(error, self.root, item=item, doing="to read the key of a tuple") from error
        finally:
            self._send_piece(boxes)

    def _send_piece(self, boxes: Iterable[tuple[list[Any], list[int]]]) -> None:
        for channel, (tuples, origins) in enumerate(boxes):
            if tuples:
                self._send(channel, TrackedChunk(tuples, origins))
        self._mark_all()

    def _mark_all(self) -> None:
        mark = Numbered(self.number)
        self.number += 1
        for channel in range(self._width):
            self._send(channel, mark)

    def _run_mark(self, port: int) -> None:
        if self._key is None:
            self._send(self.number % self._width, Punctuation.WINDOW, Numbered(self.number))
            self.number += 1
            return
        for channel in range(self._width):
            self._send(channel, Punctuation.WINDOW)
        self._mark_all()

    def continue_from(self, earlier: Segment) -> None:
        super().continue_from(earlier)
        assert isinstance(earlier, SplitterSegment), "a splitter is always the root of its segment"
        self.number = earlier.number
