"""Convert values of parameters from the protocol's text or binary format to the text of a literal."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

from dbsp.coordinator.postgres.messages import BINARY_FORMAT
from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.query import pg_types as t
from dbsp.coordinator.query.pg_types import BY_OID, PgType

_DAY_0, _TIME_0 = date(2000, 1, 1), datetime(2000, 1, 1)
_NEGATIVE, _NAN = 0x4000, 0xC000
_LIST_HEAD = 12


def type_name(oid: int) -> str | None:
    """Return the name of a parameter's type; None if the client did not declare it."""
    if oid in (0, t.UNKNOWN.oid):
        return None
    found = BY_OID.get(oid)
    if found is None:
        raise PostgresRefusal("42704", f"a parameter of an unknown type: oid={oid}", "send it as text, and cast it")
    return f"{found.name.removeprefix('_')}[]" if found.category == "A" else found.name


def oid_of(name: str) -> int:
    """Return the number of a type by its name; that of text for an unknown one."""
    found = t.OIDS.get(name.partition("(")[0].strip())
    return found if isinstance(found, int) and found in BY_OID else t.TEXT.oid


def text_of(value: bytes | None, oid: int, form: int) -> str | None:
    """Return a value as text.

    **Errors** `PostgresRefusal` for bytes that are no value of the type.
    """
    if value is None:
        return None
    try:
        if form != BINARY_FORMAT:
            text = value.decode()
            return _escaped(bytes.fromhex(text[2:])) if oid == t.BYTEA.oid and text.startswith("\\x") else text
        return _binary(value, BY_OID.get(oid, t.TEXT))
    except (ValueError, struct.error, OverflowError, ArithmeticError, IndexError) as error:
        raise PostgresRefusal("22P03", f"not a value of its type: oid={oid} error={type(error).__name__}") from None


def _binary(value: bytes, type_: PgType) -> str:
    if type_.category == "A":
        return _list(value)
    read = _BINARY.get(type_)
    return read(value) if read is not None else value.decode()


def _number(code: str) -> Callable[[bytes], str]:
    return lambda value: repr(struct.unpack(code, value)[0])


def _numeric(value: bytes) -> str:
    count, weight, sign, scale = struct.unpack("!HhHH", value[:8])
    if sign == _NAN:
        return "NaN"
    groups = struct.unpack(f"!{count}H", value[8:])
    whole = sum(group * Decimal(10_000) ** (weight - place) for place, group in enumerate(groups))
    if abs(weight) > 1000:  # noqa: PLR2004 - no column has so many digits
        raise ValueError("too large")
    return f"{'-' if sign == _NEGATIVE else ''}{Decimal(whole):.{scale}f}"


def _timestamp(value: bytes) -> str:
    return (_TIME_0 + timedelta(microseconds=int.from_bytes(value, "big", signed=True))).isoformat(" ")


def _time(value: bytes) -> str:
    us = int.from_bytes(value, "big")
    return time(us // 3_600_000_000, us // 60_000_000 % 60, us // 1_000_000 % 60, us % 1_000_000).isoformat()


def _interval(value: bytes) -> str:
    us, days, months = struct.unpack("!qii", value)
    return f"{months} months {days} days {us} microseconds"


def _escaped(value: bytes) -> str:
    return "".join(f"\\x{each:02X}" for each in value)


def _list(value: bytes) -> str:
    dimensions, _, oid = struct.unpack("!iiI", value[:_LIST_HEAD])
    if dimensions == 0:
        return "{}"
    if dimensions != 1:
        raise PostgresRefusal("0A000", "a list of lists as a parameter", "send it as text")
    (count,) = struct.unpack("!i", value[12:16])
    at, parts = 20, []
    for _ in range(min(count, len(value))):
        (size,) = struct.unpack("!i", value[at : at + 4])
        at += 4
        if size < 0:
            parts.append("NULL")
            continue
        text = _binary(value[at : at + size], BY_OID.get(oid, t.TEXT))
        parts.append('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
        at += size
    return "{" + ",".join(parts) + "}"


_BINARY: Mapping[PgType, Callable[[bytes], str]] = {
    t.BOOL: lambda value: "true" if value != b"\0" else "false",
    t.INT2: _number("!h"), t.INT4: _number("!i"), t.INT8: _number("!q"), t.OID: _number("!I"),
    t.FLOAT4: _number("!f"), t.FLOAT8: _number("!d"), t.NUMERIC: _numeric, t.BYTEA: _escaped,
    t.DATE: lambda value: (_DAY_0 + timedelta(days=int.from_bytes(value, "big", signed=True))).isoformat(),
    t.TIME: _time, t.TIMESTAMP: _timestamp, t.TIMESTAMPTZ: lambda value: _timestamp(value) + "+00", t.INTERVAL: _interval,
    t.UUID: lambda value: str(uuid.UUID(bytes=value)), t.JSONB: lambda value: value[1:].decode(),
}  # fmt: skip
