"""Threaded ports placed and removed while a PE runs (scheduler paper §2.2, multi-level elasticity §3).

How a change goes. The new segments are cut and compiled beside the running ones, whose operators' logic, and with it
all state, they share. Then all threads are asked to stand still: each leaves its turn at the next item, giving back
locks and consumer flags, so a thread that waits for room in a queue can still work the queue off itself and leave its
turn too. When the guards of all turns are taken, no chunk is in any thread's hands; what is under way is in queues. Now
the new wiring is put in force, which only sets references, and the threads go on.

What waits in a queue that is removed must come before anything that follows it. It stays with the segment that was
behind the queue, as its leftover. The segment that its operator is in from now on runs it first, through the old
segment's function, and so does whatever else still sends to the old segment. So that it does not wait for the next
tuple, the changing thread then runs it itself, in the place of a carrier of that segment: with the port's consumer flag
or the source's carrying lock, and the lock that protects the segment, which make sure that one thread does.

Removing joins segments, so old ones lie within what the same carriers run. Placing would part them. Therefore removing
comes first, and placing after the leftovers are done.

What is not done: a port through whose queue the final punctuation is about to pass is left where it is, and a change is
given up when some thread does not leave its turn within `PATIENCE`, because a function of the user's does not return.
The others have then lost that time, once; ask again later.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.errors import PlatformError
from penstock.graph.graph import Target
from penstock.runtime.port import Port
from penstock.runtime.segment import Entry, Segment
from penstock.runtime.threading_models import DEDICATED, DYNAMIC, queueable
from penstock.runtime.turn import Turn
from penstock.runtime.wiring import Wiring

if TYPE_CHECKING:
    from penstock.runtime.pe import PE
    from penstock.runtime.source_loop import SourceLoop

PATIENCE = 0.050
# Between looks whether a carrier is free.
_PAUSE = 0.001


def change_ports(pe: PE, add: Mapping[Target, str], remove: Collection[Target]) -> bool:
    """Place queues before some input ports ("dynamic" or "dedicated") and remove others; false if not possible now."""
    for target, model in add.items():
        if model not in (DYNAMIC, DEDICATED):
            raise PlatformError(f"a queue is run by '{DYNAMIC}' or '{DEDICATED}' threads, not {model!r}")
        node = pe.graph.nodes[target.node]
        if target not in queueable(pe.graph, node):
            raise PlatformError(f"input {target.port} of '{node.name}' ({node.location}) cannot have a queue")
    return _remove(pe, remove) and _add(pe, add)


def _add(pe: PE, add: Mapping[Target, str]) -> bool:
    missing = {target: model for target, model in add.items() if target not in pe.ports}
    if not missing:
        return True
    added = {target: pe.make_port(target, model) for target, model in missing.items()}
    wiring = Wiring(pe.graph, pe.logics, {**pe.ports, **added}, pe.profiled, before=pe.wiring)
    wiring.compile()
    done = _swap(pe, wiring, {})
    pe.adopt_ports(added if done else {}, {} if done else added)
    return done


def _remove(pe: PE, remove: Collection[Target]) -> bool:
    removed = {target: port for target, port in pe.ports.items() if target in remove}
    if not removed:
        return True
    kept = {target: port for target, port in pe.ports.items() if target not in removed}
    wiring = Wiring(pe.graph, pe.logics, kept, pe.profiled, before=pe.wiring)
    wiring.compile()
    done = _swap(pe, wiring, removed)
    if done:
        pe.adopt_ports({}, removed)
        for target in removed:
            _work_off(pe, wiring, wiring.segment_of(target.node))
    return done


def _swap(pe: PE, wiring: Wiring, removed: Mapping[Target, Port]) -> bool:
    """Put `wiring` in force while all threads stand still; false if that is not possible now."""
    held: list[Turn] = []
    pe.set_pausing(True)
    try:
        if not _stand_still(pe, held) or not _is_possible(pe, removed.values()):
            return False
        behind = {target: port.entry.segment for target, port in removed.items()}
        _redirect(wiring, pe.rewire(wiring))
        for target, port in removed.items():
            _leave_rest(wiring, target, port, behind[target])
        return True
    finally:
        for turn in held:
            turn.guard.release()
        pe.set_pausing(False)


def _stand_still(pe: PE, held: list[Turn]) -> bool:
    """Take the guards of all turns; false if a thread did not leave its turn in time."""
    limit = time.monotonic() + PATIENCE
    for turn in pe.turns():
        if not turn.guard.acquire(timeout=max(0.0, limit - time.monotonic())):
            return False
        held.append(turn)
    return True


def _is_possible(pe: PE, removed: Collection[Port]) -> bool:
    if pe.stopping or any(segment.failed or segment.old or segment.leftover for segment in pe.segments):
        return False
    # Where the final punctuation waits, or has passed, the end is near and there is nothing to gain.
    return not any(port.peek_final() or port.entry.segment.ended for port in removed)


def _redirect(wiring: Wiring, retired: list[Segment]) -> None:
    """Let what old segments send go to the new ones, or to other old ones where the new ones have no entry.

    Old segments run inside the one that now holds their root: they get places in the order right behind it.
    """
    for place, old in enumerate(retired):
        old.lock = None
        old.index = wiring.segment_of(old.plan.root).index + (place + 1) / (len(retired) + 1)
    for old in retired:
        for outlet in old.outlets.values():
            outlet.targets = [_redirected(wiring, target) for target in outlet.targets]


def _redirected(wiring: Wiring, target: Entry) -> Entry:
    root = target.segment.plan.root
    new = wiring.segment_of(root)
    if new.plan.root != root:
        return Entry(target.segment, target.port)
    return Entry(new, target.port, wiring.ports.get(Target(root, target.port)))


def _leave_rest(wiring: Wiring, target: Target, port: Port, behind: Segment) -> None:
    """What waits in a removed port must go through the segment that was behind it before its place is taken."""
    segment = wiring.segment_of(target.node)
    old = segment if segment.plan.root == target.node else behind
    old.leftover.extend((target.port, item) for item, _, _ in port.take_all())
    if old is not segment and old not in segment.old:
        segment.old.append(old)


def _work_off(pe: PE, wiring: Wiring, segment: Segment) -> None:
    """Run what was left for `segment` in the place of one of its carriers."""
    if not (segment.old or segment.leftover):
        return
    carrier = next(iter(wiring.carriers_of(segment)), None)
    turn = pe.make_turn()
    try:
        # Also after an error: it came before whatever failed since.
        while (segment.old or segment.leftover) and not pe.abandoned:
            if carrier is None or isinstance(carrier, Port):
                _run_as_consumer(pe, carrier, segment, turn)
            else:
                source = next(source for source in pe.sources if source.segment.plan.root == carrier)
                _run_as_source(pe, source, segment, turn)
            while (error := turn.take_error()) is not None:
                pe.fail(error)
    finally:
        pe.forget_turn(turn)


def _run_as_consumer(pe: PE, port: Port | None, segment: Segment, turn: Turn) -> None:
    if port is not None and not port.try_consume():
        time.sleep(_PAUSE)  # whoever has the flag may come to the segment itself
        return
    pe.enter(turn)
    try:
        turn.run_leftover(segment)
    finally:
        if port is not None:
            port.release_consumer()
        turn.deliver_feedback()
        pe.after_items()
        pe.leave(turn)


def _run_as_source(pe: PE, source: SourceLoop, segment: Segment, turn: Turn) -> None:
    if not source.carrying.acquire(timeout=_PAUSE):  # freed by the source's thread when its chunk is carried
        return
    pe.enter(turn)
    try:
        turn.run_leftover(segment)
        turn.deliver_feedback()
    finally:
        pe.leave(turn)
        source.carrying.release()
