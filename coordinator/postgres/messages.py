"""Decode and encode the messages of PostgreSQL's protocol, version 3, without any I/O.

Invariants
1. Whatever bytes arrive, `decode` and `decode_startup` return a message or raise `ProtocolError`, in time linear in their length.
2. A message is at most `MESSAGE_BYTES_MAX` long, one before the password `STARTUP_BYTES_MAX`.

Source: "Frontend/Backend Protocol" in PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dbsp.coordinator.query.pg_types import PgType

STARTUP_BYTES_MAX = 10_000
MESSAGE_BYTES_MAX = 4 << 20
PROTOCOL_3 = 3 << 16
CANCEL, SSL, GSS = (1234 << 16) + 5678, (1234 << 16) + 5679, (1234 << 16) + 5680
TEXT_FORMAT, BINARY_FORMAT = 0, 1
HEAD = struct.Struct("!cI")
_INT, _SHORT = struct.Struct("!I"), struct.Struct("!H")
_SIGNED = struct.Struct("!i")


class ProtocolError(Exception):
    """The error for bytes that are no message; it ends the connection."""


# --- what clients send ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Startup:
    """The first message of a session: the protocol's version and the options."""

    minor: int
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EncryptionAsked:
    """A request for TLS (`ssl`) or for GSSAPI, before the first message."""

    ssl: bool


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The request, on a connection of its own, to cancel the running statement of session `pid`."""

    pid: int
    secret: int


@dataclass(frozen=True, slots=True)
class Query:
    """The request to run all statements of a text (simple query)."""

    sql: str


@dataclass(frozen=True, slots=True)
class Parse:
    """The request to prepare a statement."""

    name: str
    sql: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """The request to make a portal from a prepared statement and values."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """The request for the columns of a statement (`S`) or a portal (`P`)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """The request for the rows of a portal: all, or up to `rows_max`."""

    portal: str
    rows_max: int


@dataclass(frozen=True, slots=True)
class Close:
    """The request to close a statement (`S`) or a portal (`P`)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Password:
    """A password, or a message of SASL."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Sync:
    """The end of a group of messages; after an error the session ignores messages up to here."""


@dataclass(frozen=True, slots=True)
class Flush:
    """The request to send buffered responses now."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """The end of the session."""


@dataclass(frozen=True, slots=True)
class CopyInput:
    """Data for a COPY FROM, which is not supported."""


First: TypeAlias = Startup | EncryptionAsked | CancelRequest
Message: TypeAlias = (
    Query | Parse | Bind | Describe | Execute | Close | Password | Sync | Flush | Terminate | CopyInput
)  # fmt: skip


def decode_startup(body: bytes) -> First:
    """Decode the first message, without its length."""
    read = _Reader(body)
    code = read.int32()
    if code == CANCEL:
        return CancelRequest(read.int32(), read.int32())
    if code in (SSL, GSS):
        return EncryptionAsked(ssl=code == SSL)
    if code >> 16 != PROTOCOL_3 >> 16:
        raise ProtocolError(f"unsupported protocol: version={code >> 16}.{code & 0xFFFF}")
    found: dict[str, str] = {}
    while name := read.text():
        found[name] = read.text()
    read.end()
    return Startup(code & 0xFFFF, found)


def decode(kind: bytes, body: bytes) -> Message:
    """Decode a message of this kind, without its kind and length."""
    read = _Reader(body)
    found: Message
    match kind:
        case b"Q":
            found = Query(read.text())
        case b"P":
            found = Parse(read.text(), read.text(), tuple(read.int32() for _ in range(read.int16())))
        case b"B":
            found = Bind(read.text(), read.text(), read.shorts(), read.values(), read.shorts())
        case b"D":
            found = Describe(read.which(), read.text())
        case b"E":
            found = Execute(read.text(), read.int32())
        case b"C":
            found = Close(read.which(), read.text())
        case b"p":
            return Password(body)
        case b"S":
            found = Sync()
        case b"H":
            found = Flush()
        case b"X":
            return Terminate()
        case b"d" | b"c" | b"f":
            return CopyInput()
        case _:
            raise ProtocolError(f"not a message: kind={kind!r}")
    read.end()
    return found


class _Reader:
    """A reader of a message's body."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def _take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._body):
            raise ProtocolError(f"a message ends early: bytes={len(self._body)}")
        self._at += count
        return self._body[self._at - count : self._at]

    def int32(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def int16(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def shorts(self) -> tuple[int, ...]:
        return tuple(self.int16() for _ in range(self.int16()))

    def values(self) -> tuple[bytes | None, ...]:
        return tuple(self._value() for _ in range(self.int16()))

    def _value(self) -> bytes | None:
        size = int(_SIGNED.unpack(self._take(4))[0])
        return None if size == -1 else self._take(size)

    def which(self) -> str:
        found = self._take(1)
        if found not in (b"S", b"P"):
            raise ProtocolError(f"neither a statement nor a portal: kind={found!r}")
        return found.decode()

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text has no end")
        found, self._at = self._body[self._at : end], end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8") from None

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError(f"bytes after a message: bytes={len(self._body) - self._at}")


# --- what the service sends -----------------------------------------------------------------------------------------


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Encode a message of this kind."""
    return HEAD.pack(kind, len(body) + 4) + body


def _text(value: str) -> bytes:
    return value.encode(errors="replace").replace(b"\0", b"") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """Encode a message of authentication: 0 success, 10 to 12 SASL."""
    return message(b"R", _INT.pack(code) + data)


def sasl_mechanisms(names: Sequence[str]) -> bytes:
    """Encode the offered mechanisms of SASL."""
    return authentication(10, b"".join(map(_text, names)) + b"\0")


def parameter_status(name: str, value: str) -> bytes:
    """Encode the value of a variable."""
    return message(b"S", _text(name) + _text(value))


def backend_key(pid: int, secret: int) -> bytes:
    """Encode the process id and the secret by which the session's statements can be cancelled."""
    return message(b"K", _INT.pack(pid) + _INT.pack(secret))


def ready(status: str) -> bytes:
    """Encode that the session is ready for a query: `I` idle, `T` in a transaction, `E` in a failed one."""
    return message(b"Z", status.encode())


def complete(tag: str) -> bytes:
    """Encode the tag of a finished statement."""
    return message(b"C", _text(tag))


def negotiate(minor: int, options: Sequence[str]) -> bytes:
    """Encode the newest supported minor version, and the unknown options of the protocol."""
    return message(b"v", _INT.pack(minor) + _INT.pack(len(options)) + b"".join(map(_text, options)))


def error(sqlstate: str, text: str, hint: str | None = None, *, severity: str = "ERROR") -> bytes:
    """Encode an error."""
    return message(b"E", _fields(sqlstate, text, hint, severity))


def notice(sqlstate: str, text: str) -> bytes:
    """Encode a warning."""
    return message(b"N", _fields(sqlstate, text, None, "WARNING"))


def _fields(sqlstate: str, text: str, hint: str | None, severity: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": sqlstate, "M": text, **({"H": hint} if hint else {})}
    return b"".join(key.encode() + _text(value) for key, value in fields.items()) + b"\0"


def parameter_description(types: Sequence[int]) -> bytes:
    """Encode the types of a statement's parameters."""
    return message(b"t", _SHORT.pack(len(types)) + b"".join(map(_INT.pack, types)))


def row_description(columns: Sequence[tuple[str, PgType, int, int]]) -> bytes:
    """Encode the columns of the rows that follow: (name, type, modifier, format)."""
    parts = [_SHORT.pack(len(columns))]
    for name, type_, modifier, format_ in columns:
        parts.append(_text(name) + struct.pack("!IHIhih", 0, 0, type_.oid, type_.size, modifier, format_))
    return message(b"T", b"".join(parts))


def copy_out(columns: int, *, binary: bool) -> bytes:
    """Encode that rows follow as the data of a COPY."""
    return message(b"H", struct.pack("!bH", int(binary), columns) + _SHORT.pack(int(binary)) * columns)


PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = message(b"1"), message(b"2"), message(b"3")
NO_DATA, EMPTY_QUERY, SUSPENDED, COPY_DONE = message(b"n"), message(b"I"), message(b"s"), message(b"c")
