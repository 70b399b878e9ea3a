"""Rows as bytes: JSON and Arrow in both directions, and the formats of other systems' files and topics as input.

`decode_json` and `decode_arrow` read rows; `encode_json` and `encode_arrow` write them. A decoder never raises an
error for what a sender wrote. It returns unusable rows as bad rows with their number and reason, independent of how
the bytes are cut into calls.

- json_rows, json_tables, json_scan, wire, json_output, arrow_rows, csv_rows: the forms of pushes, files and topics
- pieces: batches cut into runs of rows, each small enough to become texts
- runs: messages decoded together if all are good, otherwise half by half
- debezium: changes of a database in JSON, in two shapes; envelopes: the effect of a change on its table
- lines: where the lines of a file begin
- avro: rows and changes in Avro, with a schema registry
- meaning: the logical types of numbers and bytes in these two; byte_spans: texts gathered from a larger buffer
"""

from __future__ import annotations

from dbsp.io.formats.arrow_rows import decode_arrow, encode_arrow
from dbsp.io.formats.json_output import encode_json, json_lines
from dbsp.io.formats.json_rows import decode_json
from dbsp.io.formats.json_tables import tables_in

__all__ = ["decode_arrow", "decode_json", "encode_arrow", "encode_json", "json_lines", "tables_in"]
