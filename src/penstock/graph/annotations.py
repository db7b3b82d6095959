"""What the user wants of the system that runs the program: parallel regions, threading, placement, consistency."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.keys import Key

THREADING_MODELS = ("auto", "manual", "dedicated", "dynamic")


@dataclass(frozen=True, slots=True)
class Parallel:
    """A region the user wants replicated: `width` channels, tuples split by key `by` or dealt in turn."""

    region: int
    width: int
    by: Key | None


@dataclass(frozen=True, slots=True)
class Consistent:
    """A region whose state is checkpointed every `every` seconds (language runtime §5.5)."""

    region: int
    every: float


@dataclass(frozen=True, slots=True)
class Annotations:
    """All annotations of one operator. Inner `with` blocks win over outer ones where only one can hold."""

    parallel: Parallel | None = None
    threading: str | None = None
    colocate: tuple[str, ...] = ()
    exlocate: tuple[str, ...] = ()
    isolate: int | None = None
    consistent: Consistent | None = None

    def __bool__(self) -> bool:
        return self != NONE


NONE = Annotations()
