"""Changes of steps as `coordinator changes` prints them: lines, tables, JSON, CSV, or an Arrow IPC stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.rows_out import ArrowOutput, csv_line, print_rows
from dbsp.coordinator.http.kinds import ARROW

NEXT_HEADER, ANEW_HEADER = "Dbsp-Next-Step", "Dbsp-Anew-Step"


class ChangePrinter(Protocol):
    """Prints the pages of a view's changes."""

    ask: Callable[..., Any] | None
    """The function that requests a page; None requests it as JSON."""

    def begin_anew(self, step: int) -> None:
        """Print that the view began anew, so that all rows so far no longer count."""
        ...

    def show(self, page: Mapping[str, Any]) -> None:
        """Print the changes of a page."""
        ...

    def close(self) -> None:
        """End the output."""
        ...


def printer_of(context: CommandContext, form: str) -> ChangePrinter:
    """Return the printer of a form."""
    if form == "arrow" and not context.as_json:
        return _ArrowChanges(context)
    return _Changes(context, form)


class _Changes:
    """A line for each row, or with --json for each step."""

    ask: Callable[..., Any] | None = None

    def __init__(self, context: CommandContext, form: str) -> None:
        self._as_json, self._form = context.as_json, form
        self._headed = False

    def begin_anew(self, step: int) -> None:
        self._headed = False
        if self._as_json:
            click.echo(json.dumps({"anew": step}))
        else:
            _say_anew(step)

    def show(self, page: Mapping[str, Any]) -> None:
        if self._form == "table" and not self._as_json:
            _print_page(page)
            return
        for change in page["changes"]:
            if self._as_json:
                click.echo(json.dumps(change))
                continue
            for row, weight in zip(change["rows"], change["weights"], strict=True):
                self._row(change["step"], weight, row)

    def close(self) -> None:
        """Do nothing: lines have no end of their own."""

    def _row(self, step: int, weight: int, row: dict[str, Any]) -> None:
        if self._form == "json":
            click.echo(json.dumps({"step": step, "weight": weight, "row": row}, ensure_ascii=False))
        elif self._form == "csv":
            if not self._headed:
                self._headed = True
                click.echo(csv_line(["step", "weight", *row]))
            click.echo(csv_line([step, weight, *row.values()]))
        else:
            click.echo(f"{step}\t{weight:+d}\t{json.dumps(row, ensure_ascii=False)}")


def _print_page(page: Mapping[str, Any]) -> None:
    """Print a page as one table; nothing for a page without rows."""
    rows = [
        [change["step"], f"{weight:+d}", *row.values()]
        for change in page["changes"]
        for row, weight in zip(change["rows"], change["weights"], strict=True)
    ]
    if rows:
        columns = next(list(row) for change in page["changes"] for row in change["rows"])
        print_rows("table", ["step", "weight", *columns], rows)


class _ArrowChanges:
    """The service's own Arrow pages, which have the view's types, as one stream."""

    def __init__(self, context: CommandContext) -> None:
        self._client, self._out = context.client, ArrowOutput()
        self.ask: Callable[..., Any] | None = self._page

    def _page(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        import pyarrow as pa  # noqa: PLC0415 - only this form needs it

        answer = self._client.connection.response(method, path, headers={"Accept": ARROW}, **options)
        table = pa.ipc.open_stream(answer.content).read_all()
        anew = answer.headers.get(ANEW_HEADER)
        found = {"next": int(answer.headers[NEXT_HEADER]), "changes": len(table), "table": table}
        return found if anew is None else found | {"anew": int(anew)}

    def begin_anew(self, step: int) -> None:
        _say_anew(step)

    def show(self, page: Mapping[str, Any]) -> None:
        self._out.write(page["table"])

    def close(self) -> None:
        self._out.close()


def _say_anew(step: int) -> None:
    click.echo(f"the view began anew at step {step}: the rows before this step no longer count", err=True)
