"""Names of the stored formats of logs; the number at the end of a name is the version of the format.

They are apart from the modules that write the formats, so that reading settings loads no engine.
"""

from __future__ import annotations

INPUT_LOG = "dbsp input log 1"
INPUT_LOG_PARTS = ("rows", "spans", "producers")
INPUT_RECORD = b"DBSPIN01"
STEP_LOG = "dbsp step log 1"
OUTPUT_LOG = "dbsp output log 1"
FILE_INPUT = "dbsp file input 1"
FILE_INPUT_PARTS = ("files", "pieces", "spans")
FILE_OUTPUT = "dbsp file output progress 1"
LETTER_LOG = "dbsp letter log 1"
