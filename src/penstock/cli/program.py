"""Finds the flow in a user's file: `FILE`, or `FILE:name` where the file has several."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from penstock.errors import FlowError
from penstock.graph.flow import Flow


def load_flow(program: str) -> Flow:
    """The flow that `program` (`FILE` or `FILE:name`) defines: a `Flow`, or a function that returns one."""
    path, name = _parse(program)
    module_name = path.stem
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise FlowError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # so that pickling and dataclasses find the module they belong to
    sys.path.insert(0, str(path.parent.resolve()))  # as Python does for a script
    spec.loader.exec_module(module)
    return _pick(vars(module), name, path)


def _parse(program: str) -> tuple[Path, str | None]:
    path = Path(program)
    name = None
    if not path.exists() and ":" in program:
        file, _, name = program.rpartition(":")
        path = Path(file)
    if not path.is_file():
        raise FlowError(f"there is no file {str(path)!r}")
    return path, name


def _pick(names: dict[str, object], wanted: str | None, path: Path) -> Flow:
    if wanted is not None:
        if wanted not in names:
            raise FlowError(f"{path} defines no {wanted!r}")
        found = names[wanted]
        flow = found if isinstance(found, Flow) else found() if callable(found) else None
        if not isinstance(flow, Flow):
            raise FlowError(f"{wanted!r} in {path} is neither a flow nor a function that returns one")
        return flow
    flows = {id(value): (key, value) for key, value in names.items() if isinstance(value, Flow)}
    if isinstance(names.get("flow"), Flow):
        return names["flow"]  # type: ignore[return-value]
    if len(flows) == 1:
        return next(iter(flows.values()))[1]
    if not flows:
        raise FlowError(f"{path} defines no flow; assign one at its top level, as in: flow = pn.Flow('name')")
    choices = ", ".join(f"{path}:{key}" for key, _ in flows.values())
    raise FlowError(f"{path} defines several flows; choose one of {choices}")
