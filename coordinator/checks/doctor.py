"""`coordinator doctor`: read all files of a pipeline on this host, and report what is broken and what to do.

The doctor only reads: it writes and repairs nothing, and opens nothing in a way that could make an absent file. It may run
while the service runs. Files that change meanwhile (ledger, log heads) are read again until two readings agree.

Per file: its LMDB structure, then every record and chunk against its checksums. Between files (invariants 7, 8, 11, 12):

- All workers of some layout hold one published version.
- The step log and the input log reach from that version to the position of the newest record.
- Outputs reach at least as far as that version.

Left out: logs on Kafka, the scratch (thrown away at every start), files that an output wrote for others.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmdb.verify import VerifyError

from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.decisions.recovery import Choice, choose, story
from dbsp.coordinator.layouts import shares_disk
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.running.ledger_file import FORMS, decode_ledger
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import database_home, home_in, writers
from dbsp.errors import DataError, DbspError, UnavailableError
from dbsp.hosts import is_here
from dbsp.io import examine as logs
from dbsp.io import letter_log
from dbsp.io.output_part import OutputProgress
from dbsp.layout import homes
from dbsp.lmdb_environments import BROKEN_FILE, structure_problems
from dbsp.lmdb_files import META_BYTES, check_lmdb_file
from dbsp.storage import examine as storage
from dbsp.store import VersionInfo
from dbsp.store.findings import Examined, Finding

TRIES = 5
CONTROL_REMEDY = "restore the folder `control` from a backup of the same moment as the databases"
RESTORE = "stop the pipeline, move {home} away and start it again: the database is made anew from its standby"
STANDBY_REMEDY = "stop the pipeline, delete {home} and start it again: the standby is made anew from its database"
TOGETHER_REMEDY = (
    "restore data_dir as a whole from one backup: its parts are not of one moment; without a backup start over with an"
    " empty data_dir"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The files that were examined, those left out with the reason, and the findings."""

    examined: tuple[Examined, ...]
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {
            "sound": not self.findings,
            "examined": [
                {"file": str(seen.file), "worker": seen.worker, "counts": seen.counts, "sound": not seen.findings}
                for seen in self.examined
            ],
            "findings": [
                {
                    "file": str(f.file), "worker": f.worker, "chunk": f.chunk, "what": f.what, "remedy": f.remedy,
                }
                for f in self.findings
            ],
            "left_out": list(self.left_out),
        }  # fmt: skip

    def as_text(self) -> str:
        """Return the diagnosis as text for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for seen in self.examined:
            counted = ", ".join(f"{number:,} {what}" for what, number in seen.counts.items())
            yield f"{'broken' if seen.findings else 'ok':7}{seen.file}" + (f": {counted}" if counted else "")
        for reason in self.left_out:
            yield f"not read: {reason}"
        for finding in self.findings:
            place = "".join(
                f" {name}={value}"
                for name, value in (("worker", finding.worker), ("chunk", finding.chunk))
                if value is not None and f"{name}={value}" not in finding.what
            )
            shown = "" if str(finding.file) in finding.what else f" file={finding.file}"
            yield f"\nbroken: {finding.what}{place}{shown}\n  to do: {finding.remedy}"
        found = len(self.findings)
        yield (
            f"\n{found} thing{'s are' if found > 1 else ' is'} broken" if found else "everything that was read is sound"
        )


@dataclass(slots=True)
class _Found:
    """The examined files and those left out, collected for the comparison between files."""

    examined: list[Examined] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def take(self, seen: Examined) -> bool:
        """Record an examined file; return whether it is sound."""
        self.examined.append(seen)
        return not seen.findings


def diagnose(config: Config) -> Diagnosis:
    """Examine a pipeline's files.

    **Cost** reads everything once.
    **Errors** `UnavailableError` if there is no pipeline to look at.
    """
    if not config.data_dir.is_dir():
        raise UnavailableError(
            f"there is nothing to examine: data_dir={config.data_dir}", "the pipeline was never started here"
        )
    found = _Found()
    if not shares_disk(config) and not (config.data_dir / "control").exists():
        return _of_workers_alone(config, found)
    ledger = _ledger(config.data_dir, found)
    sound = ledger is not None
    if ledger is not None:
        far = {} if shares_disk(config) else _far(ledger)
        for worker in sorted(ledger.members - far.keys()):
            sound &= _database(config, ledger, worker, found)
            sound &= _output(config, ledger, worker, found)
        for worker in sorted(set(writers(config)) - ledger.members):
            sound &= _output(config, ledger, worker, found)
        found.left_out += [f"worker {worker} lives on {host}: run this there" for worker, host in sorted(far.items())]
        sound &= not far
    sound &= _logs(config, ledger, found)
    sound &= _letters(config, found)
    between = _agreement(config, found) if sound and ledger is not None and ledger.epoch else []
    own = [finding for seen in found.examined for finding in seen.findings]
    return Diagnosis(examined=tuple(found.examined), findings=(*own, *between), left_out=tuple(found.left_out))


def _whole(file: Path, remedy: str, worker: int | None, read: Callable[[], Examined]) -> Examined:
    """Return the examined content of `read()` if the file's structure is sound, else the problems of the structure."""
    problems = _structure(file)
    if not problems:
        return read()
    seen = Examined(file=file, remedy=remedy, worker=worker)
    for problem in problems:
        seen.found(problem)
    return seen


def _structure(file: Path) -> list[str]:
    """Return the problems of a file's LMDB structure; check a file again that is written meanwhile."""
    problems: list[str] = []
    for _ in range(TRIES):
        try:
            before = _heads(file)
            if len(before) < META_BYTES:
                return [f"the file is empty or cut short: bytes={file.stat().st_size}"]
            problems = _tail(file) or structure_problems(file)
            if not problems or before == _heads(file):
                return problems
        except FileNotFoundError:
            return ["the file is missing"]
        except (OSError, VerifyError) as error:
            problems = [str(error)]
    return problems


def _tail(file: Path) -> list[str]:
    """Return the problem of a truncated file; `structure_problems` reads only the first page of a large value."""
    try:
        check_lmdb_file(file, "file")
    except DataError as error:
        return [error.message]
    return []


def _heads(file: Path) -> bytes:
    """Return both meta pages, which change with every commit."""
    with file.open("rb") as stream:
        return stream.read(META_BYTES)


def _far(ledger: Ledger) -> dict[int, str]:
    """Return the workers on other hosts than this one, each with its host."""
    places = homes(ledger.layouts.values())
    return {worker: host for worker, host in places.items() if worker in ledger.members and host and not is_here(host)}


def _of_workers_alone(config: Config, found: _Found) -> Diagnosis:
    """Examine the databases of a host that has workers, but not the coordinator."""
    for home in sorted(home for home in (config.data_dir / "workers").glob("*") if home.name.isdigit()):
        _examine(home, int(home.name), storage.REMEDY, found)
    found.left_out.append("ledger and logs are with the coordinator: run this on its host, too")
    findings = tuple(finding for seen in found.examined for finding in seen.findings)
    return Diagnosis(examined=tuple(found.examined), findings=findings, left_out=tuple(found.left_out))


# --- the files ------------------------------------------------------------------------------------------------------


def _ledger(data_dir: Path, found: _Found) -> Ledger | None:
    kept: list[Ledger] = []
    file = data_dir / "control" / "data.mdb"

    def read() -> Examined:
        seen = Examined(file=file, remedy=CONTROL_REMEDY)
        with seen.guarded(also=BROKEN_FILE):
            kept.append(read_ledger(data_dir))
            seen.count("ledgers")
        return seen

    found.take(_whole(file, CONTROL_REMEDY, None, read))
    return kept[0] if kept else None


def read_ledger(data_dir: Path) -> Ledger:
    """Return the ledger, opened read-only; `DataError` if it is missing or damaged."""
    with logs.reading(data_dir / "control", FORMS, ("ledger",)) as log:
        return ledger_of(log.get("ledger", b"ledger"))


def ledger_of(data: bytes | None) -> Ledger:
    """Return the ledger decoded from its bytes; `DataError` if they are missing or damaged."""
    if data is None:
        raise DataError("the ledger is empty", CONTROL_REMEDY)
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise DataError("the ledger's checksum is wrong", CONTROL_REMEDY)
    return decode_ledger(json.loads(data[4:]))


def _database(config: Config, ledger: Ledger, worker: int, found: _Found) -> bool:
    home = database_home(config.data_dir, worker)
    if worker in ledger.forming and not home.exists():
        found.left_out.append(f"worker {worker} joins and has no database yet")
        return True
    spare = [standby for standby in config.standbys if _standby(home_in(standby, worker), worker, found)]
    remedy = RESTORE.format(home=home) if spare else storage.REMEDY
    return _examine(home, worker, remedy, found)


def _standby(home: Path, worker: int, found: _Found) -> bool:
    """Return whether a standby exists and is sound."""
    if not home.exists():
        found.left_out.append(f"the standby of worker {worker} in {home.parent} is not made yet")
        return False
    return _examine(home, worker, STANDBY_REMEDY.format(home=home), found)


def _examine(home: Path, worker: int, remedy: str, found: _Found) -> bool:
    file = storage.durable_file(home)
    return found.take(_whole(file, remedy, worker, lambda: storage.examine_database(home, worker, remedy)))


def _output(config: Config, ledger: Ledger, worker: int, found: _Found) -> bool:
    folder = _output_folder(config, worker)
    if folder is None or (_joins(ledger, worker) and not folder.exists()):
        return True

    def read() -> Examined:
        examined = config.output.examine(config.residence, worker)
        return Examined(file=folder, remedy=logs.PROGRESS_REMEDY, worker=worker) if examined is None else examined[0]

    return found.take(_whole(folder / "data.mdb", logs.PROGRESS_REMEDY, worker, read))


def _joins(ledger: Ledger, worker: int) -> bool:
    """Return whether a worker may have no outputs yet: they are made when the version by which it joined is first opened."""
    if worker in ledger.forming:
        return True
    has, had = (_workers_of(ledger, version) for version in (ledger.published, ledger.published - 1))
    return has is not None and had is not None and worker in has and worker not in had


def _workers_of(ledger: Ledger, version: int) -> tuple[int, ...] | None:
    """Return the workers of a version that can be opened; None if it cannot. Version 0, the empty one, is saved nowhere."""
    saved = ledger.saved.get(version)
    if saved is None:
        return ledger.layouts[min(ledger.layouts)].workers if version == 0 else None
    return ledger.layouts[saved.checkpoint.layout_version].workers


def _output_folder(config: Config, worker: int) -> Path | None:
    """Return the folder of a worker's progress; None if outputs store it elsewhere."""
    progress = config.output.progress(config.residence)
    return None if progress is None else progress / str(worker)


def _progress(config: Config, worker: int) -> OutputProgress | None:
    """Return the progress of a worker's outputs; None if the progress is unknown on this host."""
    examined = config.output.examine(config.residence, worker)
    return None if examined is None else examined[1]


def _logs(config: Config, ledger: Ledger | None, found: _Found) -> bool:
    elsewhere = config.input.logs_elsewhere
    if elsewhere is not None:
        found.left_out.append(elsewhere)
    if config.output.changes_elsewhere is not None:
        found.left_out.append(f"rows of outputs are elsewhere: output.kind={config.output.kind}")
    if elsewhere is not None:
        return True
    if ledger is not None and not ledger.epoch and not (config.data_dir / "steps").exists():
        found.left_out.append("the logs: the pipeline was never started")
        return True
    data_dir = config.data_dir
    steps = found.take(
        _whole(data_dir / "steps" / "data.mdb", logs.STEPS_REMEDY, None, lambda: logs.examine_steps(data_dir)[0])
    )
    inputs = found.take(_whole(data_dir / "input" / "data.mdb", logs.INPUT_REMEDY, None, lambda: _input(config)[0]))
    return steps and inputs


def _letters(config: Config, found: _Found) -> bool:
    """Examine the letter log, which the first dead letter makes; return whether it is sound."""
    file = config.data_dir / "letters" / "data.mdb"
    if not file.parent.exists():
        return True
    return found.take(_whole(file, letter_log.REMEDY, None, lambda: logs.examine_letters(config.data_dir)))


def _input(config: Config) -> tuple[Examined, logs.Spans]:
    examined = config.input.examine(config.residence)
    if examined is None:
        raise DataError(f"nothing of the input is on this host: input.kind={config.input.kind}")
    return examined


# --- between the files ----------------------------------------------------------------------------------------------


def _agreement(config: Config, found: _Found) -> list[Finding]:
    """Compare the files with each other, as of one moment of the ledger."""
    findings: list[Finding] = []
    for _ in range(TRIES):
        before = read_ledger(config.data_dir)
        try:
            findings = list(_disagreements(config, before))
        except DbspError as error:
            findings = [_between(config, error.message)]
        if not findings or before == read_ledger(config.data_dir):
            return findings
    found.left_out.append("the files against each other: the service changed them all the time")
    return []


def _between(config: Config, what: str) -> Finding:
    return Finding(file=config.data_dir, what=what, remedy=TOGETHER_REMEDY)


def _disagreements(config: Config, ledger: Ledger) -> Iterator[Finding]:
    held: dict[int, tuple[VersionInfo, ...]] = {
        worker: storage.versions_in(database_home(config.data_dir, worker))
        for worker in sorted(ledger.members)
        if database_home(config.data_dir, worker).exists()
    }
    choice = choose(held, ledger.layouts, run=ledger.run, fingerprint=ledger.fingerprint)
    if choice is None or choice.version < ledger.published:
        shown = "none" if choice is None else choice.version
        what = f"no version that every worker of its layout holds: published={ledger.published} found={shown}"
        yield _between(config, f"{what} {story(held)}")
        return
    yield from _unknown_epochs(config, ledger, held)
    positions = dict(ledger.positions(choice.checkpoint)[0])
    if config.input.logs_elsewhere is None:
        yield from _log_gaps(config, choice, positions)
    if config.output.progress(config.residence) is not None:
        yield from _output_gaps(config, choice)


def _unknown_epochs(config: Config, ledger: Ledger, workers: Iterable[int]) -> Iterator[Finding]:
    """Yield a finding for each worker with a newer epoch than the ledger's.

    The ledger stores an epoch before any worker sees it. An epoch that the ledger lacks would refuse every later owner.
    """
    for worker in workers:
        met = [storage.epoch_in(database_home(config.data_dir, worker))]
        folder = _output_folder(config, worker)
        if folder is not None and folder.exists():
            progress = _progress(config, worker)
            met += [] if progress is None else [progress.epoch]
        if max(met) > ledger.epoch:
            what = f"a worker has met an epoch that the ledger does not know: worker={worker} epoch={max(met)}"
            yield _between(config, f"{what} ledger={ledger.epoch}")


def _log_gaps(config: Config, choice: Choice, positions: Positions) -> Iterator[Finding]:
    """Yield a finding wherever the step log or the input log does not reach from the checkpoint to the newest record."""
    step, steps = choice.checkpoint.step, logs.examine_steps(config.data_dir)[1]
    first = steps.records[0].step if steps.records else steps.next_step
    if not first <= step <= steps.next_step:
        what = f"the step log does not reach from the checkpoint: step={step} first={first} next={steps.next_step}"
        yield _between(config, what)
    spans = _input(config)[1]
    for (table, partition), wanted in sorted(steps.positions.items()):
        place = f"table={table} partition={partition}"
        floor, end = spans.get((table, partition), (0, 0))
        if end < wanted:
            yield _between(config, f"the input log ends below what steps have read: {place} end={end} read={wanted}")
        if floor > positions.get((table, partition), floor):
            begin = positions[table, partition]
            yield _between(config, f"the input log begins above the checkpoint: {place} first={floor} wanted={begin}")


def _output_gaps(config: Config, choice: Choice) -> Iterator[Finding]:
    """Yield a finding for each worker whose outputs end below the checkpoint (invariant 11).

    A worker that joined at the checkpoint has at most outputs of an earlier membership.
    """
    for worker, first in zip(choice.layout.workers, choice.layout.first_steps, strict=True):
        progress = _progress(config, worker)
        last = None if progress is None else progress.last
        if max(first, last or 0) < choice.checkpoint.step:
            what = f"a worker's outputs end below the checkpoint: worker={worker} last={last} step={choice.checkpoint.step}"
            yield _between(config, what)
