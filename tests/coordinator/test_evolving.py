"""A pipeline that goes on with a changed circuit: what it keeps, fills, puts out; and what is refused, with nothing written."""

from __future__ import annotations

import datetime
import pickle
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.coordinator.build import build, load_plan, resources_of, surveyed, work_of
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.evolving import Here, OnHosts, carry_out
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import close_resources
from dbsp.errors import CircuitError, UnavailableError
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.runtime.work import Work
from dbsp.stored.levels import NEWEST
from tests.coordinator.copies import prints
from tests.coordinator.shop import CIRCUIT, ORDERS, rows, script, settings, settings_text
from tests.crash.coordinator_child import Child

pytestmark = pytest.mark.timeout(300)

BEST = """
best = orders.group_by("customer").aggregate(best=dbsp.max("amount"))
number = orders.aggregate(number=count())
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "best": best, "number": number})
"""
CHANGED = CIRCUIT + BEST
MORE = pa.table({"id": [4, 2], "customer": ["a", "b"], "amount": [70, 60]})
EXPECTED = {
    "per_customer": {("a", 2, 80): 1, ("b", 2, 61): 1},
    "best": {("a", 70): 1, ("b", 60): 1},
    "number": {(4,): 1},
}


def write(folder: Path, circuit: str, workers: int = 2, more: str = "") -> Config:
    """The settings of a pipeline with this circuit; in a file of its own, as a process loads a file once."""
    name = f"circuit_{zlib.crc32(circuit.encode()):08x}"
    (folder / f"{name}.py").write_text(circuit)
    text = settings_text(more, workers=workers).replace("circuit.py", f"{name}.py")
    (folder / "pipeline.toml").write_text(text)
    return settings(folder)


def pushed(service: Service, table: pa.Table, name: str = "orders") -> None:
    service.wait_until_processed(service.push(name, table))


def ran(config: Config, table: pa.Table = ORDERS, name: str = "orders") -> None:
    """A service that took some rows and was stopped as it should be."""
    with Service(config) as service:
        pushed(service, table, name)


def changed(config: Config) -> Service:
    return Service(config, build(config, evolve=True))


def content(service: Service, view: str) -> dict[tuple[Any, ...], int]:
    found = service.read_view(view).table.to_pylist()
    return {tuple(row.values())[:-1]: row["weight"] for row in found}


def folded(config: Config, view: str) -> dict[tuple[Any, ...], int]:
    """All outputs of a view, added up."""
    total: Counter[tuple[Any, ...]] = Counter()
    for _, _, table in read_outputs(config.data_dir, view):
        for row in table.to_pylist():
            weight = row.pop("weight")
            total[tuple(row.values())] += weight
    return {row: weight for row, weight in total.items() if weight}


# --- what goes on ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_state_goes_on_and_new_views_are_filled(tmp_path: Path, workers: int) -> None:
    ran(write(tmp_path, CIRCUIT, workers))
    config = write(tmp_path, CHANGED, workers)
    with changed(config) as service:
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        assert content(service, "best") == {("a", 10): 1, ("b", 600): 1}
        pushed(service, MORE)
        for view, expected in EXPECTED.items():
            assert content(service, view) == expected
    for view, expected in EXPECTED.items():
        assert folded(config, view) == expected, "each change once"
    assert folded(config, "large") == {(2, "b", 600): 1}, "what a dropped view has put out stays"
    assert not diagnose(config).findings
    with Service(config) as service:
        assert content(service, "best") == EXPECTED["best"]


def test_kept_views_put_out_nothing_in_the_step_that_fills(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    config = write(tmp_path, CHANGED)
    with changed(config):
        pass
    assert {step for step, _, _ in read_outputs(config.data_dir, "per_customer")} == {0}
    assert {step for step, _, _ in read_outputs(config.data_dir, "best")} == {1}


def test_the_filling_is_replayed_like_any_other_step(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    config = write(tmp_path, CHANGED, more="[checkpoint]\ninterval_s = 3600")
    service = changed(config)
    service.start()
    pushed(service, MORE)
    service.stop(now=True)
    for _ in range(2):
        with Service(config) as again:
            for view, expected in EXPECTED.items():
                assert content(again, view) == expected
    assert {view: folded(config, view) for view in EXPECTED} == EXPECTED


def test_there_and_back_and_another_number_of_workers(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    with changed(write(tmp_path, CHANGED)) as service:
        service.rescale(3)
        pushed(service, MORE)
    config = write(tmp_path, CIRCUIT.replace("> 500", "> 60"))
    with changed(config) as service:
        assert content(service, "per_customer") == EXPECTED["per_customer"]
        assert content(service, "large") == {(4, "a", 70): 1}


def test_a_request_to_rescale_waits_for_the_filling(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    service = changed(write(tmp_path, CHANGED))
    service.request_rescale(3)
    with service:
        pushed(service, MORE)
        assert service.live_status.wait_for(lambda now: now.layout is not None and len(now.layout.workers) == 3, 60)
        assert {view: content(service, view) for view in EXPECTED} == EXPECTED


def test_waterlines_go_on(tmp_path: Path) -> None:
    """Its watermark has another number in the new plan; what was closed stays closed, and the next window comes out."""
    late = (
        CIRCUIT
        + """
seen = dbsp.table("seen", {"page": dbsp.STRING, "at": dbsp.TIMESTAMP})
closed = seen.with_watermark("at", dbsp.seconds(0)).tumble("at", dbsp.seconds(10)).group_by("window_end").aggregate(n=count())
views = {"seen": seen, "closed": closed.final("window_end").select("n", at=col("window_end").epoch())}
"""
    )

    def at(*seconds: int) -> pa.Table:
        times = pa.array([1_000_000 * second for second in seconds], pa.timestamp("us"))
        return pa.table({"page": ["x"] * len(seconds), "at": times})

    ran(write(tmp_path, late + 'pipeline = dbsp.circuit("shop", views)\n'), at(1, 2, 12), "seen")
    config = write(tmp_path, late + 'pipeline = dbsp.circuit("shop", {"pages": seen.distinct(), **views})\n')
    with changed(config) as service:
        assert len(content(service, "pages")) == 3
        pushed(service, at(3, 22), "seen")
        assert service.live_status.wait_for(lambda now: now.dead == 1, 60), "it comes too late"
        seen = service.snapshot.step
        while content(service, "closed") != {(2, 10): 1, (1, 20): 1}:
            assert service.live_status.wait_for(lambda now, seen=seen: now.step > seen, 60)
            seen = service.snapshot.step
    assert folded(config, "closed") == {(2, 10): 1, (1, 20): 1}


def test_only_views_that_go_take_no_step(tmp_path: Path) -> None:
    ran(write(tmp_path, CHANGED))
    config = write(tmp_path, CHANGED.replace(', "number": number', ""))
    with changed(config) as service:
        assert service.snapshot.step == 1
        pushed(service, MORE)
        assert content(service, "best") == EXPECTED["best"]


def test_a_column_that_nobody_reads_any_more(tmp_path: Path) -> None:
    circuit = 'pipeline = dbsp.circuit("shop", {"number": orders.group_by("customer").aggregate(n=count())})\n'
    ran(
        write(
            tmp_path, CHANGED.replace('"number": number', '"number": orders.group_by("customer").aggregate(n=count())')
        )
    )
    config = write(tmp_path, CIRCUIT + circuit)
    with changed(config) as service:
        pushed(service, MORE)
        assert content(service, "number") == {("a", 2): 1, ("b", 2): 1}


def test_tables_that_come_and_go(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    names = """
names = dbsp.table("names", {"customer": dbsp.STRING, "name": dbsp.STRING})
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "named": per_customer.join(names, on="customer")})
"""
    config = write(tmp_path, CIRCUIT + names)
    with changed(config) as service:
        assert content(service, "named") == {}
        pushed(service, pa.table({"customer": ["a"], "name": ["Ann"]}), "names")
        assert len(content(service, "named")) == 1
    with changed(
        write(tmp_path, CIRCUIT + 'pipeline = dbsp.circuit("shop", {"per_customer": per_customer})\n')
    ) as service:
        pushed(service, MORE)
        assert content(service, "per_customer") == EXPECTED["per_customer"]
    with pytest.raises(CircuitError, match=r"rows arrived in a new table before the circuit had it.*table=names"):
        changed(write(tmp_path, CIRCUIT + names.replace('"named"', '"named_2"')))


@pytest.mark.parametrize("lost", ["before the change", "after it", "after more steps"])
def test_a_database_that_is_lost_is_made_again_from_its_standby(tmp_path: Path, lost: str) -> None:
    """Its standby has the changed circuit as soon as the ledger says so."""
    more = '[layout]\nstandbys = ["spare"]\n'
    ran(write(tmp_path, CIRCUIT, more=more))

    def lose(moment: str) -> None:
        if moment == lost:
            shutil.rmtree(tmp_path / "data" / "workers" / "0001")

    lose("before the change")
    config = write(tmp_path, CHANGED, more=more)
    if lost == "before the change":
        with pytest.raises(CircuitError, match="cannot be read: the database file is missing"):
            changed(config)
        with Service(write(tmp_path, CIRCUIT, more=more)) as service:
            assert content(service, "per_customer") == {("a", 1, 10): 1, ("b", 2, 601): 1}
        config = write(tmp_path, CHANGED, more=more)
    child = Child(config.folder / "pipeline.toml", "control.change:after:2", tmp_path / "said.txt", evolve=True)
    assert child.wait(120) == -9, (tmp_path / "said.txt").read_text()
    (tmp_path / "data" / "coordinator.json").unlink(missing_ok=True)
    lose("after it")
    with Service(config) as service:
        pushed(service, MORE)
        assert {view: content(service, view) for view in EXPECTED} == EXPECTED
    lose("after more steps")
    with Service(config) as service:
        assert {view: content(service, view) for view in EXPECTED} == EXPECTED
    for view, expected in EXPECTED.items():
        assert folded(config, view) == expected
    assert not diagnose(config).findings


def test_outputs_as_files(tmp_path: Path) -> None:
    more = '[output]\nkind = "files"\ndirectory = "out"\n'
    ran(write(tmp_path, CIRCUIT, more=more))
    with changed(write(tmp_path, CHANGED, more=more)) as service:
        pushed(service, MORE)
        assert content(service, "best") == EXPECTED["best"]
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} >= {"best", "large"}


def test_rows_out_of_files(tmp_path: Path) -> None:
    more = '[input]\nkind = "files"\ndirectory = "landing"\nlook_every_s = 0.05\n'
    (tmp_path / "landing" / "orders").mkdir(parents=True)

    def landed(service: Service, name: str, table: pa.Table, total: int) -> None:
        pq.write_table(table, tmp_path / "landing" / "orders" / name)
        assert service.live_status.wait_for(lambda now: now.processed.get(("orders", 0)) == total, 60)

    with Service(write(tmp_path, CIRCUIT, more=more)) as service:
        landed(service, "1.parquet", ORDERS, 3)
    with changed(write(tmp_path, CHANGED, more=more)) as service:
        landed(service, "2.parquet", MORE, 5)
        assert {view: content(service, view) for view in EXPECTED} == EXPECTED
    names = 'names = dbsp.table("names", {"name": dbsp.STRING})\n'
    added = CIRCUIT + names + 'pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "names": names})\n'
    with changed(write(tmp_path, added, more=more)) as service:
        pq.write_table(pa.table({"name": ["Ann"]}), tmp_path / "landing" / "names" / "1.parquet")
        assert service.live_status.wait_for(lambda now: now.processed.get(("names", 0)) == 1, 60)
        assert content(service, "names") == {("Ann",): 1}


def test_rows_that_fail_in_the_filling_are_decided_about(tmp_path: Path) -> None:
    """Under `stop` the pipeline halts before the step that fills; a decision is logged, and holds at every replay."""
    policy = 'error_policy="stop")'
    ran(write(tmp_path, CIRCUIT.replace("large})", "large}, " + policy)))
    shares = 'shares = orders.select("id", share=100 // (col("amount") - 1))\n'
    config = write(
        tmp_path,
        CIRCUIT
        + shares
        + 'pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "shares": shares}, '
        + policy,
        more="[checkpoint]\ninterval_s = 3600",
    )
    service = changed(config)
    service.start()
    halt = service.snapshot.halt
    assert halt is not None
    assert (halt.step, halt.count) == (1, 1)
    assert content(service, "per_customer") == {("a", 1, 10): 1, ("b", 2, 601): 1}, "what was kept can be read"
    with pytest.raises(UnavailableError, match="the view is not filled yet: view=shares step=1"):
        content(service, "shares")
    service.skip(halt.step)
    pushed(service, MORE)
    service.stop(now=True)
    expected = {(1, 11): 1, (4, 1): 1, (2, 1): 1}
    with Service(config) as again:
        assert content(again, "shares") == expected
    assert folded(config, "shares") == expected


def test_the_same_circuit_changes_nothing(tmp_path: Path) -> None:
    config = write(tmp_path, CIRCUIT)
    ran(config)
    with changed(config) as service:
        assert service.snapshot.step == 1


# --- what is told ---------------------------------------------------------------------------------------------------


def test_a_look_ahead_writes_nothing(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    write(tmp_path, CHANGED)
    before = prints(tmp_path / "data")
    done = script("serve", "pipeline.toml", "--check", "--accept-circuit", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "views added: best, number" in done.stdout
    assert "views dropped: large; what they have put out stays where it is" in done.stdout
    assert "filled from what is kept of: upsert#2: upsert by (id)" in done.stdout
    assert prints(tmp_path / "data") == before


def test_without_the_flag_it_is_refused(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    write(tmp_path, CHANGED)
    before = prints(tmp_path / "data")
    done = script("serve", "pipeline.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "--check --accept-circuit" in done.stderr
    assert prints(tmp_path / "data") == before


def test_another_name_takes_nothing_over(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    before = prints(tmp_path / "data")
    for circuit in (CIRCUIT, CHANGED):
        write(tmp_path, circuit)
        text = (tmp_path / "pipeline.toml").read_text()
        (tmp_path / "pipeline.toml").write_text(text.replace('name = "shop"', 'name = "another"'))
        for flags in ([], ["--check"], ["--accept-circuit"]):
            done = script("serve", "pipeline.toml", *flags, folder=tmp_path)
            assert done.returncode == 2, flags
            assert "belongs to another pipeline" in done.stderr, done.stderr
            assert 'name = "shop"' in done.stderr
            assert prints(tmp_path / "data") == before


def test_with_the_flag_what_cannot_be_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    write(tmp_path, CIRCUIT.replace('"amount": dbsp.INT64', '"amount": dbsp.INT32'))
    before = prints(tmp_path / "data")
    for flags in (["--accept-circuit"], ["--accept-circuit", "--check"]):
        done = script("serve", "pipeline.toml", *flags, folder=tmp_path)
        assert done.returncode == 2
        assert "the declaration of a table does not fit its kept rows: table=orders before=(" in done.stderr
        before_now = done.stderr.partition(" before=")[2].partition("\n")[0].split(" now=")
        assert ["amount: int64" in text for text in before_now] == [True, False], before_now
        assert ["amount: int32" in text for text in before_now] == [False, True], before_now
        assert "hint: put its declaration back" in done.stderr
        assert "Traceback" not in done.stderr
    assert prints(tmp_path / "data") == before


CLICKS = """
clicks = dbsp.table("clicks", {"page": dbsp.STRING, "at": dbsp.TIMESTAMP})
per_page = clicks.group_by("page").aggregate(n=count())
"""
KEPT = CIRCUIT + CLICKS + 'pipeline = dbsp.circuit("shop", {"large": large, "per_page": per_page, "clicks": clicks})\n'
BOTH = CIRCUIT + CLICKS + 'pipeline = dbsp.circuit("shop", {"large": large, "per_page": per_page})\n'
REFUSED = {
    "the declaration of a table does not fit.*table=orders": (
        CIRCUIT, CIRCUIT.replace('"amount": dbsp.INT64', '"amount": dbsp.INT32'),
    ),
    "the error policy .*before=dead-letter now=null": (CIRCUIT, CIRCUIT.replace("large})", 'large}, error_policy="null")')),
    "a new view reads columns of a table.*table=orders columns=amount kept=id,customer": (
        CIRCUIT + 'pipeline = dbsp.circuit("shop", {"n": orders.group_by("customer").aggregate(n=count())})\n', CIRCUIT,
    ),
    "a new view needs all earlier rows of a table.*table=clicks views=pages": (
        BOTH,
        BOTH + 'pages = clicks.select("page").distinct()\n'
        'pipeline = dbsp.circuit("shop", {"large": large, "per_page": per_page, "pages": pages})\n',
    ),
    "depends on when rows arrived.*views=new": (
        KEPT,
        BOTH + 'new = clicks.filter(col("at") > dbsp.now() - dbsp.days(1))\n'
        'pipeline = dbsp.circuit("shop", {"large": large, "per_page": per_page, "clicks": clicks, "new": new})\n',
    ),
    "depends on when rows arrived.*watermark": (
        KEPT,
        BOTH + 'new = clicks.with_watermark("at", dbsp.minutes(1)).group_by("at").aggregate(n=count())\n'
        'pipeline = dbsp.circuit("shop", {"large": large, "per_page": per_page, "clicks": clicks, "new": new})\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", REFUSED)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, story: str) -> None:
    old, new = REFUSED[story]
    config = write(tmp_path, old)
    if CLICKS in old:
        ran(config, pa.table({"page": ["/"], "at": [datetime.datetime(2024, 5, 31)]}), "clicks")
    ran(config)
    refused(tmp_path, new, story)
    with Service(write(tmp_path, old)):
        pass


def refused(folder: Path, circuit: str, story: str, **settings: Any) -> None:
    """Refused by a start and by a look ahead, with nothing written."""
    config = replace(write(folder, circuit), **settings)
    before = prints(config.data_dir)
    with pytest.raises(CircuitError, match=story):
        surveyed(config, load_plan(config))
    with pytest.raises(CircuitError, match=story):
        build(config, evolve=True)
    assert prints(config.data_dir) == before


def alter(config: Config, action: Callable[[ledgers.Ledger], ledgers.Ledger]) -> None:
    control = LmdbControl(config.data_dir)
    control.change(None, action)
    control.close()


def test_steps_above_the_checkpoint_are_run_by_the_circuit_that_logged_them(tmp_path: Path) -> None:
    config = write(tmp_path, CIRCUIT)
    ran(config)
    service = Service(config)
    service.start()
    pushed(service, MORE)
    service.stop(now=True)
    refused(tmp_path, CHANGED, "steps wait above the checkpoint: checkpoint=1 next=2")
    with Service(write(tmp_path, CIRCUIT)):
        pass
    with changed(write(tmp_path, CHANGED)) as again:
        assert content(again, "best") == EXPECTED["best"]


def test_a_pipeline_without_a_step(tmp_path: Path) -> None:
    with Service(write(tmp_path, CIRCUIT)):
        pass
    refused(tmp_path, CHANGED, "no checkpoint of the changed circuit exists yet")


def test_a_ledger_made_before(tmp_path: Path) -> None:
    config = write(tmp_path, CIRCUIT)
    ran(config)
    alter(config, lambda ledger: replace(ledger, signatures=None))
    refused(tmp_path, CHANGED, "an earlier version of dbsp made it")


def test_a_rescale_under_way(tmp_path: Path) -> None:
    config = write(tmp_path, CIRCUIT)
    ran(config)
    alter(config, lambda ledger: ledgers.request_rescale(ledger, 3))
    refused(tmp_path, CHANGED, "while a rescale is under way")


def test_a_change_that_is_not_filled_yet(tmp_path: Path) -> None:
    config = write(tmp_path, CIRCUIT)
    ran(config)
    alter(config, lambda ledger: replace(ledger, fill=Fill(step=1, command="fill {}")))
    refused(tmp_path, CHANGED, "before the backfill of the last change")


@dataclass
class Elsewhere:
    """Runs functions for workers as tasks on other hosts do: what goes there is sent. `lost` workers have no version."""

    work: Work
    lost: frozenset[int] = frozenset()
    asked: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = field(default_factory=list)

    def on_hosts(
        self, what: str, workers: Sequence[int], hosts: Sequence[str], function: Callable[..., Any], *arguments: Any
    ) -> dict[int, Any]:
        self.asked.append((what, tuple(workers), tuple(hosts)))
        work, function, arguments = pickle.loads(pickle.dumps((self.work, function, arguments)))
        return {worker: () if worker in self.lost else function(work, worker, *arguments) for worker in workers}


@pytest.mark.parametrize("lost", [None, 1])
def test_where_only_tasks_on_hosts_reach_the_databases(tmp_path: Path, lost: int | None) -> None:
    """A worker that lacks the last checkpoint is found before anything is written."""
    ran(write(tmp_path, CIRCUIT))
    config = write(tmp_path, CHANGED)
    plan = load_plan(config)
    evolution = surveyed(config, plan)
    assert evolution is not None
    control, steps = LmdbControl(config.data_dir), EmbeddedStepLog(config.data_dir)
    before = prints(config.data_dir)
    elsewhere = Elsewhere(
        work_of(config, plan, evolution.saved.checkpoint.run, NEWEST),
        frozenset() if lost is None else frozenset([lost]),
    )
    try:
        if lost is not None:
            with pytest.raises(CircuitError, match="a worker does not hold the last checkpoint: worker=1"):
                carry_out(evolution, plan, control, steps, OnHosts(runtime=elsewhere))
            assert prints(config.data_dir) == before
            return
        carry_out(evolution, plan, control, steps, OnHosts(runtime=elsewhere))
    finally:
        steps.close()
        control.close()
        close_resources(config.data_dir)
    assert [asked[:2] for asked in elsewhere.asked] == [("versions", (0, 1)), ("relabel", (0, 1))]
    with Service(config) as service:
        assert content(service, "best") == {("a", 10): 1, ("b", 600): 1}


def test_the_survey_looks_into_databases_of_its_own_host_alone(tmp_path: Path) -> None:
    ran(write(tmp_path, CIRCUIT))
    config = write(tmp_path, CHANGED)
    apart = replace(
        config,
        pipeline=replace(config.pipeline, runtime="spark"),
        spark=replace(config.spark, master="spark://there:7077"),
    )
    shutil.rmtree(tmp_path / "data" / "workers")
    with pytest.raises(CircuitError, match="a worker"):
        surveyed(config, load_plan(config))
    assert surveyed(apart, load_plan(apart)) is not None


def test_a_step_that_is_logged_meanwhile_ends_the_change(tmp_path: Path) -> None:
    """Looked at, then run once more by the old circuit: the change is not made over it."""
    ran(write(tmp_path, CIRCUIT))
    config = write(tmp_path, CHANGED)
    evolution = surveyed(config, load_plan(config))
    assert evolution is not None
    old = Service(write(tmp_path, CIRCUIT))
    old.start()
    pushed(old, MORE)
    old.stop(now=True)
    control, steps = LmdbControl(config.data_dir), EmbeddedStepLog(config.data_dir)
    plan = load_plan(write(tmp_path, CHANGED))
    with pytest.raises(Exception, match="a step was logged while"):
        carry_out(evolution, plan, control, steps, Here(data_dir=config.data_dir, resources=resources_of(config, plan)))
    ledger = control.load()
    assert ledger is not None
    assert ledger.fingerprint != plan.fingerprint
    steps.close()
    control.close()
    with Service(write(tmp_path, CIRCUIT)) as again:
        assert content(again, "per_customer") == EXPECTED["per_customer"]
