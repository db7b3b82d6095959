"""The plan of a program on Spark: its levels, what runs in each, and what is sent between them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.graph import Node
from penstock.platforms.spark.program import Program


@dataclass(frozen=True)
class SparkPlan:
    """How a program runs on Spark. `str(plan)` explains it; `plan.code()` shows the generated functions."""

    program: Program

    def __str__(self) -> str:
        program = self.program
        levels = program.stages.levels
        shuffles = f"{levels} shuffle" + ("" if levels == 1 else "s")
        nodes = len(program.graph)
        size = f"{nodes} operators in {levels + 1} stages, {shuffles}, {program.channels} channels"
        lines = [f"flow '{program.graph.name}' on Spark: {size}"]
        for level in range(levels + 1):
            lines += ["", self._title(level)]
            lines += [self._row(node) for node in self._nodes(level)]
        lines += ["", "the driver, in order:"]
        lines += [self._row(node) for node in program.graph if node.is_sink]
        lines += [
            "",
            "Operators of one stage are fused into generated Python functions in one worker process per task.",
        ]
        return "\n".join(lines)

    def code(self) -> str:
        """The source text of every generated function."""
        from penstock.platforms import local

        return local.plan(self.program.graph).code()

    def _title(self, level: int) -> str:
        if level == 0:
            return "stage 0: where sources are read, in parallel"
        if level in self.program.stages.single:
            return f"stage {level}: one shuffle, one channel (the whole stream in order), state in Spark's store"
        keys = sorted({str(node.key) for node in self._nodes(level) if node.kind == "partitioned" and node.key})
        return (
            f"stage {level}: one shuffle by {', '.join(keys)}, {self.program.channels} channels, state in Spark's store"
        )

    def _nodes(self, level: int) -> list[Node]:
        graph, stages = self.program.graph, self.program.stages
        return [
            graph.nodes[index]
            for index in graph.topological
            if level in stages.present[index] and not graph.nodes[index].is_sink
        ]

    @staticmethod
    def _row(node: Node) -> str:
        keyed = f" by {node.key}" if node.kind == "partitioned" and node.key is not None else ""
        window = getattr(node.operation, "window", None)
        does = node.operation.verb + (f" over {window}" if window is not None else "")
        return f"  {node.name:<16} {does:<28} {node.kind}{keyed}"
