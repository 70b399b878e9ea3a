"""Logs: the input log, the step log that divides the input into steps, and the output log with the results.

`EmbeddedInputLog`, `EmbeddedStepLog` and `EmbeddedOutputLog` keep everything in LMDB files on one host.
`FileInputLog` and `FileOutputLog` read and write plain files. `dbsp.io.kafka` has the same three logs on Kafka. All
implement the protocols of `dbsp.logs` and pass the same contract tests. `dbsp.io.formats` converts between rows and
JSON or Arrow bytes.
"""

from __future__ import annotations

if __name__ != "dbsp.io":
    raise ImportError("import dbsp.io: the bare name makes a second copy of every class")
