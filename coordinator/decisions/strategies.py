"""The strategies by which state moves to its new owners.

State moves while no step runs, is copied ahead of time while steps run, or moves key by key in the steps.
"""

from __future__ import annotations

from dbsp.distribute.names import STRATEGIES as BY_KEY

COLD, WARMUP = "cold", "warmup"
STRATEGIES = (COLD, WARMUP, *BY_KEY)
