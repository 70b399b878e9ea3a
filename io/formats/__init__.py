"""Rows as bytes: JSON and Arrow, in (`decode_json`, `decode_arrow`) and out (`encode_json`, `encode_arrow`); others' topics, in.

A decoder never raises for what a sender wrote: rows it cannot use come back as bad rows with their number and reason, the same
ones however the bytes are cut into calls.

json_rows, json_tables, json_scan, wire, json_output, arrow_rows, csv_rows    the forms that pushes, files and topics share
pieces       batches in runs of rows, each small enough to become texts
runs         messages together, where all are good; else each half of them
debezium     changes of a database in JSON, in two shapes; envelopes: what a change does to its table
lines        where the lines of a file begin
avro         rows and changes in Avro, with a schema registry
meaning      what numbers and bytes stand for in these two; byte_spans: texts gathered from a larger buffer
"""

from __future__ import annotations

from dbsp.io.formats.arrow_rows import decode_arrow, encode_arrow
from dbsp.io.formats.json_output import encode_json, json_lines
from dbsp.io.formats.json_rows import decode_json
from dbsp.io.formats.json_tables import tables_in

__all__ = ["decode_arrow", "decode_json", "encode_arrow", "encode_json", "json_lines", "tables_in"]
