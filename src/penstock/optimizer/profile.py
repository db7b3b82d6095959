"""The profile of a program: what each operator costs per tuple, and how many tuples it sends per tuple it gets."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """Measurements of one operator, from the chunks that were sampled.

    `cost` is seconds per tuple received (for a source: per tuple it gave), `selectivity` tuples sent per tuple
    received, `samples` the number of tuples behind both. `free` is the part of the cost during which other threads may
    run Python code, `size` the bytes of a tuple sent, on its way to another process. Both are None where nobody knows:
    only `pn.profile` looks at sizes, a run does not.
    """

    cost: float
    selectivity: float
    samples: int
    free: float | None = None
    size: float | None = None

    def __post_init__(self) -> None:
        for name, (least, most, what) in _MEANINGS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            number = isinstance(value, int if name == "samples" else int | float) and not isinstance(value, bool)
            if not number or not least <= value <= most:
                raise PenstockError(f"{name} must be {what}{', or None' * (name in _OPTIONAL)}, not {value!r}")


_LARGEST = sys.float_info.max
_MEANINGS = {
    "cost": (0, _LARGEST, "seconds per tuple, a finite number from 0"),
    "selectivity": (0, _LARGEST, "tuples sent per tuple received, a finite number from 0"),
    "samples": (0, inf, "a number of tuples, a whole number from 0"),
    "free": (0, 1, "a part of the cost, from 0 to 1"),
    "size": (0, _LARGEST, "a number of bytes, finite and from 0"),
}
_OPTIONAL = ("free", "size")


@dataclass(frozen=True)
class Profile:
    """Measurements of a flow by operator name.

    >>> profile = Profile("demo", {"parse": OperatorProfile(cost=2e-6, selectivity=0.5, samples=1000)})
    >>> Profile.from_json(profile.to_json()) == profile
    True
    """

    flow: str
    operators: Mapping[str, OperatorProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.operators, Mapping):
            raise PenstockError(f"a profile has operators by name, not {self.operators!r}")
        for name, operator in self.operators.items():
            if not isinstance(operator, OperatorProfile):
                raise PenstockError(f"the profile of operator {name!r} must be an OperatorProfile, not {operator!r}")

    def to_json(self) -> str:
        """This profile as JSON text."""
        operators = {name: asdict(operator) for name, operator in self.operators.items()}
        return json.dumps({"penstock_profile": _VERSION, "flow": self.flow, "operators": operators}, indent=2)

    @staticmethod
    def from_json(text: str) -> Profile:
        """The profile that `to_json` wrote."""
        try:
            data = json.loads(text)
            if data["penstock_profile"] != _VERSION:
                raise PenstockError(f"this profile has version {data['penstock_profile']}, expected {_VERSION}")
            return Profile(data["flow"], {name: _operator(name, values) for name, values in data["operators"].items()})
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise PenstockError(f"this is no Penstock profile: {type(error).__name__}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the profile to a JSON file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Profile:
        """Read a profile from a JSON file."""
        try:
            return Profile.from_json(Path(path).read_text(encoding="utf-8"))
        except (PenstockError, UnicodeDecodeError) as error:
            raise PenstockError(f"{path} cannot be read as a profile: {error}") from error


def _operator(name: str, values: Any) -> OperatorProfile:
    try:
        return OperatorProfile(**values)
    except (PenstockError, TypeError) as error:
        raise PenstockError(f"this profile is damaged at operator '{name}': {error}") from error
