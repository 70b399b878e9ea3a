"""Reads on workers of other hosts: in tasks there, as of one step, while steps run. The oracle is a read of this process.

All is on this machine, and the runtime is made to think otherwise. `tests/kafka/test_hosts_apart.py` has hosts whose
disks are apart.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import UnavailableError
from dbsp.runtime import far_views
from dbsp.runtime.far_views import FarViews
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.leases import ALL, NO_OLD_VIEWS, Wanted, condition_of, traces_of
from dbsp.runtime.ranges import ColumnRange
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.spark import far_reads
from dbsp.runtime.spark.placement import live_hosts
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle
from dbsp.runtime.standbys import Lag, StandbyRoute, follow
from dbsp.runtime.version_copies import CopiesHere, version_sizes
from dbsp.runtime.work import Work
from dbsp.storage import WorkerDatabase
from dbsp.storage.far_standby import FarStandby
from dbsp.trace.manifest import state_bytes
from dbsp.trace.spine import Spine
from tests.spark.pipelines import Open, Pipeline, customers, orders, push_some
from tests.spark.waiting import until
from tests.spark.wrapped_resources import Delegate, HaltingResources

pytestmark = pytest.mark.spark
WORKERS = 3  # more than cores, so that no resident task holds a core, as on a cluster


def circuit() -> Any:
    by_customer = orders.group_by("customer").aggregate(n=dbsp.count(), top=dbsp.max("amount"))
    views = {"orders": orders, "by_customer": by_customer, "sorted": orders, "customers": customers}
    return dbsp.circuit("read", views, sorted_by={"sorted": ("amount",)})


@dataclasses.dataclass(frozen=True)
class HaltingReads(Delegate):
    """A page is stopped in its task, after its lease was opened, if that was asked for; else nothing happens."""

    halting: HaltingResources

    def database(self, worker: int, create: Any = None) -> Any:
        return HaltingDatabase(self.inner.database(worker, create), self.halting, worker)


@dataclasses.dataclass(frozen=True)
class HaltingDatabase(Delegate):
    halting: HaltingResources
    worker: int

    def grant_named(self, *arguments: Any) -> Any:
        return self.inner.grant_named(*arguments)

    def end_named(self, *arguments: Any) -> None:
        self.inner.end_named(*arguments)

    def named_lease(self, epoch: int, name: int, traces: Any) -> Any:
        found = self.inner.named_lease(epoch, name, traces)
        self.halting.at("page", self.worker, name)
        return found


@pytest.fixture
def far(spark: SparkHandle, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], Runtime]:
    """Makes a runtime that thinks that its workers' files are on other hosts, and sends small pages."""
    monkeypatch.setattr("dbsp.runtime.spark.session.is_local", lambda _: False)
    monkeypatch.setattr(far_views, "PAGE_BYTES_FIRST", 2000)
    monkeypatch.setattr(far_views, "PAGE_BYTES_MAX", 4000)
    return lambda work: SparkRuntime(work, spark=spark)


@pytest.fixture
def pipeline(far: Callable[[Work], Runtime], opened: Open, tmp_path: Path) -> Pipeline:
    halting = HaltingResources(None, tmp_path / "halt")
    made = opened(
        tmp_path / "data", far, WORKERS, circuit(), lambda resources: HaltingReads(resources, halting), kind=Halted
    )
    made.halting = halting
    for _ in range(4):
        push_some(made, 1, 150)
        made.run_step()
    return made


class Halted(Pipeline):
    halting: HaltingResources


def leased(pipeline: Pipeline) -> Any:
    return pipeline.runtime.lease_views((), pipeline.step, pipeline.layout)


def here(pipeline: Pipeline) -> Any:
    """A lease of this process on the same databases."""
    return InProcessRuntime(
        dataclasses.replace(pipeline.runtime.work, resources=pipeline.runtime.work.resources.inner),  # type: ignore[attr-defined]
        epoch=pipeline.epoch,
    ).lease_views((), pipeline.step, pipeline.layout)


def whole(views: Any, view: str, wanted: Wanted = ALL) -> pa.Table:
    return pa.concat_tables(views.read(view, wanted)).combine_chunks()


def parts(pipeline: Pipeline) -> list[tuple[str, Wanted]]:
    schemas = {view.name: view.schema for view in pipeline.plan.views}
    amounts = ColumnRange(column="amount", low=pa.scalar(20.0), high=pa.scalar(60.0), low_in=True, high_in=False)
    return [
        ("orders", ALL),
        ("by_customer", ALL),
        ("sorted", ALL),
        ("customers", ALL),
        ("orders", Wanted(columns=("amount",))),
        ("by_customer", Wanted(equal=condition_of("by_customer", schemas["by_customer"], {"customer": "c7"}))),
        ("by_customer", Wanted(equal=condition_of("by_customer", schemas["by_customer"], {"customer": "nobody"}))),
        ("orders", Wanted(equal=condition_of("orders", schemas["orders"], {"customer": "c7"}), columns=("id",))),
        ("orders", Wanted(ranges=(amounts,))),
        ("sorted", Wanted(ranges=(amounts,))),
    ]


def asked(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The workers that are asked for each round of pages from now on."""
    found: list[tuple[int, ...]] = []
    reads = pipeline.runtime.far_reads  # type: ignore[attr-defined]
    original = reads.pages
    monkeypatch.setattr(reads, "pages", lambda order, asks: (found.append(tuple(asks)), original(order, asks))[1])
    return found


def test_a_read_in_tasks_is_the_read_here(pipeline: Pipeline) -> None:
    """With steps, a checkpoint and merges between the pages of all reads; rows come in the same order."""
    far, near = leased(pipeline), here(pipeline)
    assert isinstance(far, FarViews)
    wanted = parts(pipeline)
    expected = [whole(near, *each) for each in wanted]
    assert all(far.size(view) == near.size(view) > 0 for view in ("orders", "by_customer", "sorted", "customers"))
    reads = [far.read(*each) for each in wanted]
    found: list[list[pa.Table]] = [[] for _ in reads]
    for turn in range(1000):
        if turn < 4:
            push_some(pipeline, 2, 100)
            pipeline.run_step()
        if turn == 2:
            pipeline.checkpoint()
        pages = [next(read, None) for read in reads]
        for tables, page in zip(found, pages, strict=True):
            tables.extend([] if page is None else [page])
        if not any(page is not None for page in pages):
            break
    assert [pa.concat_tables(tables).combine_chunks() for tables in found] == expected
    assert max(map(len, found)) > 2, "no view has several pages"
    far.end()
    near.end()
    again, now = leased(pipeline), here(pipeline)
    assert whole(again, "orders") == whole(now, "orders") != expected[0]
    again.end()
    now.end()


def test_steps_finish_while_a_page_is_read(pipeline: Pipeline) -> None:
    """A task of a read is held in the middle; the steps do not wait for it, and it goes on with the rows of its step."""
    far, near = leased(pipeline), here(pipeline)
    expected = whole(near, "orders")
    pipeline.halting.arm("page")
    found: list[pa.Table] = []
    reading = threading.Thread(target=lambda: found.append(whole(far, "orders")))
    reading.start()
    until(pipeline.halting.reached, "a page is being read")
    for _ in range(3):
        push_some(pipeline, 2, 100)
        pipeline.run_step()
    pipeline.checkpoint()
    assert reading.is_alive()
    pipeline.halting.release()
    reading.join(60)
    assert found == [expected]
    now = here(pipeline)
    assert whole(now, "orders") != expected
    for each in (far, near, now):
        each.end()


def test_only_wanted_rows_are_sent(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is looked up on its owner, an absent one perhaps nowhere; with a limit no further page is read."""
    far, near, rounds = leased(pipeline), here(pipeline), asked(pipeline, monkeypatch)
    key = Wanted(equal=condition_of("by_customer", far.spec("by_customer").schema, {"customer": "c7"}))
    assert len(whole(far, "by_customer", key)) == 1
    assert [len(workers) for workers in rounds] == [1]
    rounds.clear()
    first = next(iter(far.read("orders", Wanted(first=10))))
    assert [len(workers) for workers in rounds] == [WORKERS]
    assert first.slice(0, 10) == whole(near, "orders").slice(0, 10)
    rounds.clear()
    nobody = Wanted(equal=condition_of("orders", far.spec("orders").schema, {"id": -1}))
    assert whole(far, "orders", nobody) == whole(near, "orders", nobody)
    assert len(rounds) > 0, "this condition is not on the whole key, so the rows are read"
    far.end()
    near.end()


def test_a_read_whose_lease_is_over_says_so(pipeline: Pipeline) -> None:
    for over in (
        lambda far: far.end(),
        lambda _: pipeline.new_epoch(),
        lambda _: pipeline.rescale(WORKERS - 1),
    ):
        far = leased(pipeline)
        read = far.read("orders")
        next(read)
        over(far)
        with pytest.raises(UnavailableError, match="the rows that were read are no longer held"):
            list(read)
        with pytest.raises(UnavailableError, match="the rows that were read are no longer held"):
            next(far.read("orders"))
        far.end()
    pipeline.rescale(WORKERS + 1)
    push_some(pipeline, 3, 100)
    pipeline.run_step()
    far, near = leased(pipeline), here(pipeline)
    assert whole(far, "orders") == whole(near, "orders")
    far.end()
    near.end()


def test_a_host_without_an_executor_is_not_waited_for(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a grant, for which steps would wait, nor by a page; Spark would run the task on another host."""
    (host,) = live_hosts(pipeline.runtime._context)  # type: ignore[attr-defined]
    near = here(pipeline)
    pipeline.layout = dataclasses.replace(pipeline.layout, hosts=(host,) * WORKERS)
    far = leased(pipeline)
    read = far.read("orders")
    first = next(read)
    monkeypatch.setattr(far_reads, "live_hosts", lambda _: set())
    with pytest.raises(UnavailableError, match="the rows that were read are no longer held: no Spark executor"):
        list(read)
    with pytest.raises(UnavailableError, match="no Spark executor on the host of a worker"):
        leased(pipeline)
    monkeypatch.setattr(far_reads, "live_hosts", live_hosts)
    assert whole(far, "orders") == whole(near, "orders")
    assert whole(near, "orders").slice(0, len(first)) == first.combine_chunks()
    far.end()
    near.end()


def test_ended_leases_hold_no_chunks(pipeline: Pipeline) -> None:
    """The end of a lease that was lost comes with the next grant."""
    reads: Any = pipeline.runtime.far_reads  # type: ignore[attr-defined]
    databases = [pipeline.runtime.work.resources.inner.database(worker) for worker in pipeline.layout.workers]  # type: ignore[attr-defined]

    def held() -> set[int]:
        found = set()
        for database in databases:
            database.attach(pipeline.epoch)
            scratch, _ = database._both()
            with scratch.environment.reading() as txn:
                found |= {len(txn.keys("leases")), len({key[:8] for key in txn.keys("named")})}
        return found

    first = leased(pipeline)
    assert held() == {1}
    first.end()
    until(lambda: held() == {0}, "the end has come to all workers")
    lost = leased(pipeline)
    reads._ending = True  # as if the message was under way, and did not arrive
    lost.end()
    reads._ending = False
    assert held() == {1}
    last = leased(pipeline)
    assert held() == {1}
    last.end()
    until(lambda: held() == {0}, "the end has come to all workers")


def test_versions_are_copied_here_while_steps_run(pipeline: Pipeline, tmp_path: Path) -> None:
    """As before an upgrade: each copy is the version on its worker, whatever steps and checkpoints come meanwhile."""
    pipeline.checkpoint()
    runtime: Any = pipeline.runtime
    workers, version = pipeline.layout.workers, pipeline.version
    sizes = runtime.far_reads.run("ask for versions", workers, ("",) * WORKERS, version_sizes)
    copies = {worker: FarStandby(tmp_path / "copies" / str(worker)) for worker in workers}
    carrier = CopiesHere(runtime.far_reads, copies.__getitem__, 3000)
    lags: list[Lag] = []

    def on_lag(lag: Lag) -> None:
        lags.append(lag)
        if len(lags) == 2 * WORKERS:  # some pieces have come
            push_some(pipeline, 2, 100)
            pipeline.run_step()
            pipeline.checkpoint()

    routes = [StandbyRoute(worker=worker, home="", host="") for worker in workers]
    with ExitStack() as opened:
        originals = [opened.enter_context(database.read_version(version)) for database in databases(pipeline)]
        expected = [read_all(pipeline, view) for view in originals]
        follow(carrier, version, pipeline.epoch, routes, on_lag, lambda: False)
        assert (len(lags) > 4 * WORKERS, pipeline.version) == (True, version + 1)
        left = carrier.sent_bytes
        for worker, copy in copies.items():
            ((info, size),) = [(info, size) for info, size in sizes[worker].items() if info.version == version]
            assert copy.versions() == (info,)
            with closing(WorkerDatabase(copy.home)) as database, database.read_version(version) as view:
                assert read_all(pipeline, view) == expected[worker]
                assert size == sum(state_bytes(state) for state in view.traces.values()) > 0
                left -= size
    assert 0 <= left < carrier.sent_bytes // 10, "each chunk is sent once, in its frame"


def databases(pipeline: Pipeline) -> list[Any]:
    resources = pipeline.runtime.work.resources.inner  # type: ignore[attr-defined]
    return [resources.database(worker) for worker in pipeline.layout.workers]


def read_all(pipeline: Pipeline, version: Any) -> dict[int, list[pa.Table]]:
    """All rows of each view's trace in a version."""
    specs = {trace.id: trace.arrangement for trace in traces_of(pipeline.plan, NO_OLD_VIEWS)}
    return {
        trace: [part.to_arrow(weight_column="weight") for part in Spine(specs[trace], state, version.chunks).parts()]
        for trace, state in version.traces.items()
        if trace in specs
    }
