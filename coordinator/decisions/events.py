"""The events that the event loop feeds to the machine; the machine answers each with `commands`.

Every command but `Wait` and `Shutdown` is answered by exactly one event: the one named in its docstring, or `Failed`.
`CopyEnded` and `WarmEnded` answer no command: they are news, fed in between two commands as requests are.
Requests arrive at any time, and the next states answer them. All events are frozen values without behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.states import Halt
from dbsp.coordinator.strategies import COLD
from dbsp.distribute.course import Course
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId, VersionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What the ledger contains: layouts and courses, `used` the version of the layout in use, the requested rescale."""

    layouts: Mapping[int, Layout]
    courses: Mapping[int, Course]
    used: int
    members: frozenset[int]
    forming: frozenset[int]
    published: int
    rescale: int | None
    strategy: str
    accepted: tuple[Acceptance, ...] = ()
    fill: Fill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReady:
    """The event loop is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """This process owns the pipeline under `epoch`; `standing` is what the ledger says then.

    Another process may have owned the pipeline since the ledger was read; and of what this one wanted to write, before it failed,
    the ledger may have taken up some or nothing.
    """

    epoch: int
    standing: LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """These workers have databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """Every worker that had to be asked refuses older epochs, and so do `others` that could be reached."""

    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsRead:
    """What the workers that were reached can open."""

    held: Mapping[int, tuple[VersionInfo, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOpened:
    """Every worker of the layout stands at the checkpoint."""

    version: int
    checkpoint: CheckpointId
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """Databases that no openable version names are gone, but for those of workers `left`, which could not be reached."""

    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsRead:
    """The step log from the checkpoint on."""

    records: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesAccepted:
    """The ledger holds all acceptances that count, these too."""

    accepted: tuple[Acceptance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The next step's record is durable; None: nothing waits."""

    record: StepRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A step's outputs are durable; `ahead`: the record of the one after it, if it was logged meanwhile; `over`: it has ended
    the migration.
    """

    step: int
    ahead: StepRecord | None = None
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPinned:
    """Every worker keeps the cut, and its copying has begun: steps may go on."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The copy that was waited for is on every worker."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnded:
    """News, at any time: every worker acknowledged the version, or (`code`) the copying failed."""

    version: int
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The ledger holds the version; logs below the oldest openable one are trimmed."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutLogged:
    """The ledger holds the new layout and who may get a database by it."""

    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Redistributed:
    """Every worker of the new layout holds the version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergesHeld:
    """Merges wait: the next checkpoint is worth copying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmBegun:
    """A round of a warm-up copies beside the steps."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEnded:
    """News, at any time: the new owners have all of the round's version, and lacked `lag_bytes` of it; or (`code`) it failed."""

    round: int
    lag_bytes: int = 0
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooled:
    """No round goes on, and no worker keeps anything that was copied ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The ledger no longer holds a request to rescale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The step log holds the decision: the record as it is now."""

    record: StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """A wait or a pause after a failure is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The command under way raised an error; `code` is the error's kind; `halt`: rows failed, and will at every replay.

    `deferred`: the rows that failed were left to a later step, and their input waits.
    """

    code: str
    message: str
    halt: Halt | None = None
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAsked:
    """By a user, or because the interval is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """Take no further step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAsked:
    """Take steps again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleAsked:
    """Go on with `workers` workers; the ledger holds the request already."""

    workers: int
    strategy: str = COLD


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """Take back a rescale that has not come to its switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Checkpoint and end; `now`: end without a checkpoint."""

    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeAsked:
    """End at a checkpoint with no later logged step, so that another version of the engine can go on from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipAsked:
    """Go on without the rows that fail in step `step`; `command` is the decision where the machine does not know it."""

    step: int
    command: str | None = None


Request = (
    CheckpointAsked | PauseAsked | ResumeAsked | RescaleAsked | CancelAsked | StopAsked | UpgradeAsked | SkipAsked
)  # fmt: skip
News = CopyEnded | WarmEnded
Event = (
    LoopReady | Claimed | Created | Fenced | VersionsRead | VersionOpened | Discarded | StepsRead | EnginesAccepted | Recorded
    | StepDone | VersionPinned
    | Copied | News | Published | LayoutLogged | Redistributed | MergesHeld | WarmBegun | Cooled | Forgotten | Decided | Woken
    | Failed | Request
)  # fmt: skip
