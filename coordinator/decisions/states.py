"""The states of the machine, and the facts that they carry: frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbsp.coordinator.decisions.engines import Acceptance
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.decisions.strategies import COLD, WARMUP
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.hosts import Offered
from dbsp.layout import Layout
from dbsp.logs import Range, StepRecord
from dbsp.store import CheckpointId
from dbsp.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """The requests that are not served yet; `strategy` belongs to `rescale`, `cancel` cancels a rescale.

    `hosts` are the hosts that the newest rescale named. They can be used after that rescale is over or cancelled, too.
    With None, the hosts of the layout can be used.
    `excluded` belongs to `rescale`: the hosts that it leaves out, as they are lost or their disks cannot be written.
    None if it has named its hosts. `silent` are those of its hosts that were awaited in vain; None while they are awaited.
    `upgrade` ends the process like a stop, but only at a checkpoint with no later logged step.
    """

    checkpoint: bool = False
    pause: bool = False
    stop: bool = False
    rescale: int | None = None
    strategy: str = COLD
    hosts: Offered | None = None
    excluded: tuple[str, ...] | None = None
    silent: tuple[str, ...] | None = None
    cancel: bool = False
    upgrade: bool = False

    @property
    def end(self) -> bool:
        """Return True if a stop or an upgrade was requested: this process ends at its next checkpoint."""
        return self.stop or self.upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRow:
    """A row that made a step fail: its position in the input (`offset` is -1 if unknown), and the reason.

    `payload` is the row as the node received it.
    """

    table: str
    partition: int
    offset: int
    reason: str
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """The reason why the pipeline takes no further step: rows failed at `node` of step `step` under the error policy `stop`.

    `rows` are the first of `count` rows; `command` is the decision that lets the step run without them. A step may also
    end the process that runs it. Then `death` says how, `node` is -1, `ranges` are the input of the step, and trials
    find the decision.
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
    """A checkpoint whose cut is pinned and copied while steps run; `ended` on all workers, or failed with error kind `code`."""

    version: int
    checkpoint: CheckpointId
    ended: bool = False
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """A rescale that is prepared while steps run, in rounds; each copies what the new owners lack of one published version.

    If keys move in the steps (`strategy`), the rounds are checkpoints only, and `new` is the layout of those steps.

    - `workers` is the final number of workers.
    - `version` is the version that the round copies; its cut is before step `step`.
    - `lag_bytes` is what the new owners lacked of the version when round `round` began.
    - `ended`: all is copied, or the round failed with error kind `code`.
    - `awaited` is the first version whose cut is after the round.
    - `ready`: the rest is small enough to be copied between two steps.
    - `excluded` are the hosts that the rescale leaves out (`Requested.excluded`).
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
    excluded: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The knowledge of the coordinator, which every state carries.

    - `members` are the workers that may have a database; `forming` are those of them that may have none yet.
    - `version` is the opened version, `version_layout` the version of its layout, `checkpoint_step` the step of its
      cut.
    - `next_step` is the next step to run.
    - `published` is the greatest version that was ever acknowledged to anyone.
    - `rescale_error` and `upgrade_error` say why the last rescale or upgrade was abandoned.
    - `halt` is the step that cannot run until a user decides about its failing rows.
    - `copying` is the checkpoint in flight, of which there is at most one.
    - `warming` is the rescale that is prepared while steps run, until at most `acceptable_recovery_lag` bytes are
      missing.
    - `migration_plan` is the migration plan in use, which moves `keys_per_step` keys of every owner in each step.
    - `migration_plans` are all logged migration plans, by the version of the layout their steps run in.
    - `engine` is the version of the engine that runs. It replays steps of other versions if the ledger has `accepted`
      them; this start also accepts the steps of the versions in `accepting`.
    - `failures` counts the failures in a row, the last of them at step `failed_step`; `copy_failures` counts the
      failed copies since a version was published.
    - `aways` counts the failures in a row because an external system was away.
    - `failed_as` identifies the last failure that waiting does not cure.
    - `fill` is the backfill step, the first step after a change of the circuit.
    - `moved` are the workers that left lost hosts.
    - `copies_lag`: the copies of checkpoints may lag behind. `returned` is the version of the copies to which this recovery has
      returned all workers.
    - `partitions` has per table the recent rows of each input partition, as of the last look; None before one.
    - `only_published`: no version above the published one is opened, because standbys on other hosts may lack it.
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
    only_published: bool = False
    requested: Requested = field(default_factory=Requested)
    rescale_error: str | None = None
    halt: Halt | None = None
    copying: Copy | None = None
    warming: Warming | None = None
    acceptable_recovery_lag: int = 16 << 20
    migration_plan: MigrationPlan | None = None
    migration_plans: Mapping[int, MigrationPlan] = field(default_factory=dict)
    keys_per_step: int = 10_000
    version_layout: int = 0
    engine: str = VERSION
    accepted: tuple[Acceptance, ...] = ()
    accepting: frozenset[str] = frozenset()
    upgrade_error: str | None = None
    fill: Fill | None = None
    moved: tuple[MovedWorker, ...] = ()
    copies_lag: bool = False
    returned: int | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def offered(self) -> Offered:
        """Return the hosts on which a rescale places workers."""
        return self.layout.offered if self.requested.hosts is None else self.requested.hosts


# --- states ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """The state before anything was done."""

    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """The state while an epoch is claimed, workers are fenced, and a version is chosen and opened.

    `awaits` names the next event. `records` are kept while the ledger notes that this engine may replay them
    ("accepted").
    """

    facts: Facts
    awaits: str
    records: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """The state while logged steps since the opened checkpoint run again; `records[0]` is under way."""

    facts: Facts
    records: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The state in which steps run: `record` is under way, or the next is cut ("record"), or input is awaited ("input")."""

    facts: Facts
    record: StepRecord | None = None
    awaits: str = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """A state between two steps, in which the coordinator works on a checkpoint.

    `awaits` says what it waits for:

    - "pinned": the cut before the next step is being pinned as `version`.
    - "copied": a cut that was pinned earlier is being copied; only a stop or a rescale waits for the copy.
    - "published": the copied version is being published.
    - "discarded": workers that a migration has left without a key are being removed.

    `ahead` is the record of the next step, kept for later.
    """

    facts: Facts
    version: int
    checkpoint: CheckpointId
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """The state while the opened version is sliced into `version` of layout `new`; `warm`: most of it was copied ahead.

    With a `migration_plan` nothing moves yet: `new` is the layout in which the plan's steps move keys.
    """

    facts: Facts
    version: int
    checkpoint: CheckpointId
    new: Layout
    awaits: str
    warm: bool = False
    migration_plan: MigrationPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingUp:
    """A state between two steps, in which a warm-up is prepared or a round begins.

    Databases are created ("logged", "discarded", "created", "fenced"), merges are suspended ("held"), or a round begins
    ("begun").
    """

    facts: Facts
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelling:
    """A state between two steps, in which a rescale is cancelled.

    What a warm-up has made is removed ("cooled", "discarded", "forgotten"), or a migration turns back ("logged").
    """

    facts: Facts
    awaits: str
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The state in which no step is taken until `ResumeAsked`."""

    facts: Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """The state in which rows of the next step, `records[0]`, fail.

    `awaits` is "decision" while a user must decide, and "logged" while the decision is written.
    """

    facts: Facts
    records: tuple[StepRecord, ...]
    awaits: str = "decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The state while the last checkpoint of a graceful stop is written; `awaits` as in `Checkpointing`."""

    facts: Facts
    version: int
    checkpoint: CheckpointId
    awaits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The final state after a requested end."""

    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The final state after an error; users see it as Failed."""

    facts: Facts
    code: str
    message: str


State = (
    Starting | Recovering | Replaying | Running | Checkpointing | Rescaling | WarmingUp | Cancelling | Paused | Halted
    | Stopping | Stopped | Broken
)  # fmt: skip
