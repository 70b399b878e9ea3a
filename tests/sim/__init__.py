"""The cluster in one process from one seed: `python -m tests.sim --help`."""
