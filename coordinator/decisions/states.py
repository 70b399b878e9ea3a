"""The states of the machine, and the facts that they carry. All are frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.strategies import COLD, WARMUP
from dbsp.distribute.course import Course
from dbsp.layout import Layout
from dbsp.logs import Range, StepRecord
from dbsp.store import CheckpointId
from dbsp.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
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
class LocatedRow:
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
    rows: tuple[LocatedRow, ...]
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
    requested: Requested = field(default_factory=Requested)
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
