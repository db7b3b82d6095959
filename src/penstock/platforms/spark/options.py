"""What `pn.run(on="spark")` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compiler.plan import Plan
from penstock.compiler.stage_plan import SparkPlan
from penstock.errors import PlatformError
from penstock.graph.graph import Graph
from penstock.optimizer.profile import Profile
from penstock.platforms.spark import planning


@dataclass(frozen=True)
class SparkOptions:
    """The options of one job."""

    master: str | None = None
    checkpoint: str | Path | None = None
    trigger: str | None = None
    conf: Mapping[str, str] | None = None
    spark: Any = None
    log: str | None = None
    profile: Profile | None = None
    plan: Plan | None = None

    def given_plan(self, graph: Graph) -> SparkPlan | None:
        """The plan to run by, if there is one; refuses what cannot be run before Spark is started."""
        planning.refuse(graph)
        if self.plan is not None and self.profile is not None:
            raise PlatformError("plan= says how the program runs: leave profile= out, or plan=")
        return None if self.plan is None else planning.by_plan(graph, self.plan)


def interval(trigger: str | None) -> str:
    """A trigger such as "1s" or "500 ms" in Spark's words."""
    if trigger is None:
        return "0 seconds"
    text = trigger.strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
    try:
        float(number)
    except ValueError:
        raise PlatformError(f"trigger= is a time such as '1s' or '500 ms', not {trigger!r}") from None
    return f"{number} {units.get(unit, unit)}"
