"""`coordinator backup`, `backups` and `restore`. The first asks the service, or does it itself where none runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from dbsp.coordinator.client import looking
from dbsp.coordinator.command_context import CommandContext
from dbsp.coordinator.config import load_config
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.http.identity import OTHER
from dbsp.coordinator.rows_out import TEXT_OUTPUT, print_rows
from dbsp.errors import ConfigError, UnavailableError

if TYPE_CHECKING:  # it loads numpy, which the command line starts without
    from dbsp.coordinator.backup.manifests import ListedBackup

LOOK_INTERVAL_S = 0.2
COLUMNS = ("name", "state", "at", "pipeline", "step", "bytes", "reason", "damage")
NOT_RUNNING = "the service is not running"
FOLDER = click.Path(path_type=Path, file_okay=False)
SETTINGS = click.Path(path_type=Path, dir_okay=False)


class _Bar:
    """A progress bar on a terminal: bytes done of bytes to do."""

    def __init__(self, text: str) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
        )  # fmt: skip
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task(text, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, text: str, done: int, total: int) -> None:
        """Draw the phase `text` with `done` of `total` bytes; a total of 0 means unknown."""
        self._progress.update(self._task, description=text, completed=done, total=total or None)

    def more(self, text: str, count: int) -> None:
        """Draw the phase `text` with `count` more bytes done."""
        self._progress.update(self._task, description=text, advance=count)

    def of(self, total: int) -> None:
        """Set the number of bytes to do."""
        self._progress.update(self._task, total=total)


@click.command()
@click.argument("folder", type=FOLDER)
@click.pass_obj
def backup(context: CommandContext, folder: Path) -> None:
    """Copy all that is needed to go on from now into a new folder in FOLDER; also when the service is stopped."""
    folder = folder.absolute()
    with _Bar("backup") as bar:
        found = _by_service(context, folder, bar) if _runs(context) else _by_ourselves(context, folder, bar)
    text = (
        f"{found['folder']}: step {found['step']:,}, {found['bytes']:,} bytes, {found['seconds']:,.1f} s"
        + (f", steps waited {found['pause_seconds'] * 1000:,.0f} ms for it" if "pause_seconds" in found else "")
        + "".join(f"\nnot in it: {left}" for left in found["left_out"])
    )
    context.show(found, text)


def _runs(context: CommandContext) -> bool:
    """Return whether a service runs that can make the backup.

    **Errors** those of the request, if the service is named by its address: then it must be there.
    """
    try:
        context.client.status()
    except (UnavailableError, ConfigError) as error:
        if context.client.connection.url is not None or not error.message.startswith((NOT_RUNNING, OTHER)):
            raise
        return False
    return True


def _by_service(context: CommandContext, folder: Path, bar: _Bar) -> dict[str, Any]:
    def look() -> None:
        shown = context.client.status()["backup"]
        if shown is not None:
            bar.show(shown["phase"], shown["bytes"], shown["bytes_max"] if shown["phase"] == "copying" else 0)

    with looking(look, LOOK_INTERVAL_S):
        found: dict[str, Any] = context.client.backup(folder)
    return found


def _by_ourselves(context: CommandContext, folder: Path, bar: _Bar) -> dict[str, Any]:
    from dbsp.coordinator.backup.making import make  # noqa: PLC0415 - reads storage itself, as the doctor does
    from dbsp.coordinator.backup.manifests import bytes_in  # noqa: PLC0415 - as above

    at, phase = time.monotonic(), ("", Path(), 0)

    def report(*now: Any) -> None:
        nonlocal phase
        phase = now

    with looking(
        lambda: bar.show(phase[0], bytes_in(phase[1]), phase[2] if phase[0] == "copying" else 0), LOOK_INTERVAL_S
    ):
        named, manifest = make(load_config(context.pipeline), folder, report)
    return {"folder": str(named), **manifest.as_json(), "seconds": round(time.monotonic() - at, 3)}


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--check", is_flag=True, help="Read every file and compare its checksum.")
@TEXT_OUTPUT
@click.pass_obj
def backups(context: CommandContext, folder: Path, check: bool, form: str) -> None:
    """List the backups in FOLDER, oldest first; unfinished ones can be deleted."""
    from dbsp.coordinator.backup.manifests import backups_in  # noqa: PLC0415 - of one command

    with Console(stderr=True).status("reading") as spinner:
        found = backups_in(folder, check=check, report=lambda name: spinner.update(f"reading {name}"))
    lines = [line for listed in found for line in _lines(listed, check)]
    answer = [
        {
            "name": one.name, "state": one.state, "bytes": one.bytes, "reason": one.reason, "damage": list(one.damage),
            "backup": one.manifest.as_json() if one.manifest else None,
        }
        for one in found
    ]  # fmt: skip
    if form != "table" and not context.as_json:
        print_rows(form, COLUMNS, map(_values, found))
    else:
        context.show({"backups": answer}, "\n".join(lines) or f"no backups: folder={folder}")
    if any(one.state in ("damaged", "broken") for one in found):
        sys.exit(exit_code("data"))


def _values(one: ListedBackup) -> list[Any]:
    """Return the columns of a listed backup; what its manifest would say is null without one."""
    found = one.manifest
    known = [None] * 3 if found is None else [found.at, found.pipeline, found.step]
    return [one.name, one.state, *known, one.bytes, one.reason, "; ".join(one.damage)]


def _lines(one: ListedBackup, check: bool) -> list[str]:
    if one.manifest is None:
        text = "unfinished, can be deleted" if one.state == "unfinished" else f"broken: {one.reason}"
        return [f"{one.name}  {one.bytes:,} bytes  {text}"]
    found = one.manifest
    state = ("whole, every checksum is right" if check else "whole") if not one.damage else "damaged"
    line = f"{one.name}  {found.at}  {found.pipeline}  step {found.step:,}  {one.bytes:,} bytes  {state}"
    return [line, *(f"  {what}" for what in one.damage)]


@click.command()
@click.argument("folder", type=FOLDER, metavar="BACKUP")
@click.argument("pipeline", type=SETTINGS, required=False)
@click.pass_obj
def restore(context: CommandContext, folder: Path, pipeline: Path | None) -> None:
    """Make the data folder of PIPELINE out of BACKUP, checked; only where there is none, or an empty one."""
    from dbsp.coordinator.backup.manifests import read_manifest  # noqa: PLC0415 - of one command
    from dbsp.coordinator.backup.restoring import restore as put_back  # noqa: PLC0415 - loads the circuit and its engine

    settings = pipeline or context.pipeline
    config, at = load_config(settings), time.monotonic()
    with _Bar("restore") as bar:
        bar.of(2 * read_manifest(folder.absolute()).bytes)
        found = put_back(folder.absolute(), config, bar.more)
    seconds = time.monotonic() - at
    text = (
        f"restored {found.bytes:,} bytes to {config.data_dir} in {seconds:,.1f} s: step {found.step:,} of {found.at}\n"
        f"go on with `dbsp-coordinator {settings}`" + "".join(f"\nwas not in it: {left}" for left in found.left_out)
    )
    context.show({**found.as_json(), "data_dir": str(config.data_dir), "seconds": round(seconds, 3)}, text)
