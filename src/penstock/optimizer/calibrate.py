"""Calibration: what a boundary costs a tuple on this machine, from throughputs (pipelined fission §5.3, eqs 15–19).

The model has two costs that belong to the machine and not to the program: δ, for handing a tuple over, and c_p, for
splitting and merging a stream. Here is the arithmetic, and the value that keeps the results; `platforms.calibration`
does the measuring.

On Spark a third cost belongs to the machine: what a batch costs whatever it holds, more of it for each shuffle.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import PenstockError

# From one operator to the next: in one thread; through a queue; to another process; to another Python worker of the
# same Spark task; through a Spark shuffle.
KINDS = ("call", "port", "process", "stage", "shuffle")
_VERSION = 1


def switching_cost(one_thread: float, two_threads: float) -> float:
    """δ, from the throughputs of two equal operators run by one thread and by two (eq 17).

    With two threads a tuple takes c + δ (eq 15), with one 2 · c (eq 16). Noise may make the result negative, which
    means nothing: it is 0 then.

    >>> cost, delta = 3e-6, 0.5e-6
    >>> round(switching_cost(1 / (2 * cost), 1 / (cost + delta)) * 1e6, 6)
    0.5
    """
    return max(0.0, 1 / two_threads - 1 / (2 * one_thread))


def replication_cost(throughputs: Mapping[int, float]) -> float:
    """c_p, from the throughputs of one costly operator in two or more different numbers of channels (eqs 18, 19).

    With n channels a tuple takes T(n) = (2δ + c) / n + c_p · log₂ n (eq 18), so n · T(n) is a constant plus
    c_p · n · log₂ n: c_p is the slope of a line. With two numbers of channels that is eq 19, whose denominator should
    read log₂(n₁) / n₂ − log₂(n₂) / n₁; with more it is the line of least squares.

    >>> def throughput(n, work=10e-6, cp=0.2e-6):
    ...     return 1 / (work / n + cp * math.log2(n))
    >>> round(replication_cost({1: throughput(1), 2: throughput(2)}) * 1e6, 6)
    0.2
    >>> round(replication_cost({n: throughput(n) for n in (2, 3, 8)}) * 1e6, 6)
    0.2
    """
    if len(throughputs) < 2:
        raise ValueError("the cost of replication needs throughputs with two different numbers of channels")
    across = [n * math.log2(n) for n in throughputs]
    up = [n / throughput for n, throughput in throughputs.items()]
    middle_across, middle_up = sum(across) / len(across), sum(up) / len(up)
    rise = sum((x - middle_across) * (y - middle_up) for x, y in zip(across, up, strict=True))
    return max(0.0, rise / sum((x - middle_across) ** 2 for x in across))


@dataclass(frozen=True, slots=True)
class Boundary:
    """Seconds per tuple: `delta` for handing it over, on each side; `cp` for splitting and merging in two channels.

    `keyed_cp` is `cp` for a stream that is split by key, tuple by tuple, where `cp` deals whole chunks.

    >>> Boundary(delta=1e-7, cp=2e-7).keyed_cp
    2e-07
    """

    delta: float
    cp: float = 0.0
    keyed_cp: float = None  # type: ignore[assignment]  # `cp` if nobody says

    def __post_init__(self) -> None:
        if self.keyed_cp is None:
            object.__setattr__(self, "keyed_cp", self.cp)
        for name in ("delta", "cp", "keyed_cp"):
            _check_time(getattr(self, name), f"{name} of a boundary")


def _check_time(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{what} must be a time in seconds, not {value!r}")


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Seconds of its own that Spark takes for a batch, whatever it holds: `base`, and `shuffle` for each shuffle.

    That is planning the batch, starting its tasks, and committing offsets and state.

    >>> BatchTime(0.25, 0.125).seconds(shuffles=2)
    0.5
    """

    base: float
    shuffle: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base", "shuffle"):
            _check_time(getattr(self, name), f"{name} of a batch")

    def seconds(self, shuffles: int) -> float:
        """The time of a batch with so many shuffles."""
        return self.base + shuffles * self.shuffle

    @staticmethod
    def fitted(measured: Mapping[int, float]) -> BatchTime:
        """The line of least squares through seconds by number of shuffles; it never falls, nor starts below zero.

        >>> BatchTime.fitted({0: 0.25, 1: 0.5, 2: 0.75})
        BatchTime(base=0.25, shuffle=0.25)
        >>> BatchTime.fitted({0: 0.5, 1: 0.25})  # noise
        BatchTime(base=0.375, shuffle=0.0)
        """
        middle, height = statistics.fmean(measured), statistics.fmean(measured.values())
        spread = sum((shuffles - middle) ** 2 for shuffles in measured)
        rise = sum((shuffles - middle) * (seconds - height) for shuffles, seconds in measured.items())
        slope = max(0.0, rise / spread) if spread else 0.0
        if middle and slope * middle > height:
            slope = height / middle
        return BatchTime(max(0.0, height - slope * middle), slope)


@dataclass(frozen=True)
class Calibration:
    """What each kind of boundary costs on one machine; kinds that were not measured cost what `DEFAULTS` says.

    `batch` is what a batch costs Spark, None where that was not measured.

    >>> calibration = Calibration({"port": Boundary(delta=1e-6, cp=5e-7)}, machine="mine", batch=BatchTime(0.3, 0.2))
    >>> calibration["port"].delta
    1e-06
    >>> Calibration.from_json(calibration.to_json()) == calibration
    True
    """

    boundaries: Mapping[str, Boundary]
    machine: str = ""
    batch: BatchTime | None = None

    def __getitem__(self, kind: str) -> Boundary:
        return self.boundaries[kind] if kind in self.boundaries else DEFAULTS[kind]

    @property
    def batch_time(self) -> BatchTime:
        """What a batch costs Spark: as measured, or `DEFAULT_BATCH`."""
        return self.batch if self.batch is not None else DEFAULT_BATCH

    def origin(self, *names: str) -> str:
        """Where the costs of so many kinds of boundaries come from, or of a "batch", as the end of a sentence.

        >>> calibration = Calibration({"port": Boundary(1e-6), "stage": Boundary(1e-6)}, machine="mine")
        >>> calibration.origin("stage", "port")
        'measured on mine'
        >>> calibration.origin("port", "shuffle", "batch")
        'measured on mine, but for shuffle and batch, which are assumed'
        >>> calibration.origin("shuffle", "batch")
        'assumed'
        """
        assumed = [name for name in names if (self.batch is None if name == "batch" else name not in self.boundaries)]
        if len(assumed) == len(names):
            return "assumed"
        measured = f"measured on {self.machine or 'this machine'}"
        if not assumed:
            return measured
        *most, last = assumed
        listed = f"{', '.join(most)} and {last}" if most else last
        return f"{measured}, but for {listed}, which {'are' if most else 'is'} assumed"

    def on_top_of(self, earlier: Calibration) -> Calibration:
        """This calibration, with what only `earlier` has measured, if that was on the same machine.

        >>> earlier = Calibration({"shuffle": Boundary(1e-6)}, "mine")
        >>> sorted(Calibration({"port": Boundary(2e-6)}, "mine").on_top_of(earlier).boundaries)
        ['port', 'shuffle']
        """
        if earlier.machine != self.machine:
            return self
        batch = self.batch if self.batch is not None else earlier.batch
        return Calibration({**earlier.boundaries, **self.boundaries}, self.machine, batch)

    def to_json(self) -> str:
        """This calibration as JSON text."""
        boundaries = {kind: asdict(boundary) for kind, boundary in self.boundaries.items()}
        data = {"penstock_calibration": _VERSION, "machine": self.machine, "boundaries": boundaries}
        return json.dumps(data if self.batch is None else {**data, "batch": asdict(self.batch)}, indent=2)

    @staticmethod
    def from_json(text: str) -> Calibration:
        """The calibration that `to_json` wrote."""
        try:
            data = json.loads(text)
            if data["penstock_calibration"] != _VERSION:
                raise PenstockError(f"this calibration has version {data['penstock_calibration']}, expected {_VERSION}")
            boundaries = {kind: Boundary(**values) for kind, values in data["boundaries"].items()}
            if unknown := sorted(set(boundaries) - set(KINDS)):
                raise PenstockError(f"there is no boundary of the kind {unknown[0]!r}; there are {', '.join(KINDS)}")
            batch = BatchTime(**data["batch"]) if "batch" in data else None
            return Calibration(boundaries, str(data["machine"]), batch)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PenstockError(f"this is no Penstock calibration: {type(error).__name__}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the calibration to a JSON file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Calibration:
        """Read a calibration from a JSON file."""
        try:
            return Calibration.from_json(Path(path).read_text(encoding="utf-8"))
        except (PenstockError, UnicodeDecodeError) as error:
            raise PenstockError(f"{path} cannot be read as a calibration: {error}") from error


# Measured on a machine of two cores with CPython 3.11; those of Spark are rough.
DEFAULTS: Mapping[str, Boundary] = {
    "call": Boundary(0.008e-6),
    "port": Boundary(0.05e-6, 0.17e-6, 0.6e-6),
    "process": Boundary(0.06e-6, 0.04e-6),
    "stage": Boundary(0.45e-6),
    "shuffle": Boundary(0.4e-6, 0.75e-6),
}
# About what `penstock calibrate --spark` finds for one shuffle on the same machine when others use it too.
DEFAULT_BATCH = BatchTime(0.5)
