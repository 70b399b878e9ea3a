"""A run in one process that changes its workers hot: what moves, what is stored, what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dbsp
from dbsp.distribute.encoding import decode
from dbsp.distribute.names import STRATEGIES
from dbsp.errors import CircuitError, ConfigError, DataError, InternalError
from dbsp.layout import rescaled
from dbsp.logs import StepRecord
from dbsp.runtime import migrating, session
from dbsp.runtime.migration_state import kept_after
from dbsp.runtime.tasks import StepOrder
from dbsp.storage import WorkerDatabase
from dbsp.zset.batch import concat, consolidate, keys_of

sales = dbsp.table("sales", {"shop": dbsp.INT64, "amount": dbsp.INT64})
CIRCUIT = dbsp.circuit("hot", {"totals": sales.group_by("shop").aggregate(n=dbsp.count(), total=dbsp.sum("amount"))})


def feed(run: Any, step: int) -> dict[str, Any]:
    """Two rows of every shop, and one row that goes again."""
    rows = [{"shop": shop, "amount": shop * step} for shop in range(40)]
    run.push("sales", rows * 2)
    run.delete("sales", rows[step % 40 : step % 40 + 1])
    return run.step()  # type: ignore[no-any-return]


def totals(run: Any) -> list[Any]:
    return run.view("totals").to_rows()


@pytest.fixture(params=["memory", "lmdb"])
def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Where workers of a run keep their state: both databases."""
    kind: str = request.param
    if kind == "lmdb":
        numbers = itertools.count()
        monkeypatch.setattr(
            session,
            "MemoryDatabase",
            lambda create: WorkerDatabase.create(tmp_path / str(next(numbers)), create, map_size_bytes=1 << 24),
        )
    return kind


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_up_and_down_under_traffic(strategy: str, stores: str) -> None:
    """1, 2, 3, 1, 4, 2 workers: every step's output is that of a run that stays as it is."""
    with dbsp.open(CIRCUIT) as run, dbsp.open(CIRCUIT) as still:
        run._runtime.encode_parcels = still._runtime.encode_parcels = stores == "lmdb"
        feed(run, 0), feed(still, 0)
        for workers in (2, 3, 1, 4, 2):
            run.begin_rescale(workers, strategy, keys_per_step=4)
            least = moving_keys(run)
            steps = []
            while run.rescaling:
                step = run.step_number
                assert feed(run, step)["totals"].to_rows() == feed(still, step)["totals"].to_rows()
                steps.append(run.reports[-1].migration)
            assert sum(report.moved_keys for report in steps) == least
            assert max(report.moved_keys for report in steps) <= 4 * 4
            assert len(run.layout.workers) == workers
            assert sorted(run._resources.databases) == list(run.layout.workers)
            assert totals(run) == totals(still)
            assert feed(run, 99)["totals"].to_rows() == feed(still, 99)["totals"].to_rows()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_more_state_moves_in_a_step_than_may(strategy: str, stores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys were commanded; one key goes in any case, and the same ones when steps are run again."""
    monkeypatch.setattr(migrating, "STATE_BYTES_MAX", 250)
    monkeypatch.setattr(migrating, "_LOOKED_UP_AT_ONCE", 1)
    with dbsp.open(CIRCUIT) as run, dbsp.open(CIRCUIT) as still:
        run._runtime.encode_parcels = still._runtime.encode_parcels = stores == "lmdb"
        feed(run, 0), feed(still, 0)
        run.begin_rescale(2, strategy, keys_per_step=1000)
        while run.rescaling:
            step = run.step_number
            assert feed(run, step)["totals"].to_rows() == feed(still, step)["totals"].to_rows()
            if step == 5:
                moves = [report.migration for report in run.reports]
                run.restart()
                assert [report.migration for report in run.reports[-5:]] == moves[-5:]
        moved = [report.migration.moved_keys for report in run.reports if report.migration]
        assert 1 < max(moved) < 6
        monkeypatch.setattr(migrating, "STATE_BYTES_MAX", 1)
        run.begin_rescale(1, strategy, keys_per_step=1000)
        for step in range(run.step_number, run.step_number + 4):
            assert feed(run, step)["totals"].to_rows() == feed(still, step)["totals"].to_rows()
        assert run.reports[-1].migration.moved_keys == 1
        assert totals(run) == totals(still)


def moving_keys(run: Any) -> int:
    """How many key hashes have another owner in the layout to come."""
    migration_plan, moving = run._course, set()
    for trace in run.plan.all_traces():
        for worker in migration_plan.old.workers:
            with run._resources.database(worker).read_trace(trace) as spine:
                for part in spine.parts():
                    there = migration_plan.new.slot_of(part.key_hash)
                    moving |= {
                        key
                        for key, slot in zip(part.key_hash.tolist(), there.tolist(), strict=True)
                        if migration_plan.new.workers[slot] != worker
                    }
    return len(moving)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_between_two_steps_the_distributors_are_in_the_databases(strategy: str, stores: str) -> None:
    with dbsp.open(CIRCUIT, workers=2) as run:
        run._runtime.encode_parcels = stores == "lmdb"
        feed(run, 0)
        run.begin_rescale(3, strategy, keys_per_step=1)
        for step in range(1, 5):
            feed(run, step)
        assert run.rescaling
        before = [totals(run), run.reports[-1].migration]
        for worker in (0, 1, 2):
            kept = kept_after(run._resources.database(worker), run.step_number - 1)
            assert decode(kept.distributor).migrating
        run.checkpoint()
        feed(run, 5)
        run.restart()
        assert run.reports[-1].step == 5
        assert run.rescaling
        run.restart()
        assert run.reports[-1].migration.moved_keys == before[1].moved_keys


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cancel_moves_back_what_moved_and_no_more(strategy: str) -> None:
    with dbsp.open(CIRCUIT, workers=2) as run, dbsp.open(CIRCUIT) as still:
        feed(run, 0), feed(still, 0)
        run.begin_rescale(4, strategy, keys_per_step=2)
        with pytest.raises(ConfigError, match="not begun"):
            run.cancel_rescale()
        moved = 0
        for step in range(1, 5):
            feed(run, step), feed(still, step)
            moved += run.reports[-1].migration.moved_keys
        run.cancel_rescale()
        with pytest.raises(ConfigError, match="turns round already"):
            run.cancel_rescale()
        back = 0
        while run.rescaling:
            step = run.step_number
            assert feed(run, step)["totals"].to_rows() == feed(still, step)["totals"].to_rows()
            back += run.reports[-1].migration.moved_keys
        assert back == moved > 0
        assert run.layout.workers == (0, 1)
        assert totals(run) == totals(still)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_cancel_is_not_misled_by_what_is_left_of_keys_that_went_before(strategy: str, steps: int) -> None:
    """Keys went from worker 0 to 1; what is left of them at 0 adds up to nothing, and is not the state that never came back."""
    with dbsp.open(CIRCUIT) as run, dbsp.open(CIRCUIT) as still:
        for each in (run, still):
            each.push("sales", [{"shop": shop, "amount": 1} for shop in range(300)])
            each.step()
        run.begin_rescale(2, strategy, keys_per_step=30)
        while run.rescaling:
            run.step()
        assert leftovers(run, 0)
        run.begin_rescale(1, strategy, keys_per_step=1)
        for _ in range(steps):
            run.step()
        assert run.reports[-1].migration.left_keys > 0 or (strategy, steps) == ("icadd", 1)
        run.cancel_rescale()
        while still.step_number < run.step_number:
            still.step()
        for number in range(4):
            assert feed(run, number)["totals"].to_rows() == feed(still, number)["totals"].to_rows()
        while run.rescaling:
            run.step()
        assert totals(run) == totals(still)


def leftovers(run: Any, worker: int) -> set[int]:
    """Key hashes of rows that a worker stores and that add up to nothing."""
    found, live = set(), set()
    for trace in run.plan.all_traces():
        with run._resources.database(worker).read_trace(trace) as spine:
            stored = list(spine.parts())
            whole = consolidate(concat([part.loose() for part in stored], trace.arrangement.schema))
            found |= {number for part in stored for number in part.key_hash.tolist()}
            live |= set(keys_of(whole, trace.arrangement.key).tolist())
    return found - live


def test_what_is_refused() -> None:
    with dbsp.open(CIRCUIT) as run:
        with pytest.raises(CircuitError, match="no rescale is under way"):
            run.cancel_rescale()
        with pytest.raises(ConfigError, match="choose one of"):
            run.begin_rescale(2, "warm")
        with pytest.raises(ConfigError, match="no key would ever move"):
            run.begin_rescale(2, "icadd", keys_per_step=0)
        run.begin_rescale(2, "icadd")
        for again in (lambda: run.begin_rescale(3, "icadd"), lambda: run.rescale(3)):
            with pytest.raises(CircuitError, match="under way"):
                again()
        feed(run, 0)
        wrong = replace(run._course.new, owners=run._course.old.owners)
        right, run._course = run._course, replace(run._course, new=wrong)
        with pytest.raises(DataError, match="another layout"):
            feed(run, 1)
        run._course = right
        record = run._records[-1]
        with pytest.raises(InternalError, match="one layout alone"):
            StepOrder(record=record, epoch=1, layout=run.layout)
        plain = StepRecord(epoch=1, step=1, layout_version=0, ranges=(), clock_us=0, engine="x")
        with pytest.raises(DataError, match="without a command"):
            run._runtime.run_step(plain, run.layout, rescaled(run.layout, 3, step=1))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trace_that_a_later_segment_borrows_moves_once(strategy: str) -> None:
    """A node reads the trace of an earlier segment: it must see it after the move, and not write it again."""
    users = dbsp.table("users", {"id": dbsp.INT64, "x": dbsp.INT64}, primary_key="id")
    best = sales.group_by("shop").aggregate(id=dbsp.max("amount"))
    circuit = dbsp.circuit("shared", {"named": best.join(users, on="id")})
    with dbsp.open(circuit, workers=2) as run, dbsp.open(circuit) as still:
        assert any(run.plan.shared(segment) for segment in range(run.plan.segments))
        step(run, still)
        for workers in (3, 1):
            run.begin_rescale(workers, strategy, keys_per_step=3)
            while run.rescaling:
                step(run, still)
        step(run, still)


def step(run: Any, still: Any) -> None:
    """Another best shop here and there, another name here and there; both runs say the same."""
    now = run.step_number
    for one in (run, still):
        one.push("sales", [{"shop": shop, "amount": (7 * shop + now) % 40} for shop in range(20)])
        one.push("users", [{"id": user, "x": now} for user in range(now % 2, 40, 2)])
    assert run.step()["named"].to_rows() == still.step()["named"].to_rows()
