"""`coordinator push` and `coordinator transaction`: rows from a file or standard input into a running pipeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import click

from dbsp.coordinator.client import refuse_half
from dbsp.coordinator.command_context import CommandContext
from dbsp.coordinator.completing import TABLES
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.http.kinds import CSV, TSV

SHOWN_BAD = 10
"""How many bad rows are shown; the others are among the dead letters."""
KINDS = {"csv": CSV, "tsv": TSV}
"""The content types of texts that cannot be told apart by their content."""
PRODUCER = click.option("--producer", help="Your id, so that a repeated push is recognised.")
SEQUENCE = click.option(
    "--sequence", type=click.IntRange(min=0), help="The number of this push; greater for each new push."
)
WAIT = click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Wait until the views have the rows, for at most so many seconds.",
)  # fmt: skip


@click.command()
@click.argument("table", shell_complete=TABLES)
@click.argument("file", type=click.File("rb"), default="-")
@PRODUCER
@SEQUENCE
@WAIT
@click.option(
    "--format", "form", type=click.Choice(["json", "csv", "tsv", "arrow", "parquet"]),
    help="The format of standard input, or of a file whose name does not say it. JSON, Arrow and Parquet are recognized.",
)  # fmt: skip
@click.option(
    "--strict", is_flag=True, help="Exit with code 3 if a row is bad. The good ones are taken, unless most are bad."
)
@click.pass_obj
def push(
    context: CommandContext,
    table: str,
    file: Any,
    *,
    producer: str | None,
    sequence: int | None,
    wait_s: float | None,
    form: str | None,
    strict: bool,
) -> None:
    """Push rows (JSON, CSV or TSV with a header, Arrow IPC, Parquet) from FILE or standard input to TABLE."""
    refuse_half(producer, sequence, "--producer and --sequence")
    kind = KINDS.get(form or PurePath(str(getattr(file, "name", ""))).suffix.lower().removeprefix("."))
    found = context.client.push(
        table, file.read(), producer=producer, sequence=sequence, wait_s=wait_s, content_type=kind
    ).answer
    text = durable(table, found["first"], found["last"], repeated=found["repeated"])
    if found["bad_rows"]:
        text += f"; {found['bad_rows']} of them are bad, the first: {found['bad'][0]['reason']}"
    context.show(found, text + _taken(found))
    _end(found, strict=strict)


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@PRODUCER
@SEQUENCE
@WAIT
@click.pass_obj
def transaction(
    context: CommandContext, file: Any, producer: str | None, sequence: int | None, wait_s: float | None
) -> None:
    """Push rows of several tables, {"orders": [...], "names": [...]}, which one step takes together: all or none."""
    refuse_half(producer, sequence, "--producer and --sequence")
    found = context.client.transaction(file.read(), producer=producer, sequence=sequence, wait_s=wait_s).answer
    lines = [durable(each["table"], each["first"], each["last"], repeated=each["repeated"]) for each in found["tables"]]
    context.show(found, ("\n".join(lines) or "no rows were given; nothing was added") + _taken(found))
    _end(found)


def _taken(found: Mapping[str, Any]) -> str:
    """Describe whether a step has taken the rows of a push that waited; empty for a push that did not wait."""
    if "processed" not in found:
        return ""
    if found["processed"]:
        return "\nprocessed: the views have them"
    return f"\nnot processed yet: {found['waiting']}"


def _end(found: Mapping[str, Any], *, strict: bool = False) -> None:
    """Exit with a code for scripts if rows are bad and none may be, or if no step has taken the rows in time."""
    if strict and found["bad_rows"]:
        for row in found["bad"][:SHOWN_BAD]:
            click.echo(f"bad row: {json.dumps(row, ensure_ascii=False)}", err=True)
        sys.exit(exit_code("data"))
    if found.get("processed") is False:
        sys.exit(exit_code("unavailable"))


def durable(table: str, first: int, end: int, *, repeated: bool) -> str:
    """Return which rows are durable; `first` is the first offset, `end` the offset after the last row.

    The service forgets the offsets of old pushes. A repeat of such a push gets two equal offsets, as an empty push does.
    """
    before = "pushed before, nothing was added"
    if first == end:
        return f"{before} to {table}" if repeated else f"no rows were given; nothing was added to {table}"
    return f"rows {first:,} to {end - 1:,} of {table} are durable" + (f": they were {before}" if repeated else "")
