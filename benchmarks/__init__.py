"""Measurements: each prints ratios from one run and appends what it measured to `benchmarks/history/`."""

import dbsp  # noqa: F401 - before numpy, as in the commands: it says how threads share the heap
