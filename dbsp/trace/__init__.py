"""Traces: the history of a stream, kept as a short list of sorted immutable runs.

`chunks` stores pieces of runs, `manifest` says which pieces a trace consists of, `spine` reads and grows a trace,
`memory` is the two-version database that forgets.
"""
