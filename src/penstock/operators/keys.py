"""The code that finds the key of a tuple."""

from __future__ import annotations

from penstock.graph.keys import Key
from penstock.operators.base import Writer


def write_key(w: Writer, item: str, key: Key | None) -> str:
    """Write code that reads `key` from the tuple in `item`; returns the variable it is in."""
    assert key is not None, "validate() lets no partitioned operator pass without keys"
    variable = w.variable("key")
    if len(key.names) == 1:
        w.line(f"{variable} = {w.attribute(item, key.names[0])}", attribute=key.names[0])
    elif key.names:
        parts = ", ".join(w.attribute(item, name) for name in key.names)
        w.line(f"{variable} = ({parts})", attribute=",".join(key.names))
    else:
        w.line(f"{variable} = {w.bind(key.function, 'key_of')}({item})")
    return variable
