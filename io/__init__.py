"""Logs: where rows come from, where the division into steps is kept, where results go.

`EmbeddedInputLog`, `EmbeddedStepLog` and `EmbeddedOutputLog` keep everything in LMDB files on one host; `FileInputLog` and
`FileOutputLog` read and write plain files; `dbsp.io.kafka` has the same three on Kafka. All stand behind the protocols of
`dbsp.logs` and pass the same contract tests. `dbsp.io.formats` turns JSON and Arrow bytes into rows and back. Source: design
section 7.
"""

from __future__ import annotations

if __name__ != "dbsp.io":
    raise ImportError("import dbsp.io: the bare name makes a second copy of every class")
