"""Rows as bytes: JSON and Arrow, in (`decode_json`, `decode_arrow`) and out (`encode_json`, `encode_arrow`).

A decoder never raises for what a sender wrote: rows it cannot use come back as bad rows with their number and reason, the same
ones however the bytes are cut into calls.
"""

from __future__ import annotations

from dbsp.io.formats.arrow_rows import decode_arrow, encode_arrow
from dbsp.io.formats.json_output import encode_json, json_lines
from dbsp.io.formats.json_rows import decode_json

MESSAGE_FORMATS = ("json", "arrow", "debezium", "avro", "debezium-avro")
"""How messages of Kafka may be written (`dbsp.io.kafka.messages`)."""

__all__ = ["MESSAGE_FORMATS", "decode_arrow", "decode_json", "encode_arrow", "encode_json", "json_lines"]
