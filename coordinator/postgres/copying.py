"""Parse `COPY … TO STDOUT`: the copied SELECT, and the format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.postgres.messages import HEAD, message
from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, READ_ONLY, SYNTAX, WRITE_HINT, PostgresRefusal
from dbsp.coordinator.postgres.rows import COPY_END, COPY_HEAD, copied_rows
from dbsp.coordinator.postgres.statements import located, unquoted

KINDS = ("text", "csv", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatement:
    """A COPY: the SELECT, the format, the delimiters of text and CSV, and whether a header names the columns."""

    select: str
    kind: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False

    def head(self, names: Sequence[str]) -> bytes:
        """Return the line that names the columns, if there is one."""
        if not self.header:
            return b""
        line = pa.RecordBatch.from_arrays([pa.array([name]) for name in names], names=list(map(str, range(len(names)))))
        return copied_rows(line, self.kind, self.delimiter, self.null)

    def rows(self, batch: pa.RecordBatch, *, first: bool) -> bytes:
        """Return rows as messages; the header of binary data is part of the first row's message, as readers expect."""
        data = copied_rows(batch, self.kind, self.delimiter, self.null)
        if not first or self.kind != "binary":
            return data
        kind, size = HEAD.unpack(data[: HEAD.size])
        return HEAD.pack(kind, size + len(COPY_HEAD)) + COPY_HEAD + data[HEAD.size :]

    def end(self, rows: int) -> bytes:
        """Return the bytes that follow the last row."""
        if self.kind != "binary":
            return b""
        return message(b"d", COPY_END if rows else COPY_HEAD + COPY_END)


def copy_of(sql: str) -> CopyStatement:
    """Read `COPY (SELECT …) TO STDOUT` or `COPY view [(columns)] TO STDOUT`, with options in the new or the old form.

    **Errors** `PostgresRefusal` for a COPY FROM, to a file, and for options that are not supported.
    """
    pieces = located(sql)
    words = [text for text, _, _ in pieces]
    depth, to = 0, None
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in ("TO", "FROM"):
            to = place
            break
    if to is None:
        raise PostgresRefusal(SYNTAX, "this COPY statement cannot be read", "write COPY (SELECT …) TO STDOUT")
    if words[to] == "FROM":
        raise PostgresRefusal(READ_ONLY, "cannot execute COPY FROM in a read-only transaction", WRITE_HINT)
    if words[to + 1 : to + 2] != ["STDOUT"]:
        raise PostgresRefusal(
            NOT_SUPPORTED, "only COPY … TO STDOUT is supported", r"in psql: \copy (SELECT …) TO 'file'"
        )
    first, last = pieces[1][1], pieces[to - 1][2]
    source = sql[first:last]
    if words[1] == "(":
        select = source[1:-1]
    elif words[to - 1] == ")":
        view, _, columns = source.partition("(")
        select = f"SELECT {columns[:-1]} FROM {view}"  # noqa: S608 - the checker of queries reads it
    else:
        select = f"SELECT * FROM {source}"  # noqa: S608 - the checker of queries reads it
    return _with_options(select, [word for word in words[to + 2 :] if word not in ("(", ")", ",", "WITH", "AS")])


def _with_options(select: str, words: Sequence[str]) -> CopyStatement:
    kind, found = "text", dict[str, str]()
    rest = list(words)
    while rest:
        name = rest.pop(0)
        match name:
            case "CSV" | "BINARY" | "TEXT":
                kind = name.lower()
            case "HEADER":
                given = rest.pop(0) if rest and rest[0] in ("TRUE", "FALSE", "ON", "OFF", "1", "0") else "TRUE"
                found["header"] = given
            case "FORMAT" if rest:
                kind = unquoted(rest.pop(0)).lower()
            case "DELIMITER" | "NULL" if rest:
                found[name.lower()] = unquoted(rest.pop(0).removeprefix("E").removeprefix("e")).replace("\\t", "\t")
            case "ENCODING" | "QUOTE" | "ESCAPE" if rest:
                if unquoted(rest.pop(0)).lower() not in ("utf8", "utf-8", '"'):
                    raise PostgresRefusal(NOT_SUPPORTED, f"COPY with another {name} is not supported")
            case _:
                raise PostgresRefusal(NOT_SUPPORTED, f"an option of COPY that is not supported: {name[:40]}")
    if kind not in KINDS:
        raise PostgresRefusal("22023", f'COPY format "{kind[:40]}" not recognized', f"known: {', '.join(KINDS)}")
    delimiter = found.get("delimiter", "," if kind == "csv" else "\t")
    if len(delimiter.encode()) != 1 or delimiter in '\n\r"\\':
        raise PostgresRefusal("22023", "COPY delimiter must be a single one-byte character")
    null = found.get("null", "" if kind == "csv" else "\\N")
    header = found.get("header", "FALSE") in ("TRUE", "ON", "1")
    if header and kind == "binary":
        raise PostgresRefusal(NOT_SUPPORTED, "cannot specify HEADER in BINARY mode")
    return CopyStatement(select=select, kind=kind, delimiter=delimiter, null=null, header=header)
