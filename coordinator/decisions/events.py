"""The events that the event loop feeds to the machine; the machine reacts to each with `commands`.

Every command but `Wait` and `Shutdown` gets exactly one event as its result: the event that its docstring names, or
`Failed`. `CopyEnded` and `WarmEnded` are news: they are fed between two commands, and are the result of none. Requests
arrive at any time, and the next states serve them. All events are frozen values without behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.decisions.states import Halt
from dbsp.coordinator.decisions.strategies import COLD
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.hosts import Offered
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId, VersionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """The contents of the ledger, such as layouts, migration plans (`migration_plans`), workers and the requested rescale.

    `used` is the version of the layout in use. `offered` are the hosts on offer, None if the ledger has never noted any.
    `rescale_rows` are the recent rows of each input partition as of the request to rescale. `rescale_excluded` are the hosts that
    the requested rescale leaves out; None if it has named its hosts.
    """

    layouts: Mapping[int, Layout]
    migration_plans: Mapping[int, MigrationPlan]
    used: int
    members: frozenset[int]
    forming: frozenset[int]
    published: int
    rescale: int | None
    strategy: str
    accepted: tuple[Acceptance, ...] = ()
    fill: Fill | None = None
    moved: tuple[MovedWorker, ...] = ()
    offered: Offered | None = None
    rescale_rows: Mapping[str, tuple[int, ...]] | None = None
    rescale_excluded: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReady:
    """The event loop is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The pipeline belongs to this process under `epoch`; `standing` is the contents of the ledger at that moment.

    The ledger may differ from what was read before: another process may have owned the pipeline meanwhile. Writes of
    this process that failed may or may not have reached the ledger.
    """

    epoch: int
    standing: LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The workers of the command have databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """Every required worker refuses older epochs, and so do those of `others` that could be reached."""

    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsLost:
    """No worker was fenced, as these hosts have been silent for too long.

    `silent` are all hosts that do not answer now. `movable`: the state of workers can be made again on any other host.
    `standbys` are pairs of a worker of a lost host and a host that answers, whose standby has the published version.
    """

    hosts: tuple[str, ...]
    silent: tuple[str, ...]
    movable: bool
    standbys: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DisksLost:
    """The databases of `workers` are gone, or cannot be written, though their hosts answer.

    `unwritable` are the hosts whose disks cannot be written, and `silent` those that do not answer now. `movable`: the state of
    workers can be made again on any other host. `standbys` are pairs of such a worker and a host that answers, whose standby has
    the published version. `message` is that of the error by which the loss was noticed.
    """

    workers: tuple[int, ...]
    unwritable: tuple[str, ...]
    silent: tuple[str, ...]
    movable: bool
    standbys: tuple[tuple[int, str], ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersMoved:
    """The ledger has the new hosts of the workers of lost hosts and disks; `standing` is its contents."""

    standing: LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsRead:
    """The versions that the reached workers can open, by worker."""

    held: Mapping[int, tuple[VersionInfo, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedToCopies:
    """The ledger is that of `version`, which is whole among the copies; `standing` is its contents, `step` the next step."""

    version: int
    step: int
    standing: LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingCopied:
    """No version is whole among the copies; `message` names what is lost."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOpened:
    """Every worker of the layout has the state of the checkpoint; `moved` are the workers that left lost hosts."""

    version: int
    checkpoint: CheckpointId
    layout: Layout
    moved: tuple[MovedWorker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """Databases that no openable version names are deleted, except those of workers `left`, which could not be reached."""

    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRead:
    """The records of the step log from the checkpoint on, and per table the recent rows of each input partition."""

    records: tuple[StepRecord, ...]
    partitions: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesAccepted:
    """The ledger contains all acceptances that apply, including the new ones."""

    accepted: tuple[Acceptance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The record of the next step is durable; None if no row waits."""

    record: StepRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """The outputs of a step are durable.

    `ahead` is the record of the next step, if it was logged meanwhile. `over`: the step has ended the migration.
    """

    step: int
    ahead: StepRecord | None = None
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPinned:
    """Every worker keeps the cut, and its copy has begun: steps may go on."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The copy that was waited for is complete on every worker."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnded:
    """News, at any time: every worker has acknowledged the version, or the copy failed with error kind `code`."""

    version: int
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsAwaited:
    """News, at any time: all `hosts` answer on which the requested rescale places workers, or `silent` were awaited in vain.

    No worker is on these hosts yet.
    """

    hosts: tuple[str, ...]
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The ledger contains the version; logs below the oldest openable version are trimmed."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutLogged:
    """The ledger contains the new layout, and the workers that may get a database by it."""

    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Redistributed:
    """Every worker of the new layout holds the version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergesHeld:
    """Merges are suspended: the chunks of the next checkpoint stay in use, so that copying them ahead pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmBegun:
    """A round of a warm-up has begun to copy while steps run."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEnded:
    """News, at any time: a round of a warm-up has ended, or failed with error kind `code`.

    The new owners have all of the round's version; they lacked `lag_bytes` of it when the round began.
    """

    round: int
    lag_bytes: int = 0
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooled:
    """No round is under way, and no worker keeps anything that was copied ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The ledger no longer contains a request to rescale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The step log contains the decision; `record` is the record with it."""

    record: StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """A wait, or a delay after a failure, is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The command under way raised an error; `code` is the error's kind.

    `halt`: rows failed, and will fail at every replay. `deferred`: the rows that failed were left to a later step, and
    their input waits.
    """

    code: str
    message: str
    halt: Halt | None = None
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAsked:
    """Take a checkpoint; requested by a user, or because the interval is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """Take no further step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """Take steps again after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleAsked:
    """Go on with `workers` workers, on these hosts if some are named; the ledger contains the request already.

    `partitions` has per table the recent rows of each input partition; None where nobody has counted them. Workers are placed on
    no host in `excluded`; None if a user has named the hosts.
    """

    workers: int
    strategy: str = COLD
    hosts: Offered | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None
    excluded: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """Cancel a rescale that has not reached its switch, or turn back a migration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Checkpoint and end; with `now` end without a checkpoint."""

    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeAsked:
    """End at a checkpoint with no later logged step, so that another version of the engine can continue from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipAsked:
    """Go on without the rows that fail in step `step`.

    `command` is the decision, where the machine does not know it.
    """

    step: int
    command: str | None = None


Request = (
    CheckpointAsked | PauseAsked | ResumeAsked | RescaleAsked | CancelAsked | StopAsked | UpgradeAsked | SkipAsked
)  # fmt: skip
News = CopyEnded | WarmEnded | HostsAwaited
Event = (
    LoopReady | Claimed | Created | Fenced | HostsLost | DisksLost | WorkersMoved
    | VersionsRead | ReturnedToCopies | NothingCopied | VersionOpened | Discarded | StepsRead | EnginesAccepted | Recorded
    | StepDone | VersionPinned
    | Copied | News | Published | LayoutLogged | Redistributed | MergesHeld | WarmBegun | Cooled | Forgotten | Decided | Woken
    | Failed | Request
)  # fmt: skip
