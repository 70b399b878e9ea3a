"""`coordinator push` and `coordinator transaction`: rows from a file or standard input into a running pipeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from dbsp.coordinator.client.bodies import Pushed
from dbsp.coordinator.client.client import refuse_half
from dbsp.coordinator.client.file_parts import PART_BYTES, FilePart, text_kind
from dbsp.coordinator.client.file_push import FileOptions, PushedFile, push_file
from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.completing import TABLES
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.http.kinds import CSV, TSV

SHOWN_BAD = 10
"""The most bad rows that are shown; all are among the dead letters."""
KINDS = {"csv": CSV, "tsv": TSV}
"""The content types of CSV and TSV by option: their content does not tell the two apart."""
PLACE = ("partition", "first", "last", "repeated", "bad_rows")
"""The fields of each part in the JSON result of a file that was pushed in parts."""
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
    "--part-mb", type=click.IntRange(1, 1024), default=PART_BYTES >> 20, show_default=True,
    help="A larger file is pushed in parts of so many MiB, unpacked.",
)  # fmt: skip
@click.option(
    "--strict", is_flag=True,
    help="Exit with code 3 if a row is bad. The good ones are taken, unless most are bad; no further part is pushed.",
)  # fmt: skip
@click.pass_obj
def push(  # noqa: PLR0913 - one for each option
    context: CommandContext,
    table: str,
    file: Any,
    *,
    part_mb: int,
    producer: str | None,
    sequence: int | None,
    wait_s: float | None,
    form: str | None,
    strict: bool,
) -> None:
    """Push rows (JSON, CSV or TSV with a header, Arrow IPC, Parquet) from FILE or standard input to TABLE.

    Packed files (gzip, zstd, bz2, xz, lz4) are unpacked. A large file is pushed in parts, each durable when the next is sent.
    """
    refuse_half(producer, sequence, "--producer and --sequence")

    def began(producer: str, sequence: int) -> None:
        size = "" if part_mb << 20 == PART_BYTES else f" --part-mb {part_mb}"
        again = f"--producer {producer} --sequence {sequence}{size}"
        click.echo(
            f"pushed in parts; after an interruption repeat the command with {again}: no row is added twice", err=True
        )

    kind = KINDS.get(form or "") or text_kind(str(getattr(file, "name", "")))
    found = push_file(
        context.client.push, table, file,
        FileOptions(
            content_type=kind, producer=producer, sequence=sequence, wait_s=wait_s, strict=strict, part_bytes=part_mb << 20,
            began=began, waiting=_say_waiting, after=None if context.as_json else partial(_say_part, table),
        ),
    )  # fmt: skip
    if len(found.parts) == 1:
        answer = found.parts[0].answer
        text = durable(table, answer["first"], answer["last"], repeated=answer["repeated"])
    else:
        answer = _of_parts(found)
        text = _parts_text(found)
    if found.bad_rows:
        text += f"; bad rows: {found.bad_rows}, the first: {found.bad[0]['reason']}"
    context.show(answer, text + _taken(answer))
    if found.stopped:
        click.echo(f"the parts after part {len(found.parts)} were not pushed, as it has bad rows (--strict)", err=True)
    _end(answer, strict=strict)


def _say_waiting(part: FilePart, error: Exception) -> None:
    click.echo(f"part {part.number + 1} waits: {error}", err=True)


def _say_part(table: str, part: FilePart, pushed: Pushed) -> None:
    """Print the result of a part, for people who wait for the others."""
    bad = f"; bad rows: {pushed.bad_rows}" if pushed.bad_rows else ""
    text = durable(table, pushed.first, pushed.end, repeated=pushed.repeated)
    click.echo(f"part {part.number + 1}, from {part.begins}: {text}{bad}", err=True)


def _of_parts(found: PushedFile) -> dict[str, Any]:
    """Return the result of a file in parts as the answer of one push, with the place of each part."""
    places = [{name: part.answer[name] for name in PLACE} for part in found.parts]
    known = [place for place in places if place["first"] < place["last"]]
    answer = {
        "table": found.table, "partition": places[-1]["partition"], "first": known[0]["first"] if known else 0,
        "last": known[-1]["last"] if known else 0, "repeated": found.repeated == len(places), "bad_rows": found.bad_rows,
        "bad": found.bad, "rows": found.rows, "parts": places, "producer": found.producer, "sequence": found.sequence,
        "stopped": found.stopped,
    }  # fmt: skip
    return answer | {name: value for name, value in found.parts[-1].answer.items() if name in {"processed", "waiting"}}


def _parts_text(found: PushedFile) -> str:
    """Return the result of a file in parts for people."""
    count = len(found.parts)
    before = f"; {found.repeated} of the parts were pushed before, and added nothing" if found.repeated else ""
    next_one = (found.sequence or 0) + count
    rows = "the rows" if any(part.forgotten for part in found.parts) else f"{found.rows} rows"
    text = f"{rows} of {found.table} are durable, in {count} parts{before}"
    return f"{text}; the next number of {found.producer} is {next_one}"


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
    return f"rows {first} to {end - 1} of {table} are durable" + (f": they were {before}" if repeated else "")
