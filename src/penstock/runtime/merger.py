"""The exit of a replicated region: what the channels answer, back in the order of the stream that was dealt (DESIGN
§6).

Each channel's items arrive in order: chunks, then the mark of the piece they belong to. Without a key, piece n comes
from channel n mod width and from no other, so the merger reads the channels in turn, piece by piece, and passes chunks
on as they come. With a key it waits until all channels have given the mark of piece n, and merges their tuples by
origin.

A channel may fail inside a piece. Without a key that needs no word: nothing more comes of that piece, and those behind
it are not passed on. With a key the channel says so in the place of the mark (`BrokenOff`); the piece is merged up to
the tuple that failed and is the last one. Either way all that came before the failure is delivered, and nothing else.

Memory is bounded: the splitter deals to all channels from one stream, so one channel can be ahead of another by no more
than fits into the queues of the channels.

What operators release at the end of the stream follows after the last mark; channels come one after the other then.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from penstock.graph.graph import Output
from penstock.graph.operations import Gather
from penstock.runtime.segment import Segment, TrackedChunk
from penstock.tuples import BrokenOff, Numbered, Punctuation

Item = list[Any] | Punctuation | Numbered


class MergerSegment(Segment):
    """Runs a `Gather`. Several threads bring items; the segment's lock lets one of them in at a time."""

    number = 0
    broken_off = False

    def compile(self) -> None:
        super().compile()
        operation = self.root.operation
        assert isinstance(operation, Gather)
        self._width, self._keyed = operation.width, operation.keyed
        self.held: list[deque[Item]] = [deque() for _ in range(self._width)]
        self.marks = [0] * self._width  # marks that wait, by channel
        self._out = self.outlets[Output(self.plan.root, 0)]

    def _take(self, item: Item, port: int) -> None:
        if isinstance(item, list):
            self.received += len(item)
        elif isinstance(item, Numbered):
            self.marks[port] += 1
        self.held[port].append(item)
        if self._keyed:
            while all(self.marks) and not self.broken_off:
                self._merge_piece()
        else:
            self._pass_on()

    def _run_chunk(self, chunk: list[Any], port: int) -> None:
        self._take(chunk, port)

    def _run_mark(self, port: int) -> None:
        self._take(Punctuation.WINDOW, port)

    def _run_numbered(self, mark: Numbered, port: int) -> None:
        self._take(mark, port)

    def _pass_on(self) -> None:
        """Without a key: everything of the channel whose turn it is, up to its mark, then the next channel."""
        while True:
            waiting = self.held[self.number % self._width]
            if not waiting:
                return
            self._give(waiting.popleft())

    def _give(self, item: Item) -> None:
        if isinstance(item, list):
            self._out.items.extend(item)
        elif item is Punctuation.WINDOW:
            self._out.mark()
        else:
            self.marks[self.number % self._width] -= 1
            self.number += 1

    def _merge_piece(self) -> None:
        """With a key: the tuples of one piece from all channels, by origin; a punctuation once."""
        tuples: list[Any] = []
        origins: list[int] = []
        punctuated = False
        failed = math.inf
        for channel, waiting in enumerate(self.held):
            self.marks[channel] -= 1
            while not isinstance(item := waiting.popleft(), Numbered):
                if isinstance(item, TrackedChunk):
                    tuples += item
                    origins += item.origins
                elif item is Punctuation.WINDOW:
                    punctuated = True
            if isinstance(item, BrokenOff):
                failed = min(failed, item.number)
        order = sorted(range(len(tuples)), key=origins.__getitem__)
        if failed < math.inf:
            order = [place for place in order if origins[place] <= failed]
            punctuated, self.broken_off = False, True
        self._out.items.extend([tuples[place] for place in order])
        if punctuated:
            self._out.mark()
        else:
            self._out.hand_over()

    def _run_final(self, port: int) -> None:
        self._waiting_finals[port] -= 1
        self._open_ports.discard(port)
        if self._open_ports:
            return
        for waiting in self.held:
            for item in waiting:
                if isinstance(item, list):
                    self._out.items.extend(item)
            waiting.clear()
        self._out.hand_over()
        for target in self._out.targets:
            self.turn.push(target, Punctuation.FINAL)

    def continue_from(self, earlier: Segment) -> None:
        super().continue_from(earlier)
        assert isinstance(earlier, MergerSegment), "a merger is always the root of its segment"
        self.number, self.held, self.marks = earlier.number, earlier.held, earlier.marks
        self.broken_off = earlier.broken_off
