"""The durable ledger of the coordinator: the identity of the pipeline, its layouts, its checkpoints, and the user's requests.

The ledger is one small file (`ledger_file`). Each write is one synced transaction that checks the epoch (invariant 6).
`MemoryControl` is its twin for tests and the simulator; both pass the same contract tests.

Step records and rows are not in the ledger; they have their own logs. Recovery asks the workers which versions they
have. The ledger only adds the input positions at a checkpoint, and the layouts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dbsp.coordinator.decisions import engines
from dbsp.coordinator.decisions.cutting import NOWHERE, Positions
from dbsp.coordinator.decisions.events import LedgerState
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.moved_workers import MovedWorker, StandbyPlace
from dbsp.coordinator.decisions.recovery import serves
from dbsp.coordinator.decisions.strategies import COLD
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import DataError, FencedError
from dbsp.hosts import HostChoice, Offered
from dbsp.layout import Layout
from dbsp.plan.signatures import Signatures
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId
from dbsp.stored.levels import BEFORE, NEWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint in the ledger: its input positions and timing; `published` once all workers have acknowledged it."""

    version: int
    checkpoint: CheckpointId
    positions: Positions
    timing: Timing
    wall_us: int
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """The number of processes that ended during a step, since the last trial of the step that survived."""

    step: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredViews:
    """The reading of the circuit's views (`dbsp.plan.stored_views`), as version `by` stored it for itself."""

    by: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The whole contents of the ledger, as one value.

    - `name` is the pipeline's name; `input` and `output` are the kinds of its logs. They are "" in ledgers of versions
      that did not
      note them.
    - `nodes` are the (label, token) pairs of the fingerprint, so that a refused circuit can name the node that differs.
    - `signatures` say which part of the state a changed circuit can keep.
    - `members` are the workers that may have a database; `forming` of them may have none yet.
    - `views` say how views are read, for a process with another circuit; None in ledgers of versions that did not note it.
    - `fill` is the first step after a change of the circuit; `retired` are the views that changes have dropped.
    - `began` maps each view that was edited, or made again after it was dropped, to the step of its first output.
    - `moved` are the workers that left lost hosts.
    - `hosts` are the hosts on which workers may be placed; None in ledgers of versions that did not note them.
    - `own_disk_since`: a database on the coordinator's own disk that was last fenced in an older epoch is stale. A coordinator
      on another host has published checkpoints since.
    - `copied` is the version from which logs are kept while copies lag behind (`lagging`); None if they do not lag.
    - `returned` are the workers whose databases of before an epoch are stale, since all workers returned to the copies.
    - `given_up` is the epoch of the last such return: versions of this epoch and before, above the one of the copies, are void.
    - `standbys` are all places on other hosts where a standby of a worker may be.
    - `rescale_rows` are the recent rows of each input partition, by which the requested rescale balances their readers.
    - `rescale_excluded` are the hosts that the requested rescale leaves out; None if it has named its hosts.
    - `level` is the level of the formats (`dbsp.stored.levels`); ledgers of versions that did not note it have the first.
    - `own_since_us` is the time of the first checkpoint of a version with a newer level. An older version that writes the ledger
      drops it.
    """

    run: str
    fingerprint: str
    nodes: tuple[tuple[str, str], ...]
    layouts: Mapping[int, Layout]
    members: frozenset[int]
    forming: frozenset[int]
    saved: Mapping[int, Saved] = field(default_factory=dict)
    epoch: int = 0
    rescale: int | None = None
    strategy: str = COLD
    rescale_rows: Mapping[str, tuple[int, ...]] | None = None
    rescale_excluded: tuple[str, ...] | None = None
    migration_plans: Mapping[int, MigrationPlan] = field(default_factory=dict)
    accepted: tuple[engines.Acceptance, ...] = ()
    signatures: Signatures | None = None
    fill: Fill | None = None
    views: StoredViews | None = None
    retired: frozenset[str] = frozenset()
    began: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    input: str = ""
    output: str = ""
    deaths: Deaths | None = None
    moved: tuple[MovedWorker, ...] = ()
    hosts: HostChoice | None = None
    own_disk_since: int = 0
    copied: int | None = None
    returned: Mapping[int, int] = field(default_factory=dict)
    given_up: int = 0
    standbys: tuple[StandbyPlace, ...] = ()
    level: int = BEFORE
    own_since_us: int | None = None

    @property
    def offered(self) -> Offered | None:
        """Return the hosts on offer; None if they were never noted."""
        return None if self.hosts is None else self.hosts.offered

    @property
    def published(self) -> int:
        """Return the greatest published version; 0 before the first."""
        return max((saved.version for saved in self.saved.values() if saved.published), default=0)

    def positions(self, checkpoint: CheckpointId) -> tuple[Positions, Timing]:
        """Return the input positions and the timing at a checkpoint; raise `DataError` if it was never noted."""
        if checkpoint.step == 0 and checkpoint.epoch == 0:
            return NOWHERE, Timing()
        for saved in self.saved.values():
            if saved.checkpoint == checkpoint:
                return saved.positions, saved.timing
        raise DataError(f"the workers hold a checkpoint that the ledger does not know: checkpoint={checkpoint}")

    def floor(self) -> Saved | None:
        """Return the oldest published checkpoint that a worker can still open; the logs below it are not needed.

        None before the first one, and while only the copies of the empty state are whole.
        """
        if self.copied == 0:
            return None
        published = sorted((s for s in self.saved.values() if s.published), key=lambda saved: saved.version)
        return published[0] if published else None


def new_ledger(
    *,
    fingerprint: str,
    nodes: Iterable[tuple[str, str]],
    layout: Layout,
    run: str | None = None,
    signatures: Signatures | None = None,
    name: str = "",
    kinds: tuple[str, str] = ("", ""),
) -> Ledger:
    """Return the ledger of a pipeline that has not run yet; `kinds` are those of its input and its output."""
    workers = frozenset(layout.workers)
    return Ledger(
        run=run or uuid.uuid4().hex, fingerprint=fingerprint, nodes=tuple(nodes), layouts={layout.version: layout},
        members=workers, forming=workers, signatures=signatures, name=name, input=kinds[0], output=kinds[1], level=NEWEST,
    )  # fmt: skip


def standing(ledger: Ledger) -> LedgerState:
    """Return the parts of the ledger that the machine needs."""
    saved = ledger.saved.get(ledger.published)
    return LedgerState(
        layouts=ledger.layouts, migration_plans=ledger.migration_plans,
        used=saved.checkpoint.layout_version if saved is not None else min(ledger.layouts),
        members=ledger.members, forming=ledger.forming, published=ledger.published,
        rescale=ledger.rescale, strategy=ledger.strategy, accepted=ledger.accepted, fill=ledger.fill,
        moved=ledger.moved, offered=ledger.offered, rescale_rows=ledger.rescale_rows,
        rescale_excluded=ledger.rescale_excluded,
    )  # fmt: skip


class Control(Protocol):
    """The storage of the ledger. Every change is durable on return."""

    def load(self) -> Ledger | None:
        """Return the ledger; None before `begin`."""
        ...

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger unless one exists; return the ledger that exists afterwards."""
        ...

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply `action` in one transaction; raise `FencedError` if `epoch` is not None and older than the ledger's."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


def refuse_older(ledger: Ledger, epoch: int) -> None:
    """Raise `FencedError` if the ledger has a newer epoch."""
    if epoch < ledger.epoch:
        raise FencedError(f"another coordinator owns this pipeline: epoch={epoch} newest={ledger.epoch}")


# --- changes --------------------------------------------------------------------------------------------------------


def raise_epoch(ledger: Ledger, epoch: int, hosts: Offered | None = None) -> Ledger:
    """Note a newer epoch, and the hosts of the settings (`configured`) if there are settings."""
    ledger = forget_layouts(replace(ledger, epoch=max(ledger.epoch, epoch)))
    return ledger if hosts is None else configured(ledger, hosts)


def configured(ledger: Ledger, hosts: Offered) -> Ledger:
    """Note the hosts of the settings: they take the place of hosts that a rescale named under other settings."""
    if ledger.hosts is not None and ledger.hosts.settings == hosts:
        return ledger
    return replace(ledger, hosts=HostChoice(settings=hosts))


def forget_layouts(ledger: Ledger) -> Ledger:
    """Drop layouts and migration plans that nothing names any more, so that the ledger does not grow with every rescale.

    These are kept:

    - layouts and plans from the oldest checkpoint's on, which logged steps may name;
    - the layouts of the kept plans;
    - the newest layout, whose number the next one follows;
    - the newest layout of each member, which names its host;
    - the first layout, as long as the empty version 0 may be opened.
    """
    versions = sorted(ledger.layouts)
    named = [saved.checkpoint.layout_version for saved in ledger.saved.values()]
    if not named and ledger.migration_plans:
        return ledger
    least = versions[0] if ledger.copied == 0 else min(named, default=versions[-1])
    migration_plans = {
        number: migration_plan for number, migration_plan in ledger.migration_plans.items() if number >= least
    }
    kept = {number for number in versions if number >= least} | {versions[-1]}
    kept |= {
        layout.version
        for migration_plan in migration_plans.values()
        for layout in (migration_plan.old, migration_plan.new)
    }
    for worker in ledger.members:
        kept |= {max((n for n in versions if worker in ledger.layouts[n].workers), default=versions[-1])}
    if min(ledger.saved, default=0) <= 1 or ledger.copied == 0:
        kept.add(versions[0])
    return replace(
        ledger, migration_plans=migration_plans, layouts={number: ledger.layouts[number] for number in sorted(kept)}
    )


def intend(ledger: Ledger, saved: Saved) -> Ledger:
    """Note the input positions at a checkpoint that the workers are about to commit."""
    return replace(ledger, saved={**ledger.saved, saved.version: saved})


def publish(ledger: Ledger, version: int, *, ends_rescale: bool) -> Ledger:
    """Note a version that all workers acknowledged; the one before it, and the one of the copies, can still be opened.

    The workers of its layout have databases from now on: one that is missing is made again from the copies, not anew.
    """
    if version not in ledger.saved:
        raise DataError(f"a version was published that was never intended: version={version}")
    stays = {version - 1, ledger.copied}
    kept = {number: saved for number, saved in ledger.saved.items() if number in stays and saved.published}
    saved = {**kept, version: replace(ledger.saved[version], published=True)}
    oldest = 0 if ledger.copied == 0 else min(entry.checkpoint.step for entry in saved.values())
    fill = ledger.fill if ledger.fill is not None and ledger.fill.step >= oldest else None
    ledger = replace(ledger, accepted=engines.still_needed(ledger.accepted, oldest), fill=fill)
    layout = ledger.layouts.get(saved[version].checkpoint.layout_version)
    if layout is not None:
        ledger = replace(ledger, forming=ledger.forming - frozenset(layout.workers))
    met = ends_rescale and layout is not None and _serves(ledger, layout)
    ledger = forget_layouts(replace(ledger, saved=saved))
    return request_rescale(ledger, None) if met else ledger


def acknowledged(ledger: Ledger, version: int) -> Ledger:
    """Note a version that all workers of its layout hold, and that was not published as the process ended before."""
    saved = ledger.saved.get(version)
    if saved is None or version <= ledger.published:
        return ledger
    return publish(ledger, version, ends_rescale=False)


def opened(ledger: Ledger, version: int, layout: Layout) -> Ledger:
    """Note that all workers opened `version`, and a rescale to its layout is complete.

    No other version can be opened any more, but that of the copies.
    The workers of the layout have databases from now on.
    """
    stays = {version, ledger.copied}
    saved = {number: replace(s, published=True) for number, s in ledger.saved.items() if number in stays}
    ledger = forget_layouts(replace(ledger, saved=saved, forming=ledger.forming - frozenset(layout.workers)))
    return request_rescale(ledger, None) if _serves(ledger, layout) else ledger


def _serves(ledger: Ledger, layout: Layout) -> bool:
    """Return whether a layout is what the requested rescale asks for."""
    rows, excluded = ledger.rescale_rows, ledger.rescale_excluded
    return serves(layout, ledger.migration_plans, ledger.rescale, ledger.offered, rows, excluded)


def log_layout(
    ledger: Ledger,
    layout: Layout,
    members: Iterable[int],
    forming: Iterable[int],
    migration_plan: MigrationPlan | None = None,
) -> Ledger:
    """Note a layout before its use, the workers that may get a database by it, and the migration plan that runs in it."""
    layouts = {**ledger.layouts, layout.version: layout}
    ledger = replace(ledger, layouts=layouts, members=frozenset(members), forming=frozenset(forming))
    if migration_plan is None:
        return ledger
    layouts = {**layouts, migration_plan.new.version: migration_plan.new}
    return replace(
        ledger, layouts=layouts, migration_plans={**ledger.migration_plans, migration_plan.version: migration_plan}
    )


def doubt_members(ledger: Ledger, workers: Iterable[int]) -> Ledger:
    """Note that the databases of these workers are about to be deleted, and may or may not exist from now on."""
    return replace(ledger, forming=ledger.forming | frozenset(workers))


def settle_members(ledger: Ledger, members: Iterable[int], forming: Iterable[int] = ()) -> Ledger:
    """Note the workers that have databases, and those of them (`forming`) that have none yet."""
    return replace(ledger, members=frozenset(members), forming=frozenset(forming))


def request_rescale(
    ledger: Ledger,
    workers: int | None,
    strategy: str = COLD,
    hosts: Offered | None = None,
    rows: Mapping[str, tuple[int, ...]] | None = None,
    excluded: tuple[str, ...] | None = None,
) -> Ledger:
    """Note the request for a rescale to this many workers; with None remove it.

    Hosts that it names are on offer from now on. `rows` are the recent rows of each input partition. Only this process
    knows them. A start that continues the rescale needs them, because the rescale may move partitions only. `excluded` are the
    hosts that the rescale leaves out, for the same reason; with None those that recovery finds lost, unless it names its hosts.
    """
    if excluded is None and hosts is None and workers is not None:
        excluded = ()
    ledger = replace(
        ledger,
        rescale=workers,
        strategy=strategy,
        rescale_rows=None if workers is None else rows,
        rescale_excluded=excluded,
    )
    if hosts is None:
        return ledger
    before = HostChoice(settings=()) if ledger.hosts is None else ledger.hosts
    return replace(ledger, hosts=replace(before, named=hosts))


def exclude(ledger: Ledger, hosts: Iterable[str]) -> Ledger:
    """Let the requested rescale leave out these hosts, too, unless it has named its hosts, or none is requested."""
    if ledger.rescale is None or ledger.rescale_excluded is None:
        return ledger
    return replace(ledger, rescale_excluded=tuple(sorted({*ledger.rescale_excluded, *hosts})))


def note_death(ledger: Ledger, step: int) -> Ledger:
    """Count a process that ended during a step; the count of another step is dropped."""
    before = ledger.deaths.count if ledger.deaths is not None and ledger.deaths.step == step else 0
    return replace(ledger, deaths=Deaths(step=step, count=before + 1))


def forget_deaths(ledger: Ledger) -> Ledger:
    """Drop the count, because the step has finished or its trial survived."""
    return replace(ledger, deaths=None)


def accept_engines(ledger: Ledger, acceptances: Iterable[engines.Acceptance]) -> Ledger:
    """Note acceptances; a later one for the same pair of versions replaces the earlier."""
    found = {(acceptance.engine, acceptance.by): acceptance for acceptance in (*ledger.accepted, *acceptances)}
    return replace(ledger, accepted=tuple(acceptance for _, acceptance in sorted(found.items())))


def change_circuit(
    ledger: Ledger,
    saved: Saved,
    *,
    nodes: Iterable[tuple[str, str]],
    signatures: Signatures,
    fill: Fill | None,
    views: StoredViews,
    again: Sequence[str] = (),
) -> Ledger:
    """Make another circuit the pipeline's, after every worker holds its state under that circuit.

    The views `again` (`renewed`) begin anew in the next step.
    """
    before = {} if ledger.signatures is None else ledger.signatures.views
    now = signatures.views
    began = {name: step for name, step in ledger.began.items() if name in now}
    began |= dict.fromkeys(again, saved.checkpoint.step)
    return replace(
        ledger, fingerprint=saved.checkpoint.fingerprint, nodes=tuple(nodes), signatures=signatures,
        saved={saved.version: saved}, fill=fill, views=views, retired=(ledger.retired | before.keys()) - now.keys(), began=began,
        copied=None,
    )  # fmt: skip


def renewed(ledger: Ledger, made: Collection[str]) -> tuple[str, ...]:
    """Return the new views whose names belonged to other views: edited ones, and ones that were dropped earlier."""
    before = frozenset() if ledger.signatures is None else ledger.signatures.views.keys()
    return tuple(sorted(name for name in made if name in ledger.retired or name in before))


# --- storage --------------------------------------------------------------------------------------------------------


class MemoryControl:
    """A ledger in memory; in the simulator it survives a crash."""

    def __init__(self) -> None:
        """Begin without a ledger."""
        self._ledger: Ledger | None = None

    def load(self) -> Ledger | None:
        """Return the ledger; None before `begin`."""
        return self._ledger

    def begin(self, ledger: Ledger) -> Ledger:
        """Keep the first ledger, and return it."""
        self._ledger = self._ledger or ledger
        return self._ledger

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply the change, and keep the result."""
        self._ledger = changed_ledger(self._ledger, epoch, action)
        return self._ledger

    def close(self) -> None:
        """Do nothing."""


def changed_ledger(ledger: Ledger | None, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
    """Return the ledger with an action applied; refuse an older epoch, and a ledger that was never begun."""
    if ledger is None:
        raise DataError("the ledger is empty: the pipeline was never started")
    if epoch is not None:
        refuse_older(ledger, epoch)
    return action(ledger)
