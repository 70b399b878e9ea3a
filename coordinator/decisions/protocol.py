"""The states of the machine, and the events that the shell tells it; what it answers are `orders`.

Every command but `Wait` and `Finish` is answered by exactly one event: the one named in its docstring, or `Failed`.
`CopyEnded` and `WarmEnded` answer nothing: they are news, told between two commands as requests are.
Requests come at any time and are answered by what the state becomes. All are frozen values without behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.strategies import COLD, WARMUP
from dbsp.distribute.course import Course
from dbsp.layout import Layout
from dbsp.logs import Range, StepRecord
from dbsp.store import CheckpointId, VersionInfo
from dbsp.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """Requests that were made and not yet met; `strategy` is that of the `rescale`, `cancel` takes one back.

    `upgrade` ends as a stop does, but at a checkpoint with no later logged step or not at all.
    """

    checkpoint: bool = False
    pause: bool = False
    stop: bool = False
    rescale: int | None = None
    strategy: str = COLD
    cancel: bool = False
    upgrade: bool = False

    @property
    def end(self) -> bool:
        """Whether this process is to end at a checkpoint."""
        return self.stop or self.upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """A row on which a step ended: the input it came from where that is known (else `offset` is -1), and why.

    `payload` is the row as the node saw it.
    """

    table: str
    partition: int
    offset: int
    reason: str
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Why the pipeline takes no further step: at node `node` of step `step` rows failed under the error policy `stop`.

    `rows` are the first of `count`; `command` is the decision that lets the step go on without them. Where the step ends the
    process that runs it, `death` says how, `node` is -1, `ranges` are what the step takes, and the decision is found by trying.
    """

    step: int
    node: int
    name: str
    command: str
    count: int
    rows: tuple[FailedRow, ...]
    message: str
    death: str = ""
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A checkpoint whose cut is pinned and is being copied beside the steps; `ended`: on all workers, or (`code`) it failed."""

    version: int
    checkpoint: CheckpointId
    ended: bool = False
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """A rescale that is prepared while steps go on, in rounds: what the new owners lack of one published version is copied.

    Of one whose keys move in steps (`strategy`) nothing is: its rounds are the checkpoints alone, and `new` is the layout of
    those steps. `workers` is how many there are in the end. `version` was cut before step `step`; `lag_bytes` is what they lacked
    of it when round `round` began. `ended`: all is there, or (`code`) the round failed. `awaited` is the first version that was
    cut after the round. `ready`: what is left is little enough to be copied between two steps.
    """

    new: Layout
    workers: int
    strategy: str = WARMUP
    round: int = 0
    version: int = 0
    step: int = 0
    ended: bool = False
    lag_bytes: int = 0
    code: str | None = None
    message: str = ""
    awaited: int | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the coordinator knows.

    `members` are the workers that may have a database; of them `forming` may have none yet. `version` is the opened one,
    `checkpoint_step` the step it was taken at, `next_step` the next to run. `published` is the greatest version ever
    acknowledged to anybody. `rescale_error` says why the last rescale was given up. `halt` is the step that nothing but a
    decision lets go on. `copying` is the one checkpoint in flight, `warming` the rescale that is prepared beside the steps;
    it is over when no more than `acceptable_recovery_lag` bytes are missing. `course` is the migration that moves `keys_per_step`
    keys of every owner in each step; `courses` are all that were logged, by the version of the layout their steps run in.
    `version_layout` is the version of the layout of the opened one. `engine` is the version of the engine that runs; of what
    others have logged it replays what is `accepted` in the ledger, and accepts now what those in `accepting` have logged.
    `failures` are those in a row, up to step `failed_step`; `copy_failures` those of copies since a version was published.
    `aways` counts the failures in a row because a system of others was away; `failed_as` is the story of the last failure that
    no waiting cures.
    `upgrade_error` says why the last upgrade was given up. `fill` is the step that comes first after the circuit was changed.
    """

    run: str
    fingerprint: str
    layouts: Mapping[int, Layout]
    layout: Layout
    members: frozenset[int]
    forming: frozenset[int]
    published: int = 0
    epoch: int = 0
    version: int = 0
    checkpoint_step: int = 0
    next_step: int = 0
    failures: int = 0
    copy_failures: int = 0
    failed_step: int = -1
    failed_as: str | None = None
    aways: int = 0
    failures_max: int = 5
    wants: Wants = field(default_factory=Wants)
    rescale_error: str | None = None
    halt: Halt | None = None
    copying: Copy | None = None
    warming: Warming | None = None
    acceptable_recovery_lag: int = 16 << 20
    course: Course | None = None
    courses: Mapping[int, Course] = field(default_factory=dict)
    keys_per_step: int = 10_000
    version_layout: int = 0
    engine: str = VERSION
    accepted: tuple[Acceptance, ...] = ()
    accepting: frozenset[str] = frozenset()
    upgrade_error: str | None = None
    fill: Fill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the ledger says of the workers: its layouts and courses, `used` the version of the one in use, the wish to rescale."""

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


# --- states ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """Nothing was done yet."""

    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """Claiming an epoch, fencing, choosing a version, opening it; `awaits` names the event that comes next.

    `records` are kept while it is noted who may run them again ("accepted").
    """

    facts: Facts
    awaits: str
    records: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """Running again the logged steps since the opened checkpoint; `records[0]` is under way."""

    facts: Facts
    records: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Steps go on: `record` is under way, or the next one is being cut (`awaits` "record"), or input waited for ("input")."""

    facts: Facts
    record: StepRecord | None = None
    awaits: str = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """Between two steps: the cut before the next one is pinned as `version` (`awaits` "pinned"), what was pinned earlier and
    copied since is waited for ("copied"; only a stop or a rescale waits) or published ("published"), or workers that a migration
    has left without a key are taken away ("discarded").

    `ahead` is kept for afterwards.
    """

    facts: Facts
    version: int
    checkpoint: CheckpointId
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """The opened version is being sliced into `version` of layout `new`; `warm`: most of it was copied ahead.

    With a `course` nothing moves yet: `new` is the layout in which its steps will move keys.
    """

    facts: Facts
    version: int
    checkpoint: CheckpointId
    new: Layout
    awaits: str
    warm: bool = False
    course: Course | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingUp:
    """Between two steps: databases are made for a warm-up ("logged", "discarded", "created", "fenced"), merges are held
    ("held"), or a round begins ("begun").
    """

    facts: Facts
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelling:
    """Between two steps: what a warm-up has made is taken away ("cooled", "discarded", "forgotten"), or a migration turns round
    ("logged").
    """

    facts: Facts
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """No step is taken until `ResumeAsked`."""

    facts: Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """Rows of the next step, `records[0]`, fail; `awaits` "decision" of a user, or "logged": it is being written."""

    facts: Facts
    records: tuple[StepRecord, ...]
    awaits: str = "decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The last checkpoint of a graceful stop is being written; `awaits` as in `Checkpointing`."""

    facts: Facts
    version: int
    checkpoint: CheckpointId
    awaits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The end, as asked for."""

    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The end, because of an error (shown to users as Failed)."""

    facts: Facts
    code: str
    message: str


State = (
    Starting | Recovering | Replaying | Running | Checkpointing | Rescaling | WarmingUp | Cancelling | Paused | Halted
    | Stopping | Stopped | Broken
)  # fmt: skip


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The shell is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """This process owns the pipeline under `epoch`; `standing` is what the ledger says then.

    Another process may have owned the pipeline since the ledger was read; and of what this one wanted to write, before it failed,
    the ledger may have taken up some or nothing.
    """

    epoch: int
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """These workers have databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """Every worker that had to be asked refuses older epochs, and so do `others` that could be reached."""

    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the workers that were reached can open."""

    held: Mapping[int, tuple[VersionInfo, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
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
class Pinned:
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
    """The ledger no longer holds a wish to rescale."""


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
    """Go on with `workers` workers; the ledger holds the wish already."""

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
    Begin | Claimed | Created | Fenced | Held | Opened | Discarded | StepsRead | EnginesAccepted | Recorded | StepDone | Pinned
    | Copied | News | Published | LayoutLogged | Redistributed | MergesHeld | WarmBegun | Cooled | Forgotten | Decided | Woken
    | Failed | Request
)  # fmt: skip
