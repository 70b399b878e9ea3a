"""The engines that a user would take instead, on the same data in the same run.

DuckDB and Spark come with the tests' packages. Bytewax, Pathway, Flink and the Rust `dbsp` crate get an environment of their own
each: `python -m benchmarks.peers.install`. What cannot be had is left out of a run, and the run says why.
"""
