"""`coordinator backup`, `backups` and `restore`; `backup` asks the service, or makes the backup itself if no service runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from dbsp.coordinator.client.client import looking
from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.commands.rows_out import LINES, LINES_OUTPUT, print_rows
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.http.identity import OTHER
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError, UnavailableError

if TYPE_CHECKING:  # imported late: it loads numpy, which the command line does not need to start
    from dbsp.coordinator.backup.manifests import ListedBackup
    from dbsp.coordinator.settings.config import Config
    from dbsp.object_places import ObjectPlace

    Copies = tuple[ObjectPlace, Config]

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
@click.argument("folder", type=FOLDER, required=False)
@click.pass_obj
def backup(context: CommandContext, folder: Path | None) -> None:
    """Make a backup of the pipeline as of now in a new folder in FOLDER, while the service runs or is stopped.

    Without FOLDER, take a checkpoint and keep it among the copies of checkpoints until you delete it; only new chunks
    are copied.
    """
    if folder is None:
        kept = context.client.keep_version()
        context.show(kept, f"kept version {kept['version']}: step {kept['step']}, {kept['place']}")
        return
    folder = folder.absolute()
    with _Bar("backup") as bar:
        found = _by_service(context, folder, bar) if _runs(context) else _by_ourselves(context, folder, bar)
    text = (
        f"{found['folder']}: step {found['step']}, {found['bytes']:,} bytes, {found['seconds']:,.1f} s"
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
@click.argument("place", metavar="FOLDER")
@click.option("--check", is_flag=True, help="Read every file or object and compare its checksum.")
@click.option("--delete", type=int, metavar="VERSION", help="Delete this kept version among the copies of checkpoints.")
@LINES_OUTPUT
@click.pass_obj
def backups(context: CommandContext, place: str, check: bool, delete: int | None, form: str) -> None:
    """List the backups in FOLDER, oldest first; unfinished ones can be deleted.

    FOLDER may also be a place for copies of checkpoints, such as s3://bucket/path: then list the checkpoints there.
    """
    copies = _copies(context, place)
    if copies is not None:
        return _copied(context, copies, check, delete, form)
    if delete is not None:
        raise ConfigError(f"there are no copies of checkpoints here: folder={place}", "delete the backup's folder")
    from dbsp.coordinator.backup.manifests import backups_in  # noqa: PLC0415 - of one command

    with Console(stderr=True).status("reading") as spinner:
        found = backups_in(Path(place), check=check, report=lambda name: spinner.update(f"reading {name}"))
    lines = [line for listed in found for line in _lines(listed, check)]
    answer = [
        {
            "name": one.name, "state": one.state, "bytes": one.bytes, "reason": one.reason, "damage": list(one.damage),
            "backup": one.manifest.as_json() if one.manifest else None,
        }
        for one in found
    ]  # fmt: skip
    if form != LINES and not context.as_json:
        print_rows(form, COLUMNS, map(_values, found))
    else:
        context.show({"backups": answer}, "\n".join(lines) or f"no backups: folder={place}")
    if any(one.state in ("damaged", "broken") for one in found):
        sys.exit(exit_code("data"))
    return None


def _copies(context: CommandContext, place: str) -> Copies | None:
    """Return the place for copies that an argument names, with the settings of the pipeline; None for a folder of backups."""
    if "://" not in place and not context.pipeline.exists():
        return None
    from dbsp.coordinator.backup.copied import place_of  # noqa: PLC0415 - of one command

    config = load_config(context.pipeline)
    found = place_of(place, config)
    return None if found is None else (found, config)


def _copied(context: CommandContext, copies: Copies, check: bool, delete: int | None, form: str) -> None:
    from dbsp.coordinator.backup.copied import forget_kept, listed  # noqa: PLC0415 - of one command

    place, config = copies
    if delete is not None:
        forget_kept(place, config, delete)
        return context.show({"deleted": delete}, f"deleted: version {delete}")
    with Console(stderr=True).status("reading") as spinner:
        found = listed(place, config, check=check, report=lambda name: spinner.update(f"reading {name}"))
    whole = "whole, every checksum is right" if check else "there"
    lines = [
        line
        for one in found
        for line in (
            f"version {one.name.version}  {one.at}  step {'?' if one.step is None else one.step}"
            f"  {'kept' if one.kept else 'until retention deletes it'}  {'damaged' if one.damage else whole}",
            *(f"  {what}" for what in one.damage),
        )
    ]
    if form != LINES and not context.as_json:
        columns = ("version", "at", "kept", "step", "workers", "damage")
        shown = [one.as_json() for one in found]
        print_rows(form, columns, ([*list(one.values())[:-1], "; ".join(one["damage"])] for one in shown))
    else:
        context.show({"checkpoints": [one.as_json() for one in found]}, "\n".join(lines) or "no checkpoints")
    if any(one.damage for one in found):
        sys.exit(exit_code("data"))
    return None


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
    line = f"{one.name}  {found.at}  {found.pipeline}  step {found.step}  {one.bytes:,} bytes  {state}"
    return [line, *(f"  {what}" for what in one.damage)]


@click.command()
@click.argument("place", metavar="BACKUP")
@click.argument("pipeline", type=SETTINGS, required=False)
@click.option("--version", type=int, help="From copies of checkpoints: the version to restore; default: the newest.")
@click.option("--workers", type=click.IntRange(1), help="From copies of checkpoints: continue with so many workers.")
@click.pass_obj
def restore(
    context: CommandContext, place: str, pipeline: Path | None, version: int | None, workers: int | None
) -> None:
    """Check BACKUP, and make the data folder of PIPELINE from it; the folder must be absent or empty.

    BACKUP may also be the place for copies of checkpoints, such as s3://bucket/path, that the settings name.
    """
    settings = pipeline or context.pipeline
    config, at = load_config(settings), time.monotonic()
    from dbsp.coordinator.backup.copied import place_of  # noqa: PLC0415 - of one command

    copies = place_of(place, config)
    if copies is not None:
        return _restore_copies(context, copies, config, settings, version, workers)
    if version is not None or workers is not None:
        raise ConfigError(
            f"there are no copies of this pipeline's checkpoints here: folder={place}", "leave the options out"
        )
    from dbsp.coordinator.backup.manifests import read_manifest  # noqa: PLC0415 - of one command
    from dbsp.coordinator.backup.restoring import restore as put_back  # noqa: PLC0415 - loads the circuit and its engine

    folder = Path(place).absolute()
    with _Bar("restore") as bar:
        bar.of(2 * read_manifest(folder).bytes)
        found = put_back(folder, config, bar.more)
    seconds = time.monotonic() - at
    text = (
        f"restored {found.bytes:,} bytes to {config.data_dir} in {seconds:,.1f} s: step {found.step} of {found.at}\n"
        f"go on with `dbsp-coordinator {settings}`" + "".join(f"\nwas not in it: {left}" for left in found.left_out)
    )
    context.show({**found.as_json(), "data_dir": str(config.data_dir), "seconds": round(seconds, 3)}, text)
    return None


def _restore_copies(
    context: CommandContext,
    place: ObjectPlace,
    config: Config,
    settings: Path,
    version: int | None,
    workers: int | None,
) -> None:
    from dbsp.coordinator.backup.from_copies import restore_from_copies  # noqa: PLC0415 - loads the circuit and its engine

    with Console(stderr=True).status("restoring"):
        found = restore_from_copies(place, config, version=version, workers=workers)
    lines = [
        f"restored version {found.version}: step {found.step} of {found.at}, in {config.data_dir}",
        f"go on with `dbsp-coordinator {settings}`: it makes the databases of {found.workers} workers again",
        f"lost are the rows that arrived later than {found.at}, and the outputs of earlier steps in the data folder",
        *(
            f"lost rows of {each.table}, partition {each.partition}: those from {each.first} on; {each.known_end} had arrived"
            for each in found.lost
        ),
        *(
            f"torn push {each.sequence} of {each.producer} to {each.table}: rows from {each.first} to {each.last} are lost,"
            " and those before are not; a repeat is refused"
            for each in found.torn
        ),
    ]
    context.show({**found.as_json(), "data_dir": str(config.data_dir)}, "\n".join(lines))
