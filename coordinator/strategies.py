"""How state gets to its new owners: while no step runs, copied ahead of time while steps go on, or key by key in the steps."""

from __future__ import annotations

from dbsp.distribute.names import STRATEGIES as BY_KEY

COLD, WARMUP = "cold", "warmup"
STRATEGIES = (COLD, WARMUP, *BY_KEY)
