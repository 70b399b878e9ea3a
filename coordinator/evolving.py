"""Continue a pipeline with a changed circuit: find the traces to keep, then relabel every worker's state for the new circuit.

`survey` only reads, and refuses by name what cannot be changed. `carry_out` then claims the pipeline. In every worker's
database it makes one more version: the kept traces under their new numbers, with the new fingerprint. No chunk is copied.
The previous version stays. When all workers have the new version, one write of the ledger makes the new circuit the
pipeline's.

After a kill before that write, the old circuit starts as before, and the change can be made again. After a kill after
that write, the new one starts. Its first step backfills the new nodes (`dbsp.coordinator.decisions.fills`); that step is
logged and replayed like any other.

Only a pipeline that was stopped with a last checkpoint can be changed. The circuit that logged a step above the checkpoint
would have to run it again.

Where tasks alone reach the workers' disks, a runtime runs them (`OnHosts`). The survey does not look into these databases.

Source: design records 0024 and 0047.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from dbsp.circuit.fingerprint import node_tokens
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.layouts import shares_disk
from dbsp.coordinator.running.control import (
    Control,
    Ledger,
    Saved,
    StoredViews,
    change_circuit,
    raise_epoch,
    renewed,
)
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import ConfiguredResources, database_home
from dbsp.errors import CircuitError, DataError, UnavailableError
from dbsp.io import examine as logs
from dbsp.layout import Layout
from dbsp.logs import Range, StepLog, read_so_far
from dbsp.plan.changes import CircuitChange, change
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.signatures import signatures
from dbsp.plan.stored_views import retained, retained_traces, stored_views, unfilled_views, views_of
from dbsp.runtime import tasks
from dbsp.runtime.runtime import RunsOnHosts, WorkerResources
from dbsp.storage.examine import versions_in
from dbsp.store import CheckpointId, VersionInfo
from dbsp.trace.relabel import Relabeling, relabel
from dbsp.version import VERSION

START_ONCE = "start it with the circuit it has, and end it with `coordinator stop`; then change the circuit"
NEW_FOLDER = "put the circuit back, or start over with another data_dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A possible change of the circuit: of the state in `saved`, on the workers of `layout`.

    The views `again` had other rows under their names before. Their followers are notified, or the backfill `retracts` the old
    rows. `old` says how views are read until they are filled, from `retained`: the old traces under numbers that no step uses.
    """

    change: CircuitChange
    saved: Saved
    layout: Layout
    again: tuple[str, ...]
    retracts: bool
    old: str = ""
    retained: Mapping[int, int] = field(default_factory=dict)

    def as_text(self, name: str) -> str:
        """Return the change as text for a user."""
        step = self.saved.checkpoint.step
        text = f"{name}: the circuit was changed; the state of step {step} goes on\n{self.change.as_text()}"
        if not self.again:
            return text
        names = ", ".join(self.again)
        if self.retracts:
            return f"{text}\nstep {step} writes the changes, old rows retracted and new rows inserted: {names}"
        return f"{text}\nbegin anew at step {step} with all rows, and followers are notified: {names}"


def survey(config: Config, plan: Plan, ledger: Ledger, resources: ConfiguredResources) -> Evolution:
    """Return what a start with this circuit would keep and backfill; write nothing.

    **Errors** `CircuitError` names what cannot be changed, and what to do.
    """
    if ledger.signatures is None:
        raise CircuitError(
            "the circuit was changed, and its state has no signatures, because an earlier version of dbsp made it",
            NEW_FOLDER,
        )
    saved = ledger.saved.get(ledger.published)
    if saved is None or not saved.checkpoint.step:
        raise CircuitError("the circuit was changed, and no checkpoint of the changed circuit exists yet", START_ONCE)
    _refuse_unsettled(config, ledger, saved, resources)
    logged = _logged(saved, resources)
    layout = ledger.layouts[saved.checkpoint.layout_version]
    touched = {table for (table, _), offset in saved.positions.items() if offset}
    fresh = frozenset(table.name for table in plan.tables) - touched
    found = change(ledger.signatures, plan, fresh, logged, ledger.nodes)
    again = renewed(ledger, found.backfill.views)
    old = _old_views(ledger, plan, found)
    if again and config.output.retracts:
        found = _retracting(config, plan, ledger, found, {name: old[name] for name in again if name in old})
    return Evolution(
        change=found, saved=saved, layout=layout, again=again, retracts=config.output.retracts,
        old=stored_views(old.values()), retained=retained_traces(old.values()),
    )  # fmt: skip


def _old_views(ledger: Ledger, plan: Plan, found: CircuitChange) -> Mapping[str, ViewSpec]:
    """Return the views that can be read from their old traces until they are filled, under the numbers of retained traces."""
    if not found.needs_backfill:
        return {}
    return retained(_stored(ledger), unfilled_views(plan, found.backfill.kept, found.backfill.views))


def _stored(ledger: Ledger) -> Mapping[str, ViewSpec]:
    """Return the views of the old circuit, if this version of dbsp has noted them."""
    if ledger.views is None or ledger.views.by != VERSION:
        return {}
    try:
        return views_of(ledger.views.text)
    except DataError:  # stored by a development version
        return {}


def _retracting(
    config: Config, plan: Plan, ledger: Ledger, found: CircuitChange, old: Mapping[str, ViewSpec]
) -> CircuitChange:
    """Return the change whose backfill also retracts the rows of the edited views in `old`.

    **Errors** `CircuitError` for a view whose old rows are not there, or which the output cannot retract.
    """
    now = {view.name: view for view in plan.views}
    for view in renewed(ledger, found.backfill.views):
        if view not in old:
            raise _unreadable(config, ledger, view)
        reason = config.output.no_retraction(old[view], now[view])
        if reason is not None:
            raise _irrevocable(config, view, reason)
    return replace(found, backfill=replace(found.backfill, taken_back=stored_views(old.values())))


def _logged(saved: Saved, resources: ConfiguredResources) -> dict[str, tuple[Range, ...]]:
    """Return the rows that steps have read, for each table whose input log still has all of them."""
    with closing(resources.open_input(check=True)) as inputs:
        return read_so_far(saved.positions, inputs.floors())


class Databases(Protocol):
    """The workers' databases, wherever they are."""

    def versions(self, layout: Layout) -> Mapping[int, Sequence[VersionInfo]]:
        """Return the versions of each worker."""
        ...

    def relabel(self, order: Relabeling, layout: Layout) -> None:
        """Raise the epoch of every worker, and make its next version."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Databases on the disk of this process."""

    data_dir: Path
    resources: WorkerResources

    def versions(self, layout: Layout) -> Mapping[int, Sequence[VersionInfo]]:
        """Read the files of each worker."""
        return {worker: _versions_here(self.data_dir, worker) for worker in layout.workers}

    def relabel(self, order: Relabeling, layout: Layout) -> None:
        """Make the next version of one worker after the other."""
        for worker in layout.workers:
            database = self.resources.database(worker)
            database.raise_epoch(order.checkpoint.epoch)
            relabel(database, order.version, order.checkpoint, order.kept, order.narrowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHosts:
    """Databases that only tasks on their hosts reach."""

    runtime: RunsOnHosts

    def versions(self, layout: Layout) -> Mapping[int, Sequence[VersionInfo]]:
        """Ask the hosts."""
        return self.runtime.on_hosts("versions", layout.workers, layout.hosts, tasks.versions)

    def relabel(self, order: Relabeling, layout: Layout) -> None:
        """Make the next versions of all workers in one job."""
        self.runtime.on_hosts("relabel", layout.workers, layout.hosts, tasks.relabeled, order)


def carry_out(evolution: Evolution, plan: Plan, control: Control, steps: StepLog, databases: Databases) -> None:
    """Change the stored circuit: relabel the state of every worker, then write the ledger.

    **Errors** `UnavailableError` if a step was logged since the survey; `FencedError` if another coordinator has taken over.
    `CircuitError`, before anything is written, if a worker does not have the last checkpoint.
    """
    before = evolution.saved
    _refuse_unheld(before, databases.versions(evolution.layout))
    epoch = steps.claim()
    control.change(epoch, lambda ledger: raise_epoch(ledger, epoch))
    if steps.read(before.checkpoint.step):
        raise UnavailableError("a step was logged while the circuit was being changed", START_ONCE)
    checkpoint = replace(before.checkpoint, epoch=epoch, fingerprint=plan.fingerprint)
    order = Relabeling(
        version=before.version, checkpoint=checkpoint, kept={**evolution.change.kept, **evolution.retained},
        narrowed=evolution.change.narrowed,
    )  # fmt: skip
    databases.relabel(order, evolution.layout)
    control.change(epoch, lambda ledger: _changed(ledger, evolution, plan, checkpoint))


def _changed(ledger: Ledger, evolution: Evolution, plan: Plan, checkpoint: CheckpointId) -> Ledger:
    """Return the ledger with the new circuit, whose write makes the change count.

    **Errors** `UnavailableError` if the pipeline has published another checkpoint meanwhile.
    """
    before = evolution.saved
    if ledger.saved.get(ledger.published) != before:
        raise UnavailableError("the pipeline has gone on while its circuit was being changed", START_ONCE)
    saved = replace(
        before, version=before.version + 1, checkpoint=checkpoint, timing=evolution.change.timing(before.timing)
    )
    fill = (
        Fill(step=checkpoint.step, command=evolution.change.backfill.to_text(), old=evolution.old)
        if evolution.change.needs_backfill
        else None
    )
    return change_circuit(
        ledger, saved, nodes=node_tokens(plan.circuit), signatures=signatures(plan), fill=fill, views=readable(plan),
        again=() if evolution.retracts else evolution.again,
    )  # fmt: skip


def readable(plan: Plan) -> StoredViews:
    """Return how the views of a plan are read, for the ledger."""
    return StoredViews(by=VERSION, text=stored_views(plan.views))


# --- refusals -------------------------------------------------------------------------------------------------------


def are_here(config: Config, layout: Layout) -> bool:
    """Return whether the databases of a layout are on the disk of this process's host."""
    if config.pipeline.runtime == "local" or config.spark.master.startswith("local"):
        return True
    return shares_disk(config) and len(set(layout.hosts)) == 1


def _unreadable(config: Config, ledger: Ledger, view: str) -> CircuitError:
    """Return the error for an edited view whose old rows are in no trace that this process can read."""
    if view in ledger.retired:
        return _irrevocable(config, view, "it was dropped, and its rows with it")
    if ledger.views is None or ledger.views.by != VERSION:
        error = _irrevocable(config, view, "another version of dbsp ran the old circuit last")
        return CircuitError(error.message, START_ONCE)
    error = _irrevocable(config, view, "it is not materialized, or a user's function makes its rows when they are read")
    return CircuitError(
        error.message, f"{error.hint}; or make it a materialized view in one change, and edit it in the next"
    )


def _irrevocable(config: Config, view: str, reason: str) -> CircuitError:
    """Return the error for a view whose old rows would stay in the output for ever."""
    story = f"view={view} output.kind={config.output.kind}"
    return CircuitError(
        f"an edited view has written rows that cannot be retracted, because {reason}: {story}",
        f"keep the view as it was, or give it a name of its own, such as {view}_2",
    )


def _refuse_unsettled(config: Config, ledger: Ledger, saved: Saved, resources: ConfiguredResources) -> None:
    """Refuse a pipeline that did not end with a checkpoint of all its steps on every worker."""
    layout = ledger.layouts[saved.checkpoint.layout_version]
    if (
        ledger.rescale is not None
        or layout.version in ledger.migration_plans
        or ledger.members != frozenset(layout.workers)
    ):
        raise CircuitError("the circuit was changed while a rescale is under way", START_ONCE)
    if ledger.fill is not None and ledger.fill.step == saved.checkpoint.step:
        raise CircuitError("the circuit was changed again before the backfill of the last change", START_ONCE)
    next_step = _next_step(config, resources)
    if next_step != saved.checkpoint.step:
        story = f"checkpoint={saved.checkpoint.step} next={next_step}"
        raise CircuitError(f"the circuit was changed while steps wait above the checkpoint: {story}", START_ONCE)
    if are_here(config, layout):
        _refuse_unheld(saved, {worker: _versions_here(config.data_dir, worker) for worker in layout.workers})


def _versions_here(data_dir: Path, worker: int) -> Sequence[VersionInfo]:
    """Return the versions of a worker's database on this disk, without opening it for writing."""
    try:
        return versions_in(database_home(data_dir, worker))
    except DataError as error:
        raise CircuitError(f"a worker's database cannot be read: {error.message}", START_ONCE) from error


def _refuse_unheld(saved: Saved, held: Mapping[int, Sequence[VersionInfo]]) -> None:
    """Refuse if a worker does not have the last checkpoint."""
    for worker, infos in held.items():
        if not any((info.version, info.checkpoint) == (saved.version, saved.checkpoint) for info in infos):
            story = f"worker={worker} version={saved.version} held={[info.version for info in infos]}"
            raise CircuitError(f"a worker does not hold the last checkpoint: {story}", START_ONCE)


def _next_step(config: Config, resources: ConfiguredResources) -> int:
    """Return the first step that the step log does not contain, read without owning the log."""
    if config.input.logs_elsewhere is not None:
        with closing(resources.open_steps()) as steps:
            newest = steps.last()
            return newest.step + 1 if newest else 0
    examined, found = logs.examine_steps(config.data_dir)
    for finding in examined.findings:
        raise CircuitError(f"the step log cannot be read: {finding.what}", "look closer with `coordinator doctor`")
    return found.next_step
