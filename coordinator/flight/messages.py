"""The Protobuf messages of Flight SQL, defined by their fields here, because no package has generated ones.

A client packs a message into an `Any`, whose type URL names it. Only messages that the service reads or writes are here.

**Source** `format/FlightSql.proto` of Apache Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

PACKAGE = "arrow.flight.protocol.sql"
URL = f"type.googleapis.com/{PACKAGE}."
_FIELDS: Mapping[str, str] = {
    "CommandGetSqlInfo": "repeated uint32 info",
    "CommandGetXdbcTypeInfo": "optional int32 data_type",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "optional string catalog, optional string db_schema_filter_pattern",
    "CommandGetTables": "optional string catalog, optional string db_schema_filter_pattern, "
    "optional string table_name_filter_pattern, repeated string table_types, single bool include_schema",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": "optional string catalog, optional string db_schema, single string table",
    "CommandGetExportedKeys": "optional string catalog, optional string db_schema, single string table",
    "CommandGetImportedKeys": "optional string catalog, optional string db_schema, single string table",
    "CommandStatementQuery": "single string query, optional bytes transaction_id",
    "CommandPreparedStatementQuery": "single bytes prepared_statement_handle",
    "CommandStatementUpdate": "single string query, optional bytes transaction_id",
    "CommandPreparedStatementUpdate": "single bytes prepared_statement_handle",
    "TicketStatementQuery": "single bytes statement_handle",
    "ActionCreatePreparedStatementRequest": "single string query, optional bytes transaction_id",
    "ActionCreatePreparedStatementResult": "single bytes prepared_statement_handle, single bytes dataset_schema, "
    "single bytes parameter_schema",
    "ActionClosePreparedStatementRequest": "single bytes prepared_statement_handle",
    "DoPutPreparedStatementResult": "optional bytes prepared_statement_handle",
}
"""The fields of each message by number, from 1 on: label, type and name."""


def message(name: str, **fields: Any) -> Any:
    """Return a message with these fields."""
    return _classes()[name](**fields)


def packed(found: Any) -> bytes:
    """Return a message as the bytes of an `Any`."""
    from google.protobuf.any_pb2 import Any as Outer  # noqa: PLC0415 (an extra)

    return bytes(Outer(type_url=URL + found.DESCRIPTOR.name, value=found.SerializeToString()).SerializeToString())


def unpacked(data: bytes) -> tuple[str, Any] | None:
    """Return the name and the fields of a packed message; None for bytes that are no known message of Flight SQL."""
    from google.protobuf.any_pb2 import Any as Outer  # noqa: PLC0415 (an extra)
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (an extra)

    try:
        outer = Outer.FromString(data)
        kind = _classes().get(outer.type_url.removeprefix(URL))
        if kind is None or not outer.type_url.startswith(URL):
            return None
        return kind.DESCRIPTOR.name, kind.FromString(outer.value)
    except DecodeError:
        return None


def given(found: Any, field: str) -> str | None:
    """Return an optional text; None if the client left it out."""
    return getattr(found, field) if found.HasField(field) else None


@cache
def _classes() -> Mapping[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 (an extra)

    field_kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="dbsp/flight_sql.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        made = file.message_type.add(name=name)
        for number, text in enumerate(filter(None, fields.split(", ")), 1):
            label, type_, field = text.split()
            added = made.field.add(name=field, number=number, type=getattr(field_kinds, f"TYPE_{type_.upper()}"))
            added.label = field_kinds.LABEL_REPEATED if label == "repeated" else field_kinds.LABEL_OPTIONAL
            if label == "optional":  # proto3 notes whether it was given by a group of its own
                added.proto3_optional, added.oneof_index = True, len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}
