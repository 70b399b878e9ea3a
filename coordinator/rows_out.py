"""Rows as a command prints them: a table for people, JSON lines, CSV, or an Arrow IPC stream.

A value in JSON and CSV is as in the service's own responses: decimals and times are texts. In CSV a null is empty, and an
empty text is `""`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbsp.errors import ConfigError

FORMS = ("table", "json", "csv", "arrow")
PIPE_WIDTH = 10_000
OUTPUT = click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="How rows are printed; json: an object a line.",
)  # fmt: skip
TEXT_OUTPUT = click.option(
    "-o", "--output", "form", type=click.Choice(FORMS[:-1]), default="table", show_default=True,
    help="How rows are printed; json: an object a line.",
)  # fmt: skip


def print_table(table: Table) -> None:
    """Print a table; if the output is no terminal, its lines are not cut to a screen's width."""
    console = Console()
    (console if console.is_terminal else Console(width=PIPE_WIDTH)).print(table)


def print_rows(form: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows of JSON values in any form but Arrow's."""
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
            click.echo(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False))


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


def print_arrow(stream: bytes, to: IO[bytes] | None = None) -> None:
    """Write an Arrow IPC stream to standard output; refuse to write bytes to a screen."""
    out = to or sys.stdout.buffer
    if out.isatty():
        raise ConfigError(
            "an Arrow stream is no text for a screen", "send it to a file or a pipe: … -o arrow > rows.arrow"
        )
    out.write(stream)
    out.flush()
