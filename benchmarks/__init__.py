"""Measurements: each prints ratios from one run and appends what it measured to `benchmarks/history/`."""
