"""`coordinator sql`: statements over the views, typed, piped or given; with history and completion where typed.

Each statement is one request to `/v1/query`, so each reads all views as of one step.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from dbsp.coordinator.client.client import Client
from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.rows_out import OUTPUT, ArrowOutput, print_rows
from dbsp.coordinator.exits import report
from dbsp.errors import ConfigError, DbspError

HISTORY_MAX = 2000
PROMPT, MORE = "sql> ", "...> "
PLAN_COLUMNS = ["QUERY PLAN"]
"""The columns of a plan, whose rows are lines to be printed as they are."""
HELP = r"""a statement ends with ;   \d views   \d NAME columns of a view   \q or Ctrl-D quits   Ctrl-C drops what is typed"""
KEYWORDS = (
    "all and as asc between by case cast coalesce count cross desc distinct else end except exists"
    " extract false from full group having in inner intersect interval is join left like limit max min not"
    " null nulls offset on or order outer over partition right round select sum then true union using"
    " values when where window with"
)


@click.command()
@click.option("-c", "--command", "given", multiple=True, metavar="SQL", help="Run this, and end; may be repeated.")
@OUTPUT
@click.pass_obj
def sql(context: CommandContext, given: tuple[str, ...], form: str) -> None:
    """Run statements over the views: a shell on a terminal; else the statements of standard input, or those of -c."""
    form = "json" if context.as_json and form == "table" else form
    if given:
        _run_all(context.client, (each for text in given for each in statements(text)), form)
    elif not sys.stdin.isatty():
        _run_all(context.client, statements(sys.stdin.read()), form)
    else:
        Shell(context.client, form).loop()


def _run_all(client: Client, texts: Iterable[str], form: str) -> None:
    """Run statements in order; stop at the first one that fails."""
    found = list(texts)
    if not found:
        raise ConfigError("no statement was given", "such as -c 'select * from a_view', or on standard input")
    if form == "arrow" and len(found) > 1:
        raise ConfigError(
            f"an Arrow stream has the rows of one statement: statements={len(found)}", "run them one by one"
        )
    for text in found:
        if text.startswith("\\"):
            describe(client, text, form)
        else:
            answer(client, text, form)


def describe(client: Client, text: str, form: str) -> None:
    """Run a command that begins with a backslash; raise `ConfigError` for one that does not exist."""
    word, _, name = text.partition(" ")
    if word != r"\d":
        raise ConfigError(f"no such command: {word}", HELP)
    if not name.strip():
        print_rows(form, ["view"], [[view] for view in client.views()])
        return
    schema = client.view(name.strip().rstrip(";"), limit=0).table.schema
    print_rows(form, ["column", "type"], [[each.name, str(each.type)] for each in schema if each.name != "weight"])


def answer(client: Client, text: str, form: str) -> int:
    """Run a statement and print its rows; return how many there are."""
    if form == "arrow":
        found = client.query(text)
        with ArrowOutput() as out:
            out.write(found.table)
        return len(found)
    rows: dict[str, Any] = client.ask("POST", "/v1/query", json={"sql": text})
    if form == "table" and rows["columns"] == PLAN_COLUMNS:
        click.echo("\n".join(line for (line,) in rows["rows"]))
        return len(rows["rows"])
    print_rows(form, rows["columns"], rows["rows"])
    count = len(rows["rows"])
    if form == "table":
        click.echo(f"{count:,} {'row' if count == 1 else 'rows'} as of step {rows['step']}")
    return count


def statements(text: str) -> list[str]:
    """Return the statements of a text, without empty ones; quotes and comments may contain semicolons.

    **Example**

    >>> statements("select ';' as a; -- no; more\\n select 2;;")
    ["select ';' as a", '-- no; more\\n select 2']
    """
    return [part.strip() for part, _ in _parts(text) if _says_something(part)]


def ends(text: str) -> bool:
    """Return whether the last statement of a text is ended by a semicolon."""
    parts = list(_parts(text))
    return all(ended or not _says_something(part) for part, ended in parts)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each statement, and whether a semicolon ends it."""
    begin = at = 0
    while at < len(text):
        closing = _CLOSING.get(text[at : at + 2]) or _CLOSING.get(text[at])
        if closing is not None:
            opened = 2 if text[at : at + 2] in _CLOSING else 1
            end = text.find(closing, at + opened)
            at = len(text) if end < 0 else end + len(closing)
        elif text[at] == ";":
            yield text[begin:at], True
            begin = at = at + 1
        else:
            at += 1
    yield text[begin:], False


_CLOSING = {"'": "'", '"': '"', "--": "\n", "/*": "*/", "$$": "$$"}


def _says_something(part: str) -> bool:
    """Return whether a part contains more than spaces and comments."""
    return any(line.strip() and not line.strip().startswith("--") for line in part.splitlines())


class Shell:
    """A loop that reads statements from a terminal; `read` is `input`, and the tests' own."""

    def __init__(self, client: Client, form: str, read: Callable[[str], str] = input) -> None:
        """Keep the client; column names are requested when one is completed."""
        self._client, self._form, self._read = client, form, read
        self._names: list[str] | None = None

    def loop(self) -> None:
        """Read and run statements until the end of the input; print a statement's error and continue."""
        self._client.status()  # a service that does not run is an error now, not at the first statement
        with _history(self.complete):
            click.echo(HELP)
            while True:
                try:
                    text = self._statement()
                except EOFError:
                    click.echo()
                    return
                except KeyboardInterrupt:
                    click.echo()
                    continue
                if text.strip() in (r"\q", "quit", "exit", "quit;", "exit;"):
                    return
                with suppress(KeyboardInterrupt):
                    self.one(text)

    def _statement(self) -> str:
        """Read lines until a statement ends; a command that begins with a backslash is one line."""
        text = self._read(PROMPT)
        while (
            text.strip()
            and not text.lstrip().startswith("\\")
            and text.strip() not in ("quit", "exit")
            and not ends(text)
        ):
            text += "\n" + self._read(MORE)
        return text

    def one(self, text: str) -> None:
        """Run one input: a command, or statements."""
        try:
            if text.strip().startswith("\\"):
                describe(self._client, text.strip(), "table")
                return
            for each in statements(text):
                began = time.monotonic()
                answer(self._client, each, self._form)
                click.echo(f"{(time.monotonic() - began) * 1000:,.0f} ms", err=True)
        except DbspError as error:
            report(error)

    def complete(self, begun: str) -> list[str]:
        """Return the keywords, views and columns that begin with `begun`."""
        if self._names is None:
            self._names = []
            with suppress(DbspError):
                views = self._client.views()
                columns = {name for view in views for name in self._client.view(view, limit=0).table.column_names}
                self._names = sorted({*views, *columns} - {"weight"})
        upper = begun.isupper()
        words = (word.upper() if upper else word for word in KEYWORDS.split())
        return [each for each in (*self._names, *words) if each.startswith(begun)]


class _history:  # noqa: N801 - used as a function that makes a context
    """A context in which typed lines can be edited, are remembered between shells, and are completed.

    It does nothing where there is no readline.
    """

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._complete, self._found = complete, list[str]()

    def __enter__(self) -> None:
        try:
            import readline  # noqa: PLC0415 - not on every system
        except ImportError:
            return
        with suppress(OSError):
            readline.read_history_file(history_file())
        readline.set_history_length(HISTORY_MAX)
        readline.set_completer_delims(" \t\n,;()=<>+-*/%'\"")
        readline.set_completer(self._state)
        readline.parse_and_bind("tab: complete")

    def __exit__(self, *_error: object) -> None:
        try:
            import readline  # noqa: PLC0415 - as above
        except ImportError:
            return
        readline.set_completer(None)
        file = history_file()
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(file)
            file.chmod(0o600)

    def _state(self, begun: str, number: int) -> str | None:
        if number == 0:
            self._found = self._complete(begun)
        return self._found[number] if number < len(self._found) else None


def history_file() -> Path:
    """Return the file of the shell's history, in the user's folder for such state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dbsp" / "sql_history"
