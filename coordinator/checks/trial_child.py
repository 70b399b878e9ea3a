"""The process in which steps are tried: `python -m dbsp.coordinator.checks.trial_child`, started by `trials`.

It loads the settings and the circuit once, and forks a process for each try. Only the fork opens databases and runs the
step on all workers, and it may die. Its writes are in transactions that are rolled back, and its outputs are discarded.

Protocol, a line each way, pickled in base64 or JSON; the first line in are the settings:

    child   {"ready": true}, or {"error": {…}}
    parent  (kind, `Trial`), kind "try" or "show"        child  {"death": "SIGSEGV" or null, "rows": […] of "show"}
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa

import dbsp.coordinator.garbage  # noqa: F401 - first, since it takes effect on the imports that follow
from dbsp.coordinator.build import load_plan, resources_of
from dbsp.coordinator.children import failure, put
from dbsp.coordinator.running.attempts import Trial
from dbsp.coordinator.serving.admission import free_bytes
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import ConfiguredResources
from dbsp.errors import DbspError, InternalError
from dbsp.logs import DeadLetter
from dbsp.logs.replays import replayed_changes
from dbsp.operators.failures import payload_of
from dbsp.plan.plan import Plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.work import Work
from dbsp.storage import WorkerDatabase
from dbsp.storage.transaction import Transaction
from dbsp.store import NOTHING_SHARED, CheckpointId, TraceSpec
from dbsp.zset.batch import Batch
from dbsp.zset.kernels.compile import compile_all

TRIAL_S = 300
"""Time limit of a try in seconds. No correct step of so few rows takes so long, so the try counts as a death."""
MEMORY_SHARE = 0.8
"""Share of the host's free memory that a try may use."""
PAYLOAD_CHARS_MAX = 1000
_OUT_OF_MEMORY, _LIVES = 3, 0


class _Rehearsal(Transaction):
    """A step's transaction that is rolled back at its end."""

    def finish(self) -> None:
        """Do the work of a transaction's end, and roll it back."""
        self.rehearse()


class _PrivateDatabase:
    """The part of a worker's database that a step uses, as it is on disk; nothing is ever written to it."""

    def __init__(self, database: WorkerDatabase) -> None:
        self._database = database

    def begin(
        self,
        epoch: int,
        step: int,
        segment: int,
        traces: Sequence[TraceSpec],
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> Transaction:
        """Begin a transaction that is rolled back at its end."""
        transaction = self._database.begin(epoch, step, segment, traces, shared)
        transaction.__class__ = _Rehearsal
        return transaction

    def state_bytes(self) -> int:
        """Return the bytes of the state before the step."""
        return self._database.state_bytes()


class _Nowhere:
    """An output log that accepts all rows and stores none."""

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Do nothing."""

    def accept(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Do nothing."""

    def differing(self, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> list[str]:  # noqa: ARG002
        """Return an empty list: no output differs."""
        return []


class _PrivateResources:
    """The pipeline's worker resources for reading only."""

    input_is_expensive = False

    def __init__(self, resources: ConfiguredResources) -> None:
        self._resources = resources
        self.input_log = resources.input_log

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:  # noqa: ARG002 - as in other resources
        """Return the worker's database, for reading."""
        return _PrivateDatabase(self._resources.database(worker))

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:  # noqa: ARG002 - as in other resources
        """Return an output log that stores nothing."""
        return _Nowhere()


def main() -> None:
    """Serve until the parent ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config: Config = pickle.loads(base64.b64decode(source.readline()))  # noqa: S301 - our own parent's
    try:
        plan = load_plan(config)
        _load()
        put(sink, {"ready": True})
    except DbspError as error:
        put(sink, failure(error))
        return
    except Exception as error:  # noqa: BLE001 - the parent reports it to the caller
        put(sink, failure(InternalError(f"{type(error).__name__}: {error}")))
        return
    while line := source.readline():
        kind, trial = pickle.loads(base64.b64decode(line))  # noqa: S301 - as above
        with tempfile.TemporaryFile() as shown:
            death = _in_a_fork(config, plan, kind, trial, shown)
            shown.seek(0)
            put(sink, {"death": death, "rows": json.loads(shown.read() or b"[]")})


def _load() -> None:
    """Load what every try needs, so that its fork has it: the kernels, and pandas, which Arrow looks for at its first value."""
    compile_all()
    pa.scalar(0)


def _in_a_fork(config: Config, plan: Plan, kind: str, trial: Trial, shown: BinaryIO) -> str | None:
    """Run a try in a forked process; return how the process died, None if it lived."""
    pid = os.fork()
    if pid == 0:
        code = _LIVES
        try:
            _bound()
            _tried(config, plan, trial) if kind == "try" else _show(config, plan, trial, shown)
        except MemoryError:
            code = _OUT_OF_MEMORY
        except BaseException:  # noqa: BLE001 - a step that fails as others do is judged where it runs
            code = _LIVES
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"it took more than {TRIAL_S} s" if number == signal.SIGALRM else signal.Signals(number).name
    code = os.WEXITSTATUS(status)
    if code == _OUT_OF_MEMORY:
        return "it ran out of memory"
    return None if code == _LIVES else f"it exited with code {code}"


def _bound() -> None:
    """Bound time and memory, and leave no core file."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TRIAL_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    free = free_bytes()
    if free is not None:
        most = int(free * MEMORY_SHARE)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _tried(config: Config, plan: Plan, trial: Trial) -> None:
    """Run the step on all workers."""
    resources: Any = _PrivateResources(resources_of(config, plan))
    runtime = InProcessRuntime(Work(resources=resources, plan=plan, run=""))
    runtime.epoch = trial.epoch
    runtime.run_step(trial.record, trial.layout)


def _show(config: Config, plan: Plan, trial: Trial, shown: BinaryIO) -> None:
    """Write the content of the rows of the step's ranges; reading them may end this process, too."""
    log, rows, record = resources_of(config, plan).input_log(), [], trial.record
    read = chain.from_iterable(log.read(range_, record.step) for range_ in record.ranges)
    for change in chain(read, replayed_changes(record.commands, {table.name: table for table in plan.tables})):
        columns = [change.batch.column(name).to_pylist() for name in change.batch.schema.names]
        for offset, values in zip(change.offsets.tolist(), zip(*columns, strict=True), strict=True):
            payload = payload_of(dict(zip(change.batch.schema.names, values, strict=True)))
            rows.append([change.table, change.partition, offset, payload[:PAYLOAD_CHARS_MAX]])
    shown.write(json.dumps(rows).encode())
    shown.flush()


if __name__ == "__main__":
    main()
