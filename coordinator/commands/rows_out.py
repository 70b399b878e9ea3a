"""Rows as a command prints them: a table for people, JSON lines, CSV, or an Arrow IPC stream.

A value in JSON and CSV is as in the service's own responses: decimals and times are texts. In CSV a null is empty, and an
empty text is `""`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbsp.coordinator.client.bodies import unlike
from dbsp.errors import ConfigError

FORMS = ("table", "json", "csv", "arrow")
PIPE_WIDTH = 10_000
OUTPUT = click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="How rows are printed; json: an object a line.",
)  # fmt: skip

LINES = "lines"
LINES_OUTPUT = click.option(
    "-o", "--output", "form", type=click.Choice((LINES, *FORMS)), default=LINES, show_default=True,
    help="How rows are printed; lines: a line or two for each; json: an object a line.",
)  # fmt: skip


def print_table(table: Table) -> None:
    """Print a table; if the output is no terminal, its lines are not cut to a screen's width."""
    console = Console()
    (console if console.is_terminal else Console(width=PIPE_WIDTH)).print(table)


def print_rows(form: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows of JSON values; in Arrow, a column whose values are all null has the type null."""
    if form == "arrow":
        import pyarrow as pa  # noqa: PLC0415 - only this form needs it

        values = list(rows)
        with ArrowOutput() as out:
            out.write(pa.table({name: pa.array([row[at] for row in values]) for at, name in enumerate(columns)}))
        return
    if form == "table":
        table = Table()
        for name in columns:
            table.add_column(Text(name))
        for row in rows:
            table.add_row(*(Text("null", "dim") if value is None else Text(str(value)) for value in row))
        print_table(table)
        return
    if form == "csv":
        click.echo(csv_line(columns))
    for row in rows:
        if form == "csv":
            click.echo(csv_line(row))
        else:
            click.echo(json.dumps(dict(zip(unlike(columns), row, strict=True)), ensure_ascii=False))


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV (RFC 4180, but with one end of line); null is empty, an empty text is quoted.

    **Example**

    >>> csv_line(["a", None, "", 'say "hi", twice', 1.5, True, [1, None]])
    'a,,"","say ""hi"", twice",1.5,true,"[1, null]"'
    """
    return ",".join(map(_field, values))


def _field(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text and not any(sign in text for sign in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


class ArrowOutput:
    """Tables as one Arrow IPC stream on standard output; bytes are not written to a screen."""

    def __init__(self) -> None:
        """Write nothing yet. **Errors** `ConfigError` if the output is a screen."""
        self._out = sys.stdout.buffer
        if self._out.isatty():
            raise ConfigError(
                "an Arrow stream cannot be printed on a terminal",
                "send it to a file or a pipe: … -o arrow > rows.arrow",
            )
        self._writer: Any = None
        self._schema: Any = None

    def write(self, table: Any) -> None:
        """Write the rows of a `pyarrow.Table`. **Errors** `ConfigError` if its columns are not those of the rows before."""
        import pyarrow as pa  # noqa: PLC0415 - only this form needs it

        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._out, table.schema)
        elif table.schema != self._schema:
            raise ConfigError(
                "the columns have changed, and an Arrow stream has the same columns to its end", "start another one"
            )
        self._schema = table.schema
        self._writer.write_table(table)
        self._out.flush()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End the stream."""
        self.close()

    def close(self) -> None:
        """End the stream, if it began."""
        if self._writer is not None:
            self._writer.close()
            self._out.flush()
