"""Work for operators that frees the GIL: so many floating point operations per number."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=False)
def computed(values: Any, flops: int) -> Any:
    """An array of what `flops` operations make of each of `values`, which stay as they are."""
    result = values.copy()
    for i in range(values.size):
        x = values[i]
        for _ in range(flops // 2):  # a multiplication and an addition
            x = x * 0.999999 + 0.000001
        result[i] = x
    return result


computed(np.array([1.0]), 2)  # compiled now
