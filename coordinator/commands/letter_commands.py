"""`coordinator dead-letters`: list, follow, export and replay the rows that could not be used."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TextIO

import click

from dbsp.coordinator.commands.changes_out import printer_of
from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.rows_out import LINES, LINES_OUTPUT, csv_line, print_rows
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.serving.letter_codes import CODES, COLUMNS

TEXT_CHARS_SHOWN = 200
EXPORTED = ("json", "csv")


def _filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose letters."""
    options = (
        click.option("--table", help="Only letters of this table."),
        click.option("--code", type=click.Choice(CODES), help="Only letters of this kind."),
        click.option("--reason", help="Only letters whose reason contains this text."),
        click.option("--from", "first", metavar="POSITION", help='From this step ("7") or letter ("7-2") on.'),
        click.option("--to", "last", metavar="POSITION", help="Up to this step or letter."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group("dead-letters")
def dead_letters() -> None:
    """List, follow, export and replay the rows that could not be used."""


@dead_letters.command("list")
@_filtered
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many letters, the newest first."
)
@click.option("--all", "all_", is_flag=True, help="Also the letters whose rows were replayed.")
@LINES_OUTPUT
@click.pass_obj
def list_(context: CommandContext, /, limit: int, form: str, *, all_: bool, **wanted: Any) -> None:
    """Show the newest letters that were not replayed: position, kind, table, partition and offset, reason, text."""
    which = {} if all_ else {"replayed": False}
    params = _given(wanted) | {"limit": limit, "newest": True} | which
    found = context.client.ask("GET", "/v1/dead-letters", params=params)
    if form != LINES and not context.as_json:
        print_rows(form, COLUMNS, (_values(letter) for letter in found["letters"]))
        return
    lines = [line for letter in found["letters"] for line in _lines(letter)]
    shown, total = len(found["letters"]), found["total"]
    lines.append(f"{shown:,} of {total:,} dead letters, the newest first, as of step {found['step']}")
    if found["hidden"]:
        lines.append(f"{found['hidden']:,} further letters were replayed: --all shows them")
    if found["kept_from"]:
        lines.append(f"letters of steps below {found['kept_from']} are not kept any more ([letters])")
    if found["left_out"]:
        lines.append(f"{found['left_out']:,} further letters were too many to keep")
    context.show(found, "\n".join(lines))


class _Form(click.ParamType[str]):
    """The form of exported letters; `-o` was the file before, so another text is refused with the option of the file."""

    name = "json|csv"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the form."""
        if value not in EXPORTED:
            self.fail(f"{value!r} is none of {', '.join(EXPORTED)}; the file is given by --file {value}", param, ctx)
        return value


@dead_letters.command()
@_filtered
@click.option(
    "-o", "--output", "form", type=_Form(), default="json", show_default=True,
    help="How letters are written; json: an object a line.",
)  # fmt: skip
@click.option(
    "--file", type=click.File("w", encoding="utf-8"), default="-", help="Write to this file, not to standard output."
)
@click.option("--format", "former", type=click.Choice(["jsonl", "csv"]), hidden=True)
@click.pass_obj
def export(context: CommandContext, /, form: str, file: TextIO, former: str | None, **wanted: Any) -> None:
    """Write all letters, in order, as a JSON object a line or as CSV."""
    if former is not None:
        form = "csv" if former == "csv" else "json"
        click.echo(f"--format is deprecated: give -o {form}", err=True)
    count = _write(context.client.dead_letters(**_given(wanted)), form, file)
    click.echo(f"{count:,} dead letters exported", err=True)


def _write(letters: Iterable[dict[str, Any]], form: str, output: TextIO) -> int:
    """Write letters and return how many.

    The first letter is fetched before the first write. So nothing is written if the service does not respond.
    """
    rows, count = iter(letters), 0
    first = next(rows, None)
    if form == "csv":
        output.write(csv_line(COLUMNS) + "\n")
    for letter in chain(() if first is None else (first,), rows):
        count += 1
        line = csv_line(_values(letter)) if form == "csv" else json.dumps(letter, ensure_ascii=False)
        output.write(line + "\n")
    output.flush()
    return count


def _values(letter: dict[str, Any]) -> list[Any]:
    """Return the columns of a letter; where it was replayed as "partition:offset", or as "step 7"."""
    replayed = letter["replayed"]
    place = None if replayed is None else _replayed(replayed, "{partition}:{offset}", "step {step}")
    return [place if name == "replayed" else letter[name] for name in COLUMNS]


@dead_letters.command()
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first step to show.")
@LINES_OUTPUT
@click.pass_obj
def follow(context: CommandContext, first: int, form: str) -> None:
    """Show the letters that every step adds and removes, until interrupted."""
    shown = None if form == LINES else printer_of(context, form)
    ask = None if shown is None else shown.ask
    try:
        for found in context.client.pages("dead_letters", first=first, follow=True, waiting=_say_waiting, ask=ask):
            first = found["next"]
            if shown is not None:
                shown.show(found)
                continue
            for change in found["changes"]:
                _show_change(context, change)
    finally:
        if shown is not None:
            shown.close()
        click.echo(f"all before step {first} was shown; go on with --first {first}", err=True)


def _say_waiting(error: Exception) -> None:
    click.echo(f"waiting for the service: {error}", err=True)


def _show_change(context: CommandContext, change: dict[str, Any]) -> None:
    """Print a line for each letter, or one for the step as JSON."""
    if context.as_json:
        click.echo(json.dumps(change))
        return
    for row, weight in zip(change["rows"], change["weights"], strict=True):
        click.echo(f"{change['step']}\t{weight:+d}\t{_place(row)}: {row['reason']}: {_short(row['text'])}")


@dead_letters.command()
@_filtered
@click.option("--dry-run", is_flag=True, help="Only say which letters would be replayed.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Wait until the views have the rows, for at most so many seconds.",
)  # fmt: skip
@click.pass_obj
def replay(context: CommandContext, /, dry_run: bool, wait_s: float | None, **wanted: Any) -> None:
    """Use the rows of letters as new input, each letter at most once, after the table or the settings were fixed.

    A row that still cannot be read is named and not used, and its letter stays. Letters that cannot be replayed are counted
    by the reason.
    """
    found = context.client.replay_dead_letters(**_given(wanted), dry_run=dry_run, wait_s=wait_s)
    context.show(found, "\n".join(_replay_lines(found)))
    if found.get("processed") is False:
        sys.exit(exit_code("unavailable"))


def _replay_lines(found: dict[str, Any]) -> list[str]:
    would = "would be" if found["dry_run"] else "were"
    lines = [f"of {found['matched']:,} dead letters, {found['replayed']:,} {would} replayed"]
    lines += [
        f"  {place['table']} partition {place['partition']}, offsets {place['first']} to {place['last'] - 1}"
        for place in found["positions"]
    ]
    lines += [f"  in step {step}" for step in found["steps"]]
    if found["failed_again"]:
        lines.append(f"{found['failed_again']:,} still cannot be read; nothing is pushed, and their letters stay:")
        lines += [f"  {each['position']}: {each['reason']}" for each in found["again"]]
    if found["replayed_before"]:
        lines.append(f"{found['replayed_before']:,} were replayed before")
    for reason, count in found["not_replayable"].items():
        lines.append(f"{count:,} cannot be replayed: {reason}")
    if "processed" in found and (found["positions"] or found["steps"]):
        lines.append(
            "processed: the views have them" if found["processed"] else f"not processed yet: {found['waiting']}"
        )
    return lines


def _given(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in wanted.items() if value is not None}


def _lines(letter: dict[str, Any]) -> list[str]:
    """Return a letter as two lines: where and why, and its text."""
    place = _place(letter)
    if letter["row_offset"] is None and letter["table_name"] is not None:
        place += f" at {letter['node']}"
    times = f" ({letter['count']} times)" if letter["count"] > 1 else ""
    replayed = letter["replayed"]
    done = "" if replayed is None else _replayed(replayed, " (replayed: offset {offset})", " (replayed in step {step})")
    deleted = " (a delete)" if letter["is_delete"] else ""
    unplaced = f"; no offset: {letter['unplaced']}" if letter["unplaced"] else ""
    head = f"{letter['position']}  {letter['code']}  {place}: {letter['reason']}{times}{deleted}{done}{unplaced}"
    return [head, f"    {_short(letter['text'])}"]


def _replayed(found: dict[str, int], pushed: str, taken: str) -> str:
    """Return where a letter was replayed, in the form for rows that were pushed, or for those that a step took."""
    return (taken if "step" in found else pushed).format_map(found)


def _place(letter: dict[str, Any]) -> str:
    """Return the table of a letter with its place there, or its node."""
    place = str(letter["table_name"] or letter["node"])
    if letter["row_offset"] is not None:
        place += f" partition {letter['partition']} offset {letter['row_offset']}"
    return place


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARS_SHOWN else f"{line[:TEXT_CHARS_SHOWN]}…"


def reason_line(letter: dict[str, Any]) -> str:
    """Return one of the newest letters as a line of the status."""
    return f"dead letter {letter['position']}: {_place(letter)}: {letter['reason']}"
