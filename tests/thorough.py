"""How much is tried: CI sets PENSTOCK_THOROUGH and tries more than `make test` has time for."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("PENSTOCK_THOROUGH"))


def blocks(few: int, many: int) -> range:
    """Numbers of blocks of random cases: `many` where there is time."""
    return range(many if THOROUGH else few)
