"""The profile of a program: what each operator costs per tuple, and how many tuples it sends per tuple it gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

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
        size = self.size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < inf):
            raise ValueError(f"size must be a number of bytes, or None, not {size!r}")


@dataclass(frozen=True)
class Profile:
    """Measurements of a flow by operator name.

    >>> profile = Profile("demo", {"parse": OperatorProfile(cost=2e-6, selectivity=0.5, samples=1000)})
    >>> Profile.from_json(profile.to_json()) == profile
    True
    """

    flow: str
    operators: Mapping[str, OperatorProfile] = field(default_factory=dict)

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
            operators = {name: OperatorProfile(**values) for name, values in data["operators"].items()}
            return Profile(data["flow"], operators)
        except (KeyError, TypeError, ValueError) as error:
            raise PenstockError(f"this is no Penstock profile: {type(error).__name__}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the profile to a JSON file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Profile:
        """Read a profile from a JSON file."""
        return Profile.from_json(Path(path).read_text(encoding="utf-8"))
