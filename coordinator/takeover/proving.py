"""Run finished steps again in memory, and compare their outputs with those that were put out.

Another version of dbsp does this before it takes over a pipeline (`dbsp-coordinator … --prove`). So a version with other
results is refused while the old one goes on. The steps are those after the oldest checkpoint that every worker can
open, as far as their input is kept. The state of that checkpoint is read from the workers' databases, and all that the
steps add to it stays in memory.

Invariants
1. The proof changes no file of the pipeline. The running version may take steps and checkpoints meanwhile.
2. Outputs are compared by the checksums with which a replay after a crash is compared, for every kind of output.

Limits: at most `ROWS_MAX` rows, and no step begins after `SECONDS_MAX`. The proof ends before a step in which keys move, or
which fills a changed circuit. Where the workers' databases are on other hosts,
the proof reads copies (`proof_copies`); without copies nothing is proved. Source: docs/design/0054.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbsp.coordinator.build import load_plan, resources_of
from dbsp.coordinator.checks.doctor import read_ledger
from dbsp.coordinator.decisions.recovery import Choice, complete
from dbsp.coordinator.layouts import shares_disk
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import ConfiguredResources, database_home, home_in
from dbsp.errors import DataError, DbspError, EngineError, MismatchError
from dbsp.io.output_part import checksum_of, with_dead_letters
from dbsp.layout import Layout
from dbsp.logs import AcceptsOutput, Changes, DeadLetter, InputLog, OutputLog, Range, StepRecord, TellsChecksums
from dbsp.logs.step_commands import BACKFILL, MIGRATE
from dbsp.plan.plan import Plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.work import Work
from dbsp.storage import WorkerDatabase
from dbsp.store import CheckpointId, VersionInfo
from dbsp.trace.memory import MemoryDatabase
from dbsp.version import VERSION
from dbsp.zset.batch import Batch

ROWS_MAX = 1_000_000
SECONDS_MAX = 20.0
TRIES = 3
"""The number of attempts, if the running version trims the logs meanwhile."""
NO_STEPS = "no finished step with rows is kept"
OTHER_HOSTS = "the workers' databases are on other hosts, and only `coordinator upgrade` copies what a proof reads"
GOES_ON_ALONE = (
    "the running version goes on; if the other answers are the right ones, stop the service and start the other version:"
    " it goes on from the checkpoint"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The steps `first <= s < last` gave the same outputs again; `left_out` says why there are no more, or is empty."""

    first: int = 0
    last: int = 0
    rows: int = 0
    seconds: float = 0.0
    left_out: str = ""
    copied_bytes: int = 0
    """The bytes of state that came from other hosts for the proof."""


def copies_home(data_dir: Path) -> Path:
    """Return the folder with copies of the workers' databases on other hosts, while an upgrade needs them."""
    return data_dir / "proof"


def prove(config: Config, *, rows_max: int = ROWS_MAX, seconds_max: float = SECONDS_MAX) -> Proof:
    """Run the kept steps of a pipeline again and compare their outputs.

    **Errors** `EngineError` names the first step whose outputs differ, or which fails.
    """
    if not (config.data_dir / "control").is_dir():
        return Proof(left_out=NO_STEPS)
    if not shares_disk(config) and not copies_home(config.data_dir).is_dir():
        return Proof(left_out=OTHER_HOSTS)
    plan = load_plan(config)
    for _ in range(TRIES):
        try:
            return _Replay(config, plan, rows_max, seconds_max).proof()
        except _TrimmedError as error:
            trimmed = error
    return Proof(left_out=f"the logs were trimmed meanwhile: {trimmed}")


class _TrimmedError(Exception):
    """The running version has dropped what the proof was about to read."""


class _Replay:
    """An attempt of a proof."""

    def __init__(self, config: Config, plan: Plan, rows_max: int, seconds_max: float) -> None:
        self._config, self._plan = config, plan
        self._rows_max, self._seconds_max = rows_max, seconds_max
        self._ledger = read_ledger(config.data_dir)
        self._resources = resources_of(config, plan)

    def proof(self) -> Proof:
        """Replay from the oldest version with steps to run again."""
        with ExitStack() as opened:
            found = Proof(left_out=NO_STEPS)
            databases = _databases(self._config, self._ledger, opened)
            held: dict[int, tuple[VersionInfo, ...]] = {
                worker: database.versions() for worker, database in databases.items()
            }
            ledger, trimmed = self._ledger, None
            for choice in complete(held, ledger.layouts, run=ledger.run, fingerprint=self._plan.fingerprint):
                try:
                    found, trimmed = self._from(choice, databases), None
                except (
                    _TrimmedError
                ) as error:  # the logs below the first checkpoint are not kept for the version before it
                    trimmed = error
                    continue
                if found.rows:
                    return found
            if trimmed is not None:
                raise trimmed
            return found

    def _from(self, choice: Choice, databases: Mapping[int, WorkerDatabase]) -> Proof:
        """Replay the steps after a version, in its layout."""
        begun_s, first, layout = time.monotonic(), choice.checkpoint.step, choice.layout
        with ExitStack() as opened:
            outputs = self._outputs(layout, opened)
            last = min(log.bounds()[1] for log in outputs.values())
            records, left_out = _runnable(self._records(first, last), layout)
            runtime = self._runtime(choice, databases, outputs, opened)
            done, rows = first, 0
            for record in records:
                rows_in = sum(each.last - each.first for each in record.ranges)
                if rows and rows + rows_in > self._rows_max:
                    left_out = f"rows_max={self._rows_max}"
                    break
                if time.monotonic() - begun_s > self._seconds_max:
                    left_out = f"seconds_max={self._seconds_max:g}"
                    break
                _run(runtime, record, layout)
                done, rows = record.step + 1, rows + rows_in
        seconds = round(time.monotonic() - begun_s, 3)
        return Proof(
            first=first, last=done, rows=rows, seconds=seconds, left_out=left_out or ("" if rows else NO_STEPS)
        )

    def _outputs(self, layout: Layout, opened: ExitStack) -> dict[int, OutputLog]:
        """Open the output logs of the layout's workers."""
        return {
            worker: opened.enter_context(closing(self._resources.open_output(worker, first)))
            for worker, first in zip(layout.workers, layout.first_steps, strict=True)
        }

    def _records(self, first: int, last: int) -> Sequence[StepRecord]:
        """Return the records of the finished steps."""
        with closing(self._resources.open_steps()) as steps:
            try:
                return [record for record in steps.read(first) if record.step < last] if first < last else []
            except DataError as error:
                raise _TrimmedError(error.message) from error

    def _runtime(
        self,
        choice: Choice,
        databases: Mapping[int, WorkerDatabase],
        outputs: Mapping[int, OutputLog],
        opened: ExitStack,
    ) -> InProcessRuntime:
        """Return a runtime whose workers have the version in memory and whose outputs are compared."""
        epoch = self._ledger.epoch
        copies = {}
        for worker in choice.layout.workers:
            view = opened.enter_context(databases[worker].read_version(choice.version))
            copies[worker] = MemoryDatabase.over(choice.version, view)
            copies[worker].open(choice.version, epoch)
        compared = {worker: _Compared(log) for worker, log in outputs.items()}
        resources: Any = _Rehearsed(self._resources, copies, compared)
        runtime = InProcessRuntime(Work(resources=resources, plan=self._plan, run=self._ledger.run))
        runtime.epoch = epoch
        return runtime


def _databases(config: Config, ledger: Ledger, opened: ExitStack) -> dict[int, WorkerDatabase]:
    """Open the databases that are there, for reading."""
    if shares_disk(config):
        homes = {worker: database_home(config.data_dir, worker) for worker in sorted(ledger.members)}
    else:
        homes = {worker: home_in(copies_home(config.data_dir), worker) for worker in sorted(ledger.members)}
    return {
        worker: opened.enter_context(closing(WorkerDatabase(home))) for worker, home in homes.items() if home.exists()
    }


def _runnable(records: Sequence[StepRecord], layout: Layout) -> tuple[list[StepRecord], str]:
    """Return the records up to the first that needs more than the state of one layout, and why the rest is left out."""
    found: list[StepRecord] = []
    for record in records:
        if record.layout_version != layout.version:
            return found, f"the layout changed before step {record.step}"
        if any(command.startswith((MIGRATE, BACKFILL)) for command in record.commands):
            return found, f"step {record.step} is of a rescale or of a changed circuit"
        found.append(record)
    return found, ""


def _run(runtime: InProcessRuntime, record: StepRecord, layout: Layout) -> None:
    """Run a step again; `EngineError` if it differs or fails."""
    try:
        runtime.run_step(record, layout)
    except _TrimmedError:
        raise
    except MismatchError as error:
        raise EngineError(
            f"this version gives other outputs: version={VERSION} {error.message}", GOES_ON_ALONE
        ) from error
    except DbspError as error:
        story = f"version={VERSION} step={record.step}: {error.message}"
        raise EngineError(f"this version fails at a step that was run before: {story}", GOES_ON_ALONE) from error
    except Exception as error:
        story = f"version={VERSION} step={record.step}: {type(error).__name__}: {error}"
        raise EngineError(f"this version fails at a step that was run before: {story}", GOES_ON_ALONE) from error


class _Rehearsed:
    """Worker resources of which only the input is the pipeline's."""

    input_is_expensive = False

    def __init__(
        self,
        resources: ConfiguredResources,
        databases: Mapping[int, MemoryDatabase],
        outputs: Mapping[int, _Compared],
    ) -> None:
        self._resources, self._databases, self._outputs = resources, databases, outputs

    def input_log(self) -> InputLog:
        """Return the pipeline's input log, for reading."""
        return _KeptInput(self._resources.input_log())  # type: ignore[return-value]  # only `read` is used

    def database(self, worker: int, create: CheckpointId | None = None) -> MemoryDatabase:  # noqa: ARG002 - as in other resources
        """Return the worker's state in memory."""
        return self._databases[worker]

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> OutputLog:  # noqa: ARG002 - as in other resources
        """Return the outputs that the worker's are compared with."""
        return self._outputs[worker]  # type: ignore[return-value]  # only the writes are used


class _KeptInput:
    """An input log of which a range may be trimmed while steps run."""

    def __init__(self, log: InputLog) -> None:
        self._log = log

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the rows of a range."""
        try:
            return self._log.read(range_, step)
        except DataError as error:
            raise _TrimmedError(error.message) from error


class _Compared:
    """An output log that compares each part with the one that was written, and writes nothing."""

    def __init__(self, log: OutputLog) -> None:
        self._log = log

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:  # noqa: ARG002 - as in other logs
        """Compare a part; `MismatchError` if it differs."""
        if not isinstance(self._log, TellsChecksums):
            raise EngineError(f"outputs of this kind cannot be compared: {self._log.place}")
        before, now = self._log.checksum(step), checksum_of(with_dead_letters(parts, dead))
        if before is None:
            raise _TrimmedError(f"the checksum of a step is kept no more: step={step} {self._log.place}")
        if before != now:
            raise MismatchError(f"step={step} checksum={now:016x} before={before:016x}")

    accept = write
    """An output that a user accepted counts as written."""

    def differing(self, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> list[str]:
        """Return the views whose part differs; all of the step's where the log cannot tell."""
        if isinstance(self._log, AcceptsOutput):
            return self._log.differing(step, parts, dead)
        return sorted(with_dead_letters(parts, dead))
