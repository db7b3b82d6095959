"""Operators' state in Spark's state store: loaded when met, written back when touched.

One call to the store takes 0.15–0.25 ms from Python, far more than handling a tuple. So keys are kept in *buckets*:
one entry of the store holds a few dozen keys, each with its own pickled state, and a batch reads and writes only the
buckets of keys it met. The number of buckets grows with the number of keys (`KEYS_PER_BUCKET`), as in a hash table:
growing moves every key once, so it costs a constant amount per key over time.

States are pickled so that what belongs to the program — the user's functions, windows, aggregates — is stored by name
only and comes from the program when loaded (`Shared`). A state is therefore small, and outlives a restart of the
program.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Iterator
from typing import Any, Protocol

from pyspark.cloudpickle import CloudPickler

from penstock.operators.base import KeyedState, Logic, Partition
from penstock.platforms.spark.wire import stable_hash

KEYS_PER_BUCKET = 64
GROWTH = 8  # times as many buckets at once, so that growing is rare
_PLAIN = (int, float, str, bytes, bool, list, tuple, dict, set, type(None))


class Entries(Protocol):
    """The store of one channel: bytes by (operator, number)."""

    def get(self, operator: int, number: int) -> bytes | None: ...
    def put(self, operator: int, number: int, value: bytes) -> None: ...
    def items(self) -> Iterator[tuple[int, int, bytes]]: ...
    def remove(self, operator: int, number: int) -> None: ...


class Shared:
    """The objects a state may refer to instead of containing them: those of the operator's logic, by path."""

    def __init__(self, logic: Logic) -> None:
        self.by_path: dict[str, Any] = {}
        self.by_id: dict[int, str] = {}
        self._walk("node", logic.node.operation, 4)
        for port, entry in enumerate(logic.node.inputs):
            self._walk(f"key{port}", entry.key, 2)
        for name, value in sorted(vars(logic).items()):
            if name not in ("node", "clock") and not isinstance(value, KeyedState):
                self._walk(name, value, 3)

    def _walk(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, tuple | list):
            for position, part in enumerate(value):
                self._walk(f"{path}.{position}", part, depth - 1) if depth else None
            return
        if isinstance(value, _PLAIN) or id(value) in self.by_id or isinstance(value, type):
            return
        self.by_path[path] = value
        self.by_id[id(value)] = path
        if depth and (dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value))):
            for name, part in sorted(vars(value).items()) if hasattr(value, "__dict__") else ():
                self._walk(f"{path}.{name}", part, depth - 1)

    def dumps(self, value: Any) -> bytes:
        """Pickle a state."""
        if not isinstance(value, Partition):
            try:
                return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            except (pickle.PicklingError, AttributeError, TypeError):
                pass  # it holds functions or classes of the main program
        buffer = io.BytesIO()
        _StatePickler(buffer, self).dump(value)
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        """Unpickle a state."""
        return _StateUnpickler(io.BytesIO(data), self).load()


class _StatePickler(CloudPickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> str | None:
        return self._shared.by_id.get(id(value))


class _StateUnpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, shared: Shared) -> None:
        super().__init__(buffer)
        self._shared = shared

    def persistent_load(self, path: str) -> Any:
        try:
            return self._shared.by_path[path]
        except KeyError:
            raise pickle.UnpicklingError(f"the program has no {path!r} any more, but a stored state needs it") from None


class Buckets:
    """The stored keys of one operator in one channel."""

    def __init__(self, entries: Entries, operator: int) -> None:
        self._entries = entries
        self._operator = operator
        self._count, self._keys = 1, 0
        header = entries.get(operator, -1)
        if header is not None:
            self._count, self._keys = pickle.loads(header)
        self._loaded: dict[int, dict[Any, bytes]] = {}
        self._changed: set[int] = set()

    def _bucket(self, key: Any) -> tuple[int, dict[Any, bytes]]:
        number = (stable_hash(key) >> 7) % self._count  # other bits than those that chose the channel
        found = self._loaded.get(number)
        if found is None:
            data = self._entries.get(self._operator, number)
            found = self._loaded[number] = {} if data is None else pickle.loads(data)
        return number, found

    def get(self, key: Any) -> bytes | None:
        return self._bucket(key)[1].get(key)

    def put(self, key: Any, value: bytes) -> None:
        number, bucket = self._bucket(key)
        if key not in bucket:
            self._keys += 1
        elif bucket[key] == value:
            return
        bucket[key] = value
        self._changed.add(number)

    def remove(self, key: Any) -> None:
        number, bucket = self._bucket(key)
        if bucket.pop(key, None) is not None:
            self._keys -= 1
            self._changed.add(number)

    def items(self) -> Iterator[tuple[Any, bytes]]:
        """Every stored key of the operator."""
        for number in range(self._count):
            if number not in self._loaded:
                data = self._entries.get(self._operator, number)
                self._loaded[number] = {} if data is None else pickle.loads(data)
            yield from self._loaded[number].items()

    def flush(self) -> None:
        """Write back what changed, in more buckets if there are many more keys now."""
        if not self._changed:
            return
        if self._keys > KEYS_PER_BUCKET * self._count:
            self._grow()
        for number in sorted(self._changed):
            self._entries.put(self._operator, number, pickle.dumps(self._loaded[number], pickle.HIGHEST_PROTOCOL))
        self._changed.clear()
        self._entries.put(self._operator, -1, pickle.dumps((self._count, self._keys)))

    def _grow(self) -> None:
        everything = list(self.items())
        while self._keys > KEYS_PER_BUCKET * self._count:
            self._count *= GROWTH
        self._loaded = {number: {} for number in range(self._count)}
        for key, value in everything:
            self._loaded[(stable_hash(key) >> 7) % self._count][key] = value
        self._changed = {number for number, bucket in self._loaded.items() if bucket}


class StoredState(KeyedState):
    """Keyed state whose keys are loaded when met; every key met is written back by `flush`."""

    __slots__ = ("_buckets", "_logic", "_removed", "_shared")

    def __init__(self, logic: Logic, state: KeyedState, shared: Shared, buckets: Buckets) -> None:
        super().__init__(state.make)
        self._logic = logic
        self._shared = shared
        self._buckets = buckets
        self._removed: set[Any] = set()

    def _load(self, key: Any, data: bytes) -> Any:
        return self._logic.load(key, self._shared.loads(data))

    def __missing__(self, key: Any) -> Any:
        data = None if key in self._removed else self._buckets.get(key)
        state = self[key] = self.make(key) if data is None else self._load(key, data)
        return state

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            data = None if key in self._removed else self._buckets.get(key)
            if data is None:
                return default
            self[key] = self._load(key, data)
        return self[key]

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._removed.add(key)

    def load_all(self) -> None:
        """Load every stored key: something concerns all of them."""
        for key, data in list(self._buckets.items()):
            if key not in self and key not in self._removed:
                self[key] = self._load(key, data)

    def flush(self) -> None:
        """Write back."""
        for key in self._removed - set(self):
            self._buckets.remove(key)
        for key, state in self.items():
            self._buckets.put(key, self._shared.dumps(self._logic.save(state)))
        self._buckets.flush()


class ChannelState:
    """All state of one channel at one level."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._logics: list[tuple[int, Logic, Shared]] = []
        self._stored: list[StoredState] = []

    def attach(self, index: int, logic: Logic) -> None:
        """Let `logic` keep its state here. Before its code is generated: that binds the state."""
        shared = Shared(logic)
        self._logics.append((index, logic, shared))
        for name, value in list(vars(logic).items()):
            if type(value) is KeyedState:
                stored = StoredState(logic, value, shared, Buckets(self._entries, index))
                setattr(logic, name, stored)
                self._stored.append(stored)
        saved = self._entries.get(index, -2)
        if saved is not None:
            logic.restore(shared.loads(saved))

    def load_all(self, logic: Logic) -> None:
        """Load every key of `logic`, before something that concerns all of them."""
        for value in vars(logic).values():
            if isinstance(value, StoredState):
                value.load_all()

    def flush(self) -> None:
        """Write back everything touched."""
        for stored in self._stored:
            stored.flush()
        for index, logic, shared in self._logics:
            snapshot = logic.snapshot()
            if snapshot is not None:
                self._entries.put(index, -2, shared.dumps(snapshot))

    def ended(self) -> frozenset[int]:
        """The sources whose final punctuation this channel has seen."""
        data = self._entries.get(-1, 0)
        return frozenset() if data is None else pickle.loads(data)

    def set_ended(self, sources: frozenset[int]) -> None:
        """Remember them."""
        self._entries.put(-1, 0, pickle.dumps(sources))
