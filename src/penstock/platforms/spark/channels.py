"""Names for channels that Spark spreads evenly: one channel to each shuffle partition.

Spark sends a group to partition `murmur3(key) mod partitions`. The plain numbers 0, 1, 2, … collide there, and a core
would stand idle. So channel n is written as the n-th number whose partition is not taken yet.
"""

from __future__ import annotations

_SEED = 42  # Spark's


def channel_names(count: int) -> tuple[int, ...]:
    """The number that stands for each of `count` channels in rows, given as many shuffle partitions.

    >>> names = channel_names(4)
    >>> sorted(murmur3(name) % 4 for name in names)
    [0, 1, 2, 3]
    """
    names: list[int] = []
    taken: set[int] = set()
    candidate = 0
    while len(names) < count:
        partition = murmur3(candidate) % count
        if partition not in taken:
            taken.add(partition)
            names.append(candidate)
        candidate += 1
    return tuple(names)


def murmur3(number: int) -> int:
    """The 32-bit Murmur3 hash of an int, signed, with Spark's seed."""
    mixed = _rotate((number & 0xFFFFFFFF) * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    result = (_rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    result ^= 4
    result = (result ^ result >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    result = (result ^ result >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    result ^= result >> 16
    return result - (1 << 32) if result >> 31 else result


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF
