"""Keep traces: the history of a stream, as a short list of sorted immutable runs.

`chunks` stores the pieces of runs. `manifest` describes which pieces make up a trace. `spine` reads a trace and
appends to it. `memory` is the two-version database in memory, which loses its state with the process.
"""
