"""From settings to the parts of a service: circuit, plan, logs, ledger, runtime.

If the stored fingerprint is not the circuit's, the build fails before it writes anything, and names the node that
differs.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from dbsp.circuit.circuit import Circuit
from dbsp.circuit.fingerprint import NodeToken, explain_difference, node_tokens
from dbsp.circuit.load import load_circuit
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.checks.doctor import read_ledger
from dbsp.coordinator.checks.outside import look_outside
from dbsp.coordinator.checks.preflight import check_engines, check_stored
from dbsp.coordinator.checks.remains import refuse_logged, refuse_remains
from dbsp.coordinator.checks.trials import ProcessTrials
from dbsp.coordinator.decisions import states
from dbsp.coordinator.decisions.recovery import learned
from dbsp.coordinator.evolving import Databases, Evolution, Here, OnHosts, are_here, carry_out, readable, survey
from dbsp.coordinator.layouts import check_named, shares_disk
from dbsp.coordinator.running.attempts import FileMarker
from dbsp.coordinator.running.blame import Locator
from dbsp.coordinator.running.clock import Clock, SystemClock
from dbsp.coordinator.running.command_runner import Parts
from dbsp.coordinator.running.control import Control, Ledger, configured, new_ledger, standing
from dbsp.coordinator.running.delta_views import delta_views
from dbsp.coordinator.running.far_standbys import StandbyRule
from dbsp.coordinator.running.intake import counted
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.running.ledger_in_log import ledger_in_log, logged_control
from dbsp.coordinator.running.letters import Letters
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.lost_hosts import HostLoss
from dbsp.coordinator.running.published_copies import CopiesRetention, PublishedCopies, PublishedParts
from dbsp.coordinator.running.waterlines import Waterlines, watched
from dbsp.coordinator.settings.config import MEBIBYTE, Config
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources, worker_copies
from dbsp.disk import PRIVATE_FOLDER, PUBLIC_FOLDER, make_folder
from dbsp.errors import CircuitError, ConfigError, DbspError, InternalError
from dbsp.io.connectors import INPUT_KINDS, OUTPUT_KINDS
from dbsp.io.connectors.places import refuse_shared
from dbsp.io.letter_log import LetterLimits, LetterLog
from dbsp.io.output_part import refuse_taken
from dbsp.layout import initial, with_readers
from dbsp.logs import InputLog, StepLog
from dbsp.operators.operator import Time
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan as make_plan
from dbsp.plan.signatures import signatures
from dbsp.runtime.background import BackgroundProcesses, BackgroundThreads
from dbsp.runtime.runtime import RunsOnHosts, Runtime
from dbsp.runtime.work import Work
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.stored.levels import NEWEST, READERS_SINCE
from dbsp.version import VERSION

OPENS_AT_ONCE = 8
"""The number of local workers that are fenced, sliced or opened at once; each mostly waits for the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """All parts of a service; `own_input` opens one more handle on an input whose requests may hang.

    `began` maps each view that began anew to the step of its first output. `is_ledger_found`: the data folder had no ledger, or
    an older one than the step log.
    """

    config: Config
    plan: Plan
    parts: Parts
    facts: states.Facts
    settings: LoopSettings
    letters: Letters
    began: Mapping[str, int] = field(default_factory=dict)
    own_input: Callable[[], InputLog] | None = None
    is_ledger_found: bool = False


def shows_clock(plan: Plan) -> bool:
    """Return whether a view depends on `now()`."""
    return any(node.operator.depends_on_time is Time.CLOCK for node in plan.nodes)


def load_plan(config: Config) -> Plan:
    """Return the plan of the circuit that the settings name; refuse names of tables and views that the circuit does not have."""
    circuit = load_circuit(config.pipeline.circuit, config.folder)
    check_names(config, circuit)
    delta_views(config, circuit)
    return make_plan(config.output.check_circuit(config.input.check_circuit(circuit)))


def check_names(config: Config, circuit: Circuit) -> None:
    """Check that settings name only existing tables, views and columns, and that each view has a name and a place of its own.

    **Errors** `ConfigError` with the setting and the names that exist, or with the place and both its uses.
    """
    views = {name: node.schema.names for name, node in circuit.views}
    refuse_taken(list(views))
    there = {"table": [table.name for table in circuit.tables], "view": [*views, DEAD_LETTERS]}
    residence = config.residence
    refuse_shared([*config.input.places(residence, there["table"]), *config.output.places(residence, there["view"])])
    for each in config.names:
        if each.name not in there[each.what]:
            raise ConfigError(
                f"no such {each.what}: {each.setting} names {each.name}",
                f"there is {', '.join(sorted(there[each.what]))}",
            )
        for column in each.columns:
            if each.name in views and column not in views[each.name]:
                raise ConfigError(
                    f"no such column: {each.setting} names {each.name}.{column}",
                    f"there is {', '.join(views[each.name])}",
                )


def _folders(config: Config) -> Iterator[tuple[str, Path, str]]:
    """Yield the folders that a start makes, each with its setting and the place to name another one."""
    yield "data_dir", config.data_dir, "`data_dir` in [pipeline]"
    for setting, folder in config.output.folders(config.residence):
        yield f"output.{setting}", folder, f"`{setting}` in [output]"


def make_folders(config: Config) -> None:
    """Make the folders of the settings, if they do not exist."""
    for folder in _folders(config):
        _make_folder(*folder)


def _make_folder(what: str, folder: Path, where: str) -> None:
    """Make a folder of the settings; `ConfigError` names the setting where the user can name another folder."""
    try:
        make_folder(folder, PRIVATE_FOLDER if what == "data_dir" else PUBLIC_FOLDER)
    except OSError as error:
        raise ConfigError(
            f"a folder cannot be made: {what}={folder} error={error.strerror}",
            f"name another {where}, or repair what is there",
        ) from None


def build(
    config: Config,
    *,
    plan: Plan | None = None,
    clock: Clock | None = None,
    wrap: Callable[[str, Any], Any] = lambda _name, part: part,
    accepting: Iterable[str] = (),
    evolve: bool = False,
    report: Callable[[str], None] = lambda _text: None,
) -> Built:
    """Open the logs and the ledger of a pipeline, or make them if it is new; the event loop makes the runtime later.

    Nothing is written if this version cannot continue from the stored state. The reasons are formats that it does not read,
    and steps that a version outside `accepting` logged. With `evolve` a stored circuit that differs is changed to this one,
    and `report` receives the effects first.

    `wrap(name, part)` may return a wrapper of the service's "runtime", "steps", "inputs", "control" or "letters". If
    the circuit is changed, it may also wrap the "resources". The fault tests stop the process there.
    **Errors** `ConfigError` or `CircuitError` if the circuit is not the one that the stored state belongs to; `DataError` and
    `EngineError` as `preflight` says.
    """
    plan = plan or load_plan(config)
    found = _check_settings(config)
    if found is not None:
        _adopt(config, plan, found, evolve=evolve)
    evolution = surveyed(config, plan) if evolve else None
    if evolution is not None:
        report(evolution.as_text(config.pipeline.name))
    make_folders(config)
    clock = clock or SystemClock()
    control = wrap("control", LmdbControl(config.data_dir))
    if evolution is not None:
        _evolve(config, plan, control, evolution, wrap)
    ledger = _ledger(config, plan, control)
    check_named(config, ledger.layouts.values())
    inputs, steps = _open_logs(config, plan, ledger.level, create=ledger.epoch == 0)
    try:
        if ledger.epoch == 0:
            refuse_logged(config, steps)
            ledger = _with_readers(control, inputs)
        check_engines(config, control, steps, VERSION, accepting)
        if ledger.views is None or ledger.views.by != VERSION:
            control.change(None, lambda now: replace(now, views=readable(plan)))
        letters = _letters(config, plan, is_replaced=found is not None)
    except DbspError:
        for part in (inputs, steps, control):
            part.close()
        raise
    work, control = work_of(config, plan, ledger.run, ledger.level), logged_control(control, steps)
    parts = Parts(
        runtime=lambda: cast(Runtime, wrap("runtime", make_runtime(config, work))), inputs=wrap("inputs", inputs),
        steps=wrap("steps", steps), control=control, clock=clock,
        locate=Locator(plan=plan, inputs=inputs), awaited=plan.watermarks, marker=FileMarker(config.data_dir),
        trials=ProcessTrials(config) if shares_disk(config) else None,
        waterlines=Waterlines(watched(plan), config.input.idle_s_of), letters=wrap("letters", letters),
        published=published_copies(config, control, inputs, clock), level=ledger.level,
    )  # fmt: skip
    facts = replace(facts_of(ledger, config), accepting=frozenset(accepting))
    own_input = resources_of(config, plan, ledger.level).open_input if config.input.asks_others else None
    return Built(
        config=config,
        plan=plan,
        parts=parts,
        facts=facts,
        settings=loop_settings(config),
        letters=letters,
        began=ledger.began,
        own_input=own_input,
        is_ledger_found=found is not None,
    )


def published_copies(config: Config, control: Control, inputs: InputLog, clock: Clock) -> PublishedCopies:
    """Return the checkpoints of the pipeline among its copies, if there are copies."""
    place, name, section = config.copies, config.pipeline.name, config.checkpoint
    if place is None:
        return PublishedCopies()
    return PublishedCopies(
        PublishedParts(
            checkpoints=CopiedCheckpoints(place, name), control=control, inputs=inputs, clock=clock,
            copies=lambda worker: worker_copies(place, name, worker), lags=section.copies_lag,
            retention=CopiesRetention(newest=section.copies_kept, seconds=section.copies_kept_s),
        )
    )  # fmt: skip


def work_of(config: Config, plan: Plan, run: str, level: int) -> Work:
    """Return what every task of the pipeline needs."""
    return Work(resources=resources_of(config, plan, level), plan=plan, run=run, common_disk=shares_disk(config))


def _letters(config: Config, plan: Plan, *, is_replaced: bool) -> Letters:
    """Open the dead letters; another coordinator may have replayed those of a folder that it has replaced."""
    section = config.letters
    limits = LetterLimits(rows_max=section.rows_max, bytes_max=section.mb_max * MEBIBYTE, days_max=section.days_max)
    log = LetterLog(config.data_dir, limits)
    if is_replaced:
        log.note_elsewhere()
    return Letters(log, plan)


def _adopt(config: Config, plan: Plan, found: Ledger, *, evolve: bool) -> None:
    """Write the ledger that the step log carries into the data folder; refuse that of another pipeline or circuit first."""
    if evolve:
        _refuse_other_pipeline(config, found)
    else:
        _refuse_other(config, plan, found)
    make_folders(config)
    control = LmdbControl(config.data_dir)
    control.begin(found)
    control.change(None, lambda _: found)
    control.close()


def _check_settings(config: Config) -> Ledger | None:
    """Check that the settings agree with each other, then with the stored state; return a ledger that the step log alone has."""
    check_places(config)
    check_named(config)
    for folder in _folders(config):
        _refuse_folder(*folder)
    found = ledger_in_log(config)
    if found is None:
        refuse_remains(config)
    check_stored(config)
    return found


def _refuse_folder(what: str, folder: Path, where: str) -> None:
    """Refuse a folder if a file has its path, or if this user cannot write there."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"a folder of the settings is a file: {what}={folder}", f"name another {where}")
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
    if not os.access(nearest, os.W_OK | os.X_OK):
        hint = f"let the user of the service write in {nearest}, or name another {where}"
        raise ConfigError(f"a folder of the settings cannot be written: {what}={folder}", hint)


def surveyed(config: Config, plan: Plan, found: Ledger | None = None) -> Evolution | None:
    """Return how the stored circuit can be changed to this one; None if it is this one, or if none is stored. Write nothing.

    `found` is the ledger of the step log, if that is newer than the one in the data folder.
    """
    ledger = found or folder_ledger(config)
    if ledger is None:
        return None
    _refuse_other_pipeline(config, ledger)
    return None if ledger.fingerprint == plan.fingerprint else survey(config, plan, ledger, resources_of(config, plan))


def _evolve(
    config: Config, plan: Plan, control: Control, evolution: Evolution, wrap: Callable[[str, Any], Any]
) -> None:
    """Change the stored circuit; close the databases afterwards, as the runtime opens them in processes of its choice."""
    found = control.load()
    level = NEWEST if found is None else found.level
    resources = resources_of(config, plan, level)
    steps = resources.open_steps()
    try:
        resources.make_folders(evolution.change.tables_added)
        with _databases(config, plan, evolution, level, wrap) as databases:
            carry_out(evolution, plan, logged_control(control, steps), wrap("steps", steps), databases)
    except BaseException:
        control.close()
        raise
    finally:
        steps.close()
        close_resources(config.data_dir)


@contextmanager
def _databases(
    config: Config, plan: Plan, evolution: Evolution, level: int, wrap: Callable[[str, Any], Any]
) -> Iterator[Databases]:
    """Yield the databases of the workers; on other hosts tasks of a runtime reach them, which ends before the service starts."""
    if are_here(config, evolution.layout):
        yield Here(data_dir=config.data_dir, resources=wrap("resources", resources_of(config, plan, level)))
        return
    runtime = make_runtime(config, work_of(config, plan, evolution.saved.checkpoint.run, level))
    try:
        if not isinstance(runtime, RunsOnHosts):
            raise InternalError("workers are on other hosts, and the runtime runs nothing there")
        yield OnHosts(runtime=wrap("hosts", runtime))
    finally:
        runtime.close()


def check_start(config: Config, plan: Plan, *, evolve: bool = False) -> Evolution | None:
    """Refuse whatever `build` would refuse, except steps of other versions; write nothing.

    Steps of other versions are allowed because a running service has logged some. Brokers and registries are asked whether
    they respond. With `evolve`, return the change of the circuit that a start would make, or None if there is none.
    """
    found = _check_settings(config)
    _runtime_module(config)
    look_outside(config, plan)
    if evolve:
        return surveyed(config, plan, found)
    ledger = found or folder_ledger(config)
    if ledger is not None:
        _refuse_other(config, plan, ledger)
    return None


def folder_ledger(config: Config) -> Ledger | None:
    """Return the ledger of the data folder; None if it has none."""
    return read_ledger(config.data_dir) if (config.data_dir / "control").exists() else None


def check_places(config: Config) -> None:
    """Refuse a cluster where input or output need all workers on one host."""
    if config.pipeline.runtime == "local" or config.spark.master.startswith("local"):
        return
    for connector, kinds in ((config.input, INPUT_KINDS), (config.output, OUTPUT_KINDS)):
        if connector.needs_one_host:
            section = connector.section
            others = " or ".join(f'kind = "{each.kind}"' for each in kinds.values() if not each.needs_one_host)
            raise ConfigError(
                f"the {section} needs all workers on one host: {section}.kind={connector.kind}"
                f" spark.master={config.spark.master}",
                f"use {others} in [{section}], or a local master",
            )


def make_runtime(config: Config, work: Work) -> Runtime:
    """Return the runtime that the settings name."""
    _runtime_module(config)
    if config.pipeline.runtime == "local":
        from dbsp.runtime.inprocess import InProcessRuntime  # noqa: PLC0415 - one of two

        beside_steps = max(1, (os.cpu_count() or 1) - 1)
        return InProcessRuntime(
            replace(work, background=BackgroundThreads()), opens_at_once=OPENS_AT_ONCE, copies_at_once=beside_steps
        )
    from dbsp.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - Spark is optional
    from dbsp.runtime.spark.session import SparkSettings  # noqa: PLC0415 - as above

    settings = SparkSettings(
        master=config.spark.master, app_name=f"dbsp {config.pipeline.name}", conf=config.spark.conf,
        worker_silence_s=config.spark.worker_silence_s, work_dir=config.data_dir / "spark",
        preloads=(ConfiguredResources.__module__,),
    )  # fmt: skip
    kept = config.input.is_expensive_to_read or config.output.is_expensive_to_open
    return SparkRuntime(replace(work, background=BackgroundProcesses(work.run) if kept else None), settings)


def _runtime_module(config: Config) -> None:
    """Import the module of the runtime that the settings name; raise `ConfigError` if pyspark is missing."""
    if config.pipeline.runtime == "local":
        importlib.import_module("dbsp.runtime.inprocess")
        return
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(
            "the Spark runtime needs the package pyspark", "pip install 'dbsp-engine[spark]', or runtime = \"local\""
        )
    importlib.import_module("dbsp.runtime.spark.runtime")


def facts_of(ledger: Ledger, config: Config) -> states.Facts:
    """Return the facts with which the state machine starts: the ledger's, and the limits of the settings."""
    found = standing(configured(ledger, config.layout.offered()))
    facts = states.Facts(
        run=ledger.run, fingerprint=ledger.fingerprint, layouts=found.layouts,
        layout=replace(found.layouts[found.used], zones=config.layout.zone_pairs()),
        members=found.members, forming=found.forming, epoch=ledger.epoch, failures_max=config.step.failures_max,
        acceptable_recovery_lag=config.layout.acceptable_recovery_lag, keys_per_step=config.layout.keys_per_step,
        copies_lag=config.checkpoint.copies_lag,
        only_published=config.layout.standbys_per_worker > 0,
    )  # fmt: skip
    return learned(facts, found)


def loop_settings(config: Config) -> LoopSettings:
    """Return the intervals and limits of the loop."""
    return LoopSettings(
        limits=config.step.limits(), checkpoint_interval_s=config.checkpoint.interval_s,
        retention_s=config.checkpoint.retention_s, failures_max=config.step.failures_max,
        max_warmup_replicas=config.layout.max_warmup_replicas, autoscale=config.autoscale,
        rollback_window_s=config.upgrade.rollback_window_s,
        strategy=config.layout.strategy, host_loss=_host_loss(config),
        has_remote_state=config.pipeline.runtime != "local", hosts=config.layout.offered(),
        standbys=StandbyRule(per_worker=config.layout.standbys_per_worker, zones=config.layout.zones),
    )  # fmt: skip


def _host_loss(config: Config) -> HostLoss:
    """Return when a host counts as lost: never where no host has a name."""
    shared, copied = shares_disk(config), bool(config.checkpoint.copies)
    standbys = config.layout.standbys_per_worker > 0
    named = bool(config.layout.hosts) and config.layout.host_lost_s > 0
    return HostLoss(
        after_s=config.layout.host_lost_s if named else None,
        movable=shared or copied or standbys,
        only_standbys=standbys and not copied and not shared,
        common_disk=shared,
    )


def _ledger(config: Config, plan: Plan, control: Control) -> Ledger:
    """Return the stored ledger, or a new one; refuse a ledger of another circuit."""
    found = control.load()
    if found is None:
        section = config.layout
        layout = initial(
            config.pipeline.workers, shards=section.shards, dynamic_k=section.dynamic_k, hosts=section.offered(),
            zones=section.zone_pairs(),
        )  # fmt: skip
        return control.begin(
            new_ledger(
                fingerprint=plan.fingerprint, nodes=node_tokens(plan.circuit), layout=layout, signatures=signatures(plan),
                name=config.pipeline.name, kinds=(config.input.kind, config.output.kind),
            )
        )  # fmt: skip
    try:
        _refuse_other(config, plan, found)
    except DbspError:
        control.close()
        raise
    return found


def _with_readers(control: Control, inputs: InputLog) -> Ledger:
    """Note who reads the input partitions that a new pipeline has; the others get their readers by the rule of the layout."""
    partitions = counted(inputs.floors())

    def read(ledger: Ledger) -> Ledger:
        if ledger.level < READERS_SINCE:  # an older version has made it, and may continue
            return ledger
        layouts = {version: with_readers(layout, partitions) for version, layout in ledger.layouts.items()}
        return replace(ledger, layouts=layouts)

    return control.change(None, read)


def _refuse_other(config: Config, plan: Plan, found: Ledger) -> None:
    """Refuse a ledger of another pipeline or another circuit."""
    _refuse_other_pipeline(config, found)
    if found.fingerprint != plan.fingerprint:
        raise CircuitError(
            f"the circuit is not the one this state belongs to: data_dir={config.data_dir}\n"
            f"{difference(found.nodes, plan.circuit)}",
            "put the circuit back, or see what of the state can go on: `dbsp-coordinator … --check --accept-circuit`",
        )


def _refuse_other_pipeline(config: Config, found: Ledger) -> None:
    """Refuse a ledger of another name, or one whose input or output has another kind of log.

    Topics, standbys and backups are found by the pipeline's name. Rows that were read and written are in logs of the stored
    kinds; with other kinds the state would find none of them.
    """
    if found.name and found.name != config.pipeline.name:
        raise ConfigError(
            f"the data folder belongs to another pipeline: data_dir={config.data_dir} pipeline={found.name}"
            f" wanted={config.pipeline.name}",
            f'give this pipeline a `data_dir` of its own, or write name = "{found.name}" in [pipeline]',
        )
    for section, stored, wanted in (
        ("input", found.input, config.input.kind),
        ("output", found.output, config.output.kind),
    ):
        if stored and stored != wanted:
            raise ConfigError(
                f"the pipeline has its {section} in another kind of log: data_dir={config.data_dir} {section}.kind={stored}"
                f" wanted={wanted}",
                f'write kind = "{stored}" in [{section}], or give this pipeline a `data_dir` of its own',
            )


def difference(nodes: Iterable[NodeToken], circuit: Circuit) -> str:
    """Return how a circuit differs from the one whose nodes are stored, as text."""
    text = explain_difference(list(nodes), node_tokens(circuit))
    return text or "the plan differs in form only (another version of the engine)"


def _open_logs(config: Config, plan: Plan, level: int, *, create: bool) -> tuple[InputLog, StepLog]:
    """Open the logs; `create` makes absent ones, which is right only before the first epoch: later, absence is an error."""
    resources = resources_of(config, plan, level)
    return resources.open_input(create=create, check=True), resources.open_steps(create=create)


def resources_of(config: Config, plan: Plan, level: int = NEWEST) -> ConfiguredResources:
    """Return the worker resources of a configured pipeline; they write formats of this level (`dbsp.stored.levels`)."""
    return ConfiguredResources(
        data_dir=config.data_dir, pipeline=config.pipeline.name, tables=plan.tables,
        input=config.input, output=config.output, standbys=config.standbys, copies=config.copies,
        copies_lag=config.checkpoint.copies_lag, folder=config.folder, level=level,
    )  # fmt: skip
