"""A pipeline goes on with a changed circuit: what can be kept is looked up, then every worker's state is put under it.

`survey` reads only, and refuses by name what cannot be. `carry_out` then claims the pipeline and makes, in every worker's
database, one more version: the kept traces under their new numbers, no chunk copied, with the new fingerprint. The version before
stays beside it. When all workers have it, one write of the ledger makes the new circuit the pipeline's. Killed before that write,
the old circuit starts as if nothing had been, and the change can be made again; behind it the new one starts. Its first step
fills what is new (`dbsp.coordinator.decisions.fills`), logged and replayed like any other.

Only what was stopped with a last checkpoint is changed: a logged step above the checkpoint would have to be run again by the
circuit that logged it. Left out, and refused by name: workers on several hosts.

Source: design record 0024.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from dbsp.circuit.fingerprint import node_tokens
from dbsp.coordinator.config import Config
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.running.control import Control, Ledger, Saved, change_circuit, raise_epoch
from dbsp.coordinator.worker_resources import ConfiguredResources, database_home
from dbsp.errors import CircuitError, DataError, UnavailableError
from dbsp.io import examine as logs
from dbsp.layout import Layout
from dbsp.logs import Range, StepLog, read_so_far
from dbsp.plan.changes import Change, change
from dbsp.plan.plan import Plan
from dbsp.plan.signatures import signatures
from dbsp.runtime.runtime import WorkerResources
from dbsp.storage.examine import versions_in
from dbsp.store import CheckpointId
from dbsp.trace.relabel import relabel

START_ONCE = "start it with the circuit it has, and end it with `coordinator stop`; then change the circuit"
NEW_FOLDER = "put the circuit back, or start over with another data_dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A change that can be made: of the state in `saved`, on the workers of `layout`."""

    change: Change
    saved: Saved
    layout: Layout

    def as_text(self, name: str) -> str:
        """As a user reads it."""
        step = self.saved.checkpoint.step
        return f"{name}: the circuit was changed; the state of step {step:,} goes on\n{self.change.as_text()}"


def survey(config: Config, plan: Plan, ledger: Ledger, resources: ConfiguredResources) -> Evolution:
    """What a start with this circuit would keep and fill; writes nothing.

    **Errors** `CircuitError` names what cannot be, and what to do.
    """
    if ledger.signatures is None:
        raise CircuitError(
            "the circuit was changed, and what its state means was not noted: an earlier version of dbsp has made it",
            NEW_FOLDER,
        )
    _refuse_apart(config, ledger)
    saved = ledger.saved.get(ledger.published)
    if saved is None or not saved.checkpoint.step:
        raise CircuitError("the circuit was changed before a step of it was in a checkpoint", START_ONCE)
    _refuse_unsettled(config, ledger, saved, resources)
    _refuse_retired(plan, ledger)
    logged = _logged(saved, resources)
    layout = ledger.layouts[saved.checkpoint.layout_version]
    touched = {table for (table, _), offset in saved.positions.items() if offset}
    fresh = frozenset(table.name for table in plan.tables) - touched
    found = change(ledger.signatures, plan, fresh, logged)
    return Evolution(change=found, saved=saved, layout=layout)


def _logged(saved: Saved, resources: ConfiguredResources) -> dict[str, tuple[Range, ...]]:
    """The rows that steps have read, of each table of which the input log still has all of them."""
    with closing(resources.open_input(check=True)) as inputs:
        return read_so_far(saved.positions, inputs.floors())


def carry_out(evolution: Evolution, plan: Plan, control: Control, steps: StepLog, resources: WorkerResources) -> None:
    """Make the change.

    **Errors** `UnavailableError` if something was logged since it was looked at, `FencedError` if another coordinator came.
    """
    before = evolution.saved
    epoch = steps.claim()
    control.change(epoch, lambda ledger: raise_epoch(ledger, epoch))
    if steps.read(before.checkpoint.step):
        raise UnavailableError("a step was logged while the circuit was being changed", START_ONCE)
    checkpoint = replace(before.checkpoint, epoch=epoch, fingerprint=plan.fingerprint)
    for worker in evolution.layout.workers:
        database = resources.database(worker)
        database.raise_epoch(epoch)
        relabel(database, before.version, checkpoint, evolution.change.kept, evolution.change.narrowed)
    control.change(epoch, lambda ledger: _changed(ledger, evolution, plan, checkpoint))


def _changed(ledger: Ledger, evolution: Evolution, plan: Plan, checkpoint: CheckpointId) -> Ledger:
    """The one write that counts."""
    before = evolution.saved
    if ledger.saved.get(ledger.published) != before:
        raise UnavailableError("the pipeline has gone on while its circuit was being changed", START_ONCE)
    saved = replace(
        before, version=before.version + 1, checkpoint=checkpoint, timing=evolution.change.timing(before.timing)
    )
    fill = (
        Fill(step=checkpoint.step, command=evolution.change.backfill.to_text())
        if evolution.change.needs_backfill
        else None
    )
    return change_circuit(ledger, saved, nodes=node_tokens(plan.circuit), signatures=signatures(plan), fill=fill)


# --- refusals -------------------------------------------------------------------------------------------------------


def _refuse_apart(config: Config, ledger: Ledger) -> None:
    """Databases on other hosts are not reached from here."""
    hosts = {host for layout in ledger.layouts.values() for host in layout.hosts}
    if len(hosts) > 1 or len(config.layout.hosts) > 1:
        raise CircuitError(
            "the circuit of such a pipeline cannot be changed yet: its workers are on several hosts", NEW_FOLDER
        )


def _refuse_retired(plan: Plan, ledger: Ledger) -> None:
    """What a dropped view has put out is there for its readers; the same rows behind it would count twice."""
    for view in plan.views:
        if view.name in ledger.retired:
            raise CircuitError(
                f"a view of this name was dropped, and what it has put out is still there: view={view.name}",
                f"give the view that comes back a name of its own, such as {view.name}_2",
            )


def _refuse_unsettled(config: Config, ledger: Ledger, saved: Saved, resources: ConfiguredResources) -> None:
    """Only what ended with a checkpoint of all that was done is changed."""
    layout = ledger.layouts[saved.checkpoint.layout_version]
    if (
        ledger.rescale is not None
        or layout.version in ledger.migration_plans
        or ledger.members != frozenset(layout.workers)
    ):
        raise CircuitError("the circuit was changed while a rescale is under way", START_ONCE)
    if ledger.fill is not None and ledger.fill.step == saved.checkpoint.step:
        raise CircuitError("the circuit was changed again before the last change was filled", START_ONCE)
    next_step = _next_step(config, resources)
    if next_step != saved.checkpoint.step:
        story = f"checkpoint={saved.checkpoint.step} next={next_step}"
        raise CircuitError(f"the circuit was changed while steps wait above the checkpoint: {story}", START_ONCE)
    for worker in layout.workers:
        try:
            held = versions_in(database_home(config.data_dir, worker))
        except DataError as error:
            raise CircuitError(f"a worker's database cannot be read: {error.message}", START_ONCE) from error
        if not any((info.version, info.checkpoint) == (saved.version, saved.checkpoint) for info in held):
            story = f"worker={worker} version={saved.version} held={[info.version for info in held]}"
            raise CircuitError(f"a worker does not hold the last checkpoint: {story}", START_ONCE)


def _next_step(config: Config, resources: ConfiguredResources) -> int:
    """Where the step log ends, looked up without owning it."""
    if config.input.logs_elsewhere is not None:
        with closing(resources.open_steps()) as steps:
            newest = steps.last()
            return newest.step + 1 if newest else 0
    examined, found = logs.examine_steps(config.data_dir)
    for finding in examined.findings:
        raise CircuitError(f"the step log cannot be read: {finding.what}", "look closer with `coordinator doctor`")
    return found.next_step
