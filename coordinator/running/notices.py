"""The notices that observers receive about events in the service; each kind is a dataclass.

The event log writes a notice as one line: `EVENT` is the value of `event`, and the fields keep their names. So field
names belong to the format of the log and do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A report of an event in the service, sent to all observers."""

    EVENT: ClassVar[str]
    IS_LOGGED: ClassVar[bool] = True
    """Whether the event log has a line for it."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the notice by name."""
        return asdict(self)


Notify = Callable[[Notice], None]
"""A function that passes a notice to all observers; any thread may call it."""


class Observer(Protocol):
    """A receiver of steps and notices: metrics, the event log."""

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Receive the report of a finished step."""
        ...

    def noted(self, notice: Notice) -> None:
        """Receive a notice of any other event."""
        ...


# --- the service and its state -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Notice):
    """The machine entered another state; `step` is the next step."""

    EVENT: ClassVar[str] = "state"
    state: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailed(Notice):
    """A command raised an error of kind `code`."""

    EVENT: ClassVar[str] = "failed"
    command: str
    code: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack(Notice):
    """The service rolls back after so many failures in a row."""

    EVENT: ClassVar[str] = "rollback"
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochClaimed(Notice):
    """The pipeline belongs to this process under `epoch`."""

    EVENT: ClassVar[str] = "claimed"
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFound(Notice):
    """The data folder had no ledger, so the one that the step log carries is used; `run` names the pipeline's run."""

    EVENT: ClassVar[str] = "ledger-found"
    run: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFailed(Notice):
    """The runtime raised an error when it was closed."""

    EVENT: ClassVar[str] = "close-failed"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEnded(Notice):
    """The service ended; `code` is "ok" or the kind of the error."""

    EVENT: ClassVar[str] = "end"
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCrashed(Notice):
    """The event loop ended with an error that it does not handle."""

    EVENT: ClassVar[str] = "crash"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BugFound(Notice):
    """A request failed with an unexpected error; `error` is its traceback."""

    EVENT: ClassVar[str] = "bug"
    where: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded(Notice):
    """The pipeline of another engine version goes on in this process."""

    EVENT: ClassVar[str] = "upgraded"
    before: str
    to: str
    step: int
    pause_seconds: float


# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCut(Notice):
    """A step was cut and its record is durable; `seconds` is the time from the look at the input to that. It has no line."""

    EVENT: ClassVar[str] = "cut"
    IS_LOGGED: ClassVar[bool] = False
    step: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(Notice):
    """A step finished; written only where the settings ask for it."""

    EVENT: ClassVar[str] = "step"
    step: int
    seconds: float
    rows_in: int
    replay: bool
    lag_rows: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDied(Notice):
    """A step ended its process, for the `deaths`-th time."""

    EVENT: ClassVar[str] = "step-died"
    step: int
    deaths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTried(Notice):
    """A step was tried in a process of its own; `death` says how the process died, None if it survived."""

    EVENT: ClassVar[str] = "step-tried"
    step: int
    death: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNotTried(Notice):
    """A step could not be tried in a process of its own."""

    EVENT: ClassVar[str] = "step-not-tried"
    step: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsIdle(Notice):
    """The set of idle partitions changed: from this step on these, as (table, partition), hold no waterline back."""

    EVENT: ClassVar[str] = "idle"
    step: int
    partitions: Sequence[Sequence[str | int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLogged(Notice):
    """The step log contains a decision of a user about a step."""

    EVENT: ClassVar[str] = "decision"
    step: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAccepted(Notice):
    """Steps up to `last` that version `engine` logged may be run again by version `by`."""

    EVENT: ClassVar[str] = "engine-accepted"
    engine: str
    by: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNotLocated(Notice):
    """The input row of a failure could not be found."""

    EVENT: ClassVar[str] = "not-located"
    step: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNotDeferred(Notice):
    """A failed row could not be left to a later step."""

    EVENT: ClassVar[str] = "not-deferred"
    step: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRefused(Notice):
    """A row failed; it waits for a decision, and steps go on without its partition."""

    EVENT: ClassVar[str] = "input-refused"
    step: int
    table: str
    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimFailed(Notice):
    """The logs could not be trimmed below a step; the next checkpoint tries again."""

    EVENT: ClassVar[str] = "trim-failed"
    step: int
    error: str


# --- workers, checkpoints and rescales -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersRestored(Notice):
    """The databases of these workers were restored from standbys or copies."""

    EVENT: ClassVar[str] = "restored"
    workers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReturned(Notice):
    """Databases of these workers were lost: all workers go back to `version` of the copies, and run again from `step` on."""

    EVENT: ClassVar[str] = "returned-to-copies"
    version: int
    step: int
    lost: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLost(Notice):
    """The databases of these workers are gone, or cannot be written, though their hosts answer."""

    EVENT: ClassVar[str] = "disk-lost"
    workers: Sequence[int]
    hosts: Sequence[str]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMoved(Notice):
    """A host or its disk was lost: one of its workers is on `host` from this epoch on, where its database is made again."""

    EVENT: ClassVar[str] = "worker-moved"
    worker: int
    host: str
    lost: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TookOver(Notice):
    """Standbys on these hosts became the databases of workers that moved there; nothing was copied."""

    EVENT: ClassVar[str] = "took-over"
    workers: Sequence[int]
    hosts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbysBehind(Notice):
    """Standbys could not follow to the opened version, or old ones could not be deleted; the next checkpoint tries again."""

    EVENT: ClassVar[str] = "standbys-behind"
    version: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StraysDiscarded(Notice):
    """Hosts that were lost answer again, and databases that workers left there were deleted; or `error` says why not."""

    EVENT: ClassVar[str] = "strays-discarded"
    workers: Sequence[int]
    hosts: Sequence[str]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersNotReached(Notice):
    """Some workers could not be reached, and are left as they are."""

    EVENT: ClassVar[str] = "not-reached"
    workers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPublished(Notice):
    """Every worker acknowledged a checkpoint."""

    EVENT: ClassVar[str] = "checkpoint"
    version: int
    step: int
    seconds: float
    pause_seconds: float
    bytes_written: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleMoved(Notice):
    """A rescale has moved all state; `bytes_ahead` of the bytes were moved while steps ran."""

    EVENT: ClassVar[str] = "rescale"
    workers: int
    workers_before: int
    shards_moved: int
    shards: int
    bytes_moved: int
    bytes_total: int
    bytes_ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationBegun(Notice):
    """A migration that moves keys in steps begins."""

    EVENT: ClassVar[str] = "migration"
    strategy: str
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupRound(Notice):
    """A round of a warm-up ended."""

    EVENT: ClassVar[str] = "warmup"
    round: int
    lag_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupEnded(Notice):
    """A warm-up was cancelled."""

    EVENT: ClassVar[str] = "warmup-ended"
    copied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaled(Notice):
    """Autoscale requested another number of workers; no worker is placed on the hosts `excluded`."""

    EVENT: ClassVar[str] = "autoscale"
    workers: int
    workers_before: int
    lag_rows: int
    excluded: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleFailed(Notice):
    """Autoscale could not request another number of workers."""

    EVENT: ClassVar[str] = "autoscale-failed"
    workers: int
    error: str


# --- alarms, files and background work -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRaised(Notice):
    """An alarm is on."""

    EVENT: ClassVar[str] = "alarm"
    kind: str
    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOver(Notice):
    """An alarm is over."""

    EVENT: ClassVar[str] = "alarm-over"
    kind: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFailed(Notice):
    """The thread that watches the service failed with an error."""

    EVENT: ClassVar[str] = "watch-failed"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReloaded(Notice):
    """A changed file (tokens, a certificate) is in use."""

    EVENT: ClassVar[str] = "reloaded"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupMade(Notice):
    """A backup is complete."""

    EVENT: ClassVar[str] = "backup"
    folder: str
    pipeline: str
    at: str
    step: int
    version: int
    checkpoint_step: int
    workers: int
    bytes: int
    engine: str
    left_out: Sequence[str]
    seconds: float
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFailed(Notice):
    """A backup failed."""

    EVENT: ClassVar[str] = "backup-failed"
    folder: str
    code: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWorks(Notice):
    """The copy of a topic succeeds again."""

    EVENT: ClassVar[str] = "copy-works"
    table: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFailed(Notice):
    """The copy of a topic fails."""

    EVENT: ClassVar[str] = "copy-failed"
    table: str
    topic: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaWritten(Notice):
    """A Delta table is written again."""

    EVENT: ClassVar[str] = "delta-written"
    view: str
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFailed(Notice):
    """A Delta table cannot be written."""

    EVENT: ClassVar[str] = "delta-failed"
    view: str
    uri: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesFailed(Notice):
    """The collector does not take spans; these and the following are dropped until it does."""

    EVENT: ClassVar[str] = "traces-failed"
    endpoint: str
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesSent(Notice):
    """The collector takes spans again."""

    EVENT: ClassVar[str] = "traces-sent"
    endpoint: str
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsTried(Notice):
    """User functions ran twice; those listed gave different results."""

    EVENT: ClassVar[str] = "functions-tried"
    not_deterministic: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsNotTried(Notice):
    """User functions could not be run twice."""

    EVENT: ClassVar[str] = "functions-not-tried"
    error: str
