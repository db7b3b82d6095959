"""Which logic stands behind each description."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.graph import operations as ops
from penstock.graph.graph import Node
from penstock.operators.aggregate import AggregateLogic
from penstock.operators.apply import ApplyLogic
from penstock.operators.base import Logic
from penstock.operators.boundary import BoundaryLogic
from penstock.operators.dedup import DedupLogic
from penstock.operators.delay import DelayLogic
from penstock.operators.dynamic_filter import DynamicFilterLogic
from penstock.operators.enrich import EnrichLogic
from penstock.operators.filter import FilterLogic
from penstock.operators.flat_map import FlatMapLogic
from penstock.operators.gate import GateLogic
from penstock.operators.join import JoinLogic
from penstock.operators.map import MapLogic
from penstock.operators.map_batch import MapBatchLogic
from penstock.operators.meeting import BarrierLogic, PairLogic
from penstock.operators.process import ProcessLogic
from penstock.operators.punctuate import PunctuateLogic
from penstock.operators.scan import ScanLogic
from penstock.operators.sink import WriteLogic
from penstock.operators.sort import SortLogic
from penstock.operators.split import SplitLogic
from penstock.operators.switch import SwitchLogic
from penstock.operators.throttle import ThrottleLogic
from penstock.operators.union import UnionLogic

LOGIC: dict[type[ops.Operation], type[Logic]] = {
    ops.Aggregate: AggregateLogic,
    ops.Apply: ApplyLogic,
    ops.Barrier: BarrierLogic,
    ops.Deal: BoundaryLogic,
    ops.Dedup: DedupLogic,
    ops.Delay: DelayLogic,
    ops.DynamicFilter: DynamicFilterLogic,
    ops.Enrich: EnrichLogic,
    ops.Feedback: UnionLogic,
    ops.Filter: FilterLogic,
    ops.FlatMap: FlatMapLogic,
    ops.Gate: GateLogic,
    ops.Gather: BoundaryLogic,
    ops.Join: JoinLogic,
    ops.Map: MapLogic,
    ops.MapBatch: MapBatchLogic,
    ops.Pair: PairLogic,
    ops.Process: ProcessLogic,
    ops.Punctuate: PunctuateLogic,
    ops.Read: UnionLogic,
    ops.Scan: ScanLogic,
    ops.Sort: SortLogic,
    ops.Split: SplitLogic,
    ops.Switch: SwitchLogic,
    ops.Throttle: ThrottleLogic,
    ops.Union: UnionLogic,
    ops.Write: WriteLogic,
}


def logic_of(node: Node, clock: Clock | None = None) -> Logic:
    """Fresh logic for one operator of one run."""
    return LOGIC[type(node.operation)](node, clock)
