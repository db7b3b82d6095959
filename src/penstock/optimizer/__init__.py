"""Profile in, plan out: what operators cost, and what to do about it.

    model.py       chains of operators, configurations, and what a configuration is worth (pipelined fission, eqs 1–14)
    exact.py       the best configuration, proved; `least.py`, `slowest.py` and `tidy.py` are parts of it
    heuristic.py   a good configuration, the paper's way (algorithms 1–4)
    graphs.py      graphs that are no chains
    baselines.py   no parallelism, one kind of it, and every configuration there is
    profile.py     measured costs and selectivities
    calibrate.py   what boundaries cost on a machine: δ and c_p (eqs 15–19); and batches of Spark

All searches have one signature, `search(ops, cores, delta, cp, …) -> Config`.

>>> ops = [Op(1, kind="stateful"), Op(12), Op(9, 0.2, "partitioned", {"host"}), Op(5, kind="stateful")]
>>> best = optimal(ops, cores=4, delta=0.1, cp=0.2)
>>> print(best)
[0] [1 2]x4 [3]
>>> round(1 / evaluate(ops, best, cores=4, delta=0.1, cp=0.2).throughput, 2)
5.91
"""

from penstock.optimizer.baselines import brute_force, fission_only, pipelining_only, sequential
from penstock.optimizer.calibrate import BatchTime, Boundary, Calibration, replication_cost, switching_cost
from penstock.optimizer.exact import Solution, optimal, optimal_with_bound
from penstock.optimizer.graphs import ChainPlan, GraphPlan, Link, OpGraph, optimal_graph
from penstock.optimizer.heuristic import heuristic
from penstock.optimizer.model import Config, ConfigError, Evaluation, Op, Region, evaluate, validate_config

__all__ = [
    "BatchTime",
    "Boundary",
    "Calibration",
    "ChainPlan",
    "Config",
    "ConfigError",
    "Evaluation",
    "GraphPlan",
    "Link",
    "Op",
    "OpGraph",
    "Region",
    "Solution",
    "brute_force",
    "evaluate",
    "fission_only",
    "heuristic",
    "optimal",
    "optimal_graph",
    "optimal_with_bound",
    "pipelining_only",
    "replication_cost",
    "sequential",
    "switching_cost",
    "validate_config",
]
