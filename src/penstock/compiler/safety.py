"""Which operators may be replicated without anybody noticing, and which attributes of a tuple they let through.

An operator that keeps no state may run in any number of copies. One that keeps state per key may too, as long as all
tuples of a key meet the same copy. The split that sees to that stands at the entry of the region, so the key must be
readable there already: every operator between the entry and the keyed one has to pass its attributes on unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph import operations as ops
from penstock.graph.graph import Node
from penstock.graph.operator import Operator

# Operators that pass tuples on as they are, so that whatever key they had, they still have.
FORWARDING = (ops.Filter, ops.Split, ops.Union, ops.Dedup, ops.Sort, ops.DynamicFilter, ops.Punctuate, ops.Pair)


@dataclass(frozen=True, slots=True)
class Kept:
    """The attributes of the tuples at the entry of a region that are still what they were, further down.

    `everything` means the tuple itself is the same; then a key given by a function can still be computed.
    """

    everything: bool
    names: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return self.everything or name in self.names

    def __and__(self, other: Kept) -> Kept:
        if self.everything:
            return other
        return self if other.everything else Kept(False, self.names & other.names)


ALL = Kept(True)


def why_not(node: Node) -> str | None:
    """Why `node` must not be replicated, as the end of a sentence; None if it may."""
    operation = node.operation
    if isinstance(operation, ops.Read):
        return "a source gives its tuples in one order"
    if isinstance(operation, ops.Write):
        return "a sink receives the whole stream in order"
    if isinstance(operation, ops.Feedback):
        return "it closes a loop"
    if isinstance(operation, ops.Punctuate):
        return "the marks it makes are for the whole stream"
    if node.kind == "stateful":
        return "it keeps state over the whole stream"
    if node.kind == "partitioned" and any(entry.key is None for entry in node.inputs):
        return "it keeps state per key, but an input has no key"
    if node.kind == "stateless" and answers_marks(node):
        return "it answers punctuation, which is for the whole stream"
    if operation.control:
        return "its control port must reach every copy at the same place in the stream"
    return None


def answers_marks(node: Node) -> bool:
    """True for operators of the user's that do something at punctuation, as at the end of the stream."""
    operation = node.operation
    if not isinstance(operation, ops.Process) or not isinstance(operation.operator, Operator):
        return False
    return type(operation.operator).on_punctuation is not Operator.on_punctuation


def kept_by(node: Node) -> Kept:
    """What `node` keeps of the attributes of the tuples it receives."""
    if isinstance(node.operation, FORWARDING):
        return ALL
    if isinstance(node.operation, ops.Aggregate) and node.key is not None:
        return Kept(False, frozenset(node.key.names))  # its results carry the key's attributes by name
    return Kept(False)
