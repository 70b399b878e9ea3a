"""Tasks that stay and meet: all get their steps, and what all have for them; repeated ones too; nobody waits for what is over."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import UnavailableError
from dbsp.runtime.spark.resident_tasks import ResidentTasks, meet
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import TASK_FAILURES_MAX, SparkHandle
from dbsp.runtime.spark.steps_ahead import StepsAhead
from dbsp.runtime.spark.task_server import COMES, TaskServer, TurnedAwayError, joined
from tests.pace import rotating
from tests.spark.pipelines import Open, play
from tests.spark.waiting import until
from tests.spark.wrapped_resources import KillingResources

WORKERS = 3


@pytest.fixture
def task_server() -> Iterator[TaskServer]:
    with tempfile.TemporaryDirectory(prefix="meet") as folder:
        made = TaskServer(Path(folder), threading.Lock())
        yield made
        made.close()
        assert not list(Path(folder).iterdir())


def blocks_of(source: int, depth: int) -> list[bytes]:
    """Of any length, also none."""
    return [f"{depth}: {source} to {to}".encode() * (source * to * 1000) for to in range(WORKERS)]


def task(
    task_server: TaskServer, standing: int, slot: int, exchanges: int = 2
) -> list[tuple[bytes, list[list[bytes]]]]:
    """A worker until it is sent away: what it was told, and what it was given."""
    done, report = [], None
    with joined(task_server.address, standing, slot) as meeting:
        while (asked := meeting.asked(report)) is not None:
            number, order = asked
            found = [meeting.exchange(number, depth, blocks_of(slot, depth)) for depth in range(exchanges)]
            done.append((order, found))
            report = number, b"%d did " % slot + order
    return done


def arrive(slot: int) -> list[list[bytes]]:
    return [[blocks_of(source, depth)[slot] for source in range(WORKERS)] for depth in range(2)]


@contextmanager
def stood(task_server: TaskServer) -> Iterator[int]:
    """A job stands meanwhile."""
    standing = task_server.stand()
    yield standing
    task_server.over(standing)


def test_everybody_gets_every_step_and_what_all_have_for_him(task_server: TaskServer) -> None:
    orders = [b"one", b"two", b""]
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in range(2):
            with stood(task_server) as standing:
                tasks = [pool.submit(task, task_server, standing, slot) for slot in range(WORKERS)]
                for order in orders:
                    reports = task_server.step(standing, order, WORKERS, 0)
                    assert reports == [b"%d did " % slot + order for slot in range(WORKERS)]
                task_server.send_away()
                for slot in range(WORKERS):
                    assert tasks[slot].result() == [(order, arrive(slot)) for order in orders]
                assert task_server.step(standing, b"late", WORKERS, 0) is None
    assert task_server.heard() == 2 * WORKERS * (len(orders) * 3 + 1)


def test_a_task_that_runs_again_is_given_the_step_and_finds_what_it_brought_before(task_server: TaskServer) -> None:
    with ThreadPoolExecutor(WORKERS + 1) as pool, stood(task_server) as standing:
        step = pool.submit(task_server.step, standing, b"one", WORKERS, 0)
        with joined(task_server.address, standing, 2) as dies:
            number, order = dies.asked(None) or (0, b"")
            others = [pool.submit(task, task_server, standing, slot) for slot in (0, 1)]
            dies.exchange(number, 0, blocks_of(2, 0))
        again = pool.submit(task, task_server, standing, 2)
        assert step.result() == [b"%d did " % slot + order for slot in range(WORKERS)]
        assert task_server.step(standing, b"two", WORKERS, 1) is None, "of this job one task has failed already"
        assert again.result() == [(b"one", arrive(2))]
        assert [other.result() for other in others] == [[(b"one", arrive(0))], [(b"one", arrive(1))]]


def test_a_report_counts_once_and_for_its_own_step(task_server: TaskServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        for order in (b"one", b"two"):
            with stood(task_server) as standing:
                step = pool.submit(task_server.step, standing, order, 1, 0)
                with (
                    joined(task_server.address, standing, 0) as first,
                    joined(task_server.address, standing, 0) as second,
                ):
                    number, _ = first.asked(None) or (0, b"")
                    assert second.asked((number - 1, b"of the step before")) == (number, order), (
                        "a report of this one is due"
                    )
                    task_server.send_away()
                    assert first.asked((number, b"first")) is None
                    assert second.asked((number, b"second")) is None
                assert step.result() == [b"first"]


def test_who_has_done_his_part_is_told_once_what_comes_next(task_server: TaskServer) -> None:
    with ThreadPoolExecutor(2) as pool, stood(task_server) as standing:
        task_server.coming(b"two", 2)
        step = pool.submit(task_server.step, standing, b"one", 2, 1)
        with joined(task_server.address, standing, 0) as early, joined(task_server.address, standing, 1) as late:
            number, order = early.asked(None) or (COMES, b"")
            assert (number != COMES, order) == (True, b"one"), "what is to be done comes first"
            assert early.asked((number, b"early")) == (COMES, b"two")
            assert late.asked(None) == (number, b"one")
            waits = pool.submit(early.asked, None)
            assert late.asked((number, b"late")) == (COMES, b"two"), "also when all have done theirs"
            assert step.result() == [b"early", b"late"]
            task_server.coming(b"four", 4)
            step = pool.submit(task_server.step, standing, b"two", 2, 2)
            number, order = waits.result() or (COMES, b"")
            assert (number != COMES, order) == (True, b"two"), "told once, and then to do it"
            assert late.asked(None) == (number, b"two")
            task_server.send_away()
            waits = pool.submit(early.asked, (number, b"early"))
            assert late.asked((number, b"late")) is None
            assert waits.result() is None, "the fourth does not follow the second"
            assert step.result() == [b"early", b"late"]


def test_who_is_in_a_step_when_the_job_ends_is_turned_away(task_server: TaskServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        standing = task_server.stand()
        step = pool.submit(task_server.step, standing, b"one", WORKERS, 0)
        waits = pool.submit(task, task_server, standing, 1)
        until(lambda: task_server.heard() == 2, "it waits for the others")
        task_server.over(standing)
        with pytest.raises(TurnedAwayError, match="ended before its task: slot=1"):
            waits.result()
        with pytest.raises(UnavailableError, match="ended before the step did"):
            step.result()


def test_a_task_of_another_job_is_turned_away(task_server: TaskServer) -> None:
    with stood(task_server) as first:
        pass
    with stood(task_server) as second, pytest.raises(TurnedAwayError, match=f"slot=0 number={first}"):
        task(task_server, first, 0)
    assert task(task_server, second, 0) == [], "nobody stands, and nobody waits"


def test_who_has_nothing_to_do_goes(task_server: TaskServer) -> None:
    hasty = TaskServer(Path(task_server.address).parent, threading.Lock(), linger_s=0.05)
    with ThreadPoolExecutor(WORKERS) as pool, stood(hasty) as standing:
        tasks = [pool.submit(task, hasty, standing, slot) for slot in range(WORKERS)]
        assert [each.result(60) for each in tasks] == [[]] * WORKERS
        assert hasty.step(standing, b"late", WORKERS, 0) is None
    hasty.close()


def test_who_is_sent_away_in_a_step_ends_it_first(task_server: TaskServer) -> None:
    with ThreadPoolExecutor(WORKERS + 1) as pool, stood(task_server) as standing:
        step = pool.submit(task_server.step, standing, b"one", WORKERS, 0)
        tasks = [pool.submit(task, task_server, standing, slot) for slot in (0, 1)]
        until(lambda: task_server.heard() == 4, "two wait for the third")
        task_server.send_away()
        tasks.append(pool.submit(task, task_server, standing, 2))
        assert [each.result() for each in tasks] == [[(b"one", arrive(slot))] for slot in range(WORKERS)]
        assert step.result() == [b"%d did one" % slot for slot in range(WORKERS)]


def test_where_nobody_listens_the_socket_is_named(task_server: TaskServer) -> None:
    task_server.close()
    with pytest.raises(UnavailableError, match=re.escape(f"socket={task_server.address}")):
        task(task_server, 1, 0)


def test_one_job_stands_at_a_time(task_server: TaskServer) -> None:
    other = TaskServer(Path(task_server.address).parent, task_server._turn)
    began = threading.Event()

    def second() -> None:
        with stood(other):
            began.set()

    thread = threading.Thread(target=second)
    with stood(task_server):
        thread.start()
        assert not began.wait(0.2)
    thread.join(60)
    assert began.is_set()
    other.close()


class Context:
    """A context of two cores."""

    master = "local[2,4]"

    def __init__(self, **conf: str) -> None:
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self) -> Any:
        return self

    def __int__(self) -> int:
        return 2

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self._conf


def test_tasks_wait_for_each_other_only_where_all_run_at_once() -> None:
    context: Any = Context()
    assert meet(context, 2)
    assert not meet(context, 3)
    wide: Any = Context(spark_task_cpus="2")
    assert meet(wide, 1)
    assert not meet(wide, 2)
    context.master = "local-cluster[2,1,600]"
    assert not meet(context, 2)


@pytest.fixture(params=["stays", "goes"])
def stays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether tasks wait for the next step, as they do where Spark is the runtime's own."""
    stays: bool = request.param == "stays"
    monkeypatch.setattr(SparkRuntime, "_stays", lambda _: stays)
    return stays


@pytest.mark.spark
def test_steps_that_meet_and_steps_with_shuffles_give_the_same_bytes(
    spark: SparkHandle, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    kinds, jobs = [], []
    found = []
    for together in (True, False):
        if not together:
            monkeypatch.setattr("dbsp.runtime.spark.runtime.meet", lambda *_: False)
        one = opened(tmp_path / str(together), lambda work: SparkRuntime(work, spark=spark), workers=2)
        one.runtime.warm_up(one.layout, room_s=60.0)  # as a standby does; with shuffles it exchanges nothing once
        play(one, 1)
        before = jobs_of(one)
        play(one, 3)
        jobs.append(jobs_of(one) - before)
        kinds.append(type(one.runtime._stage.steps))
        one.checkpoint()
        one.new_epoch()
        one.rescale(3)
        play(one, 1)
        assert type(one.runtime._stage.steps) is StepsAhead, "two cores for three workers"
        one.new_epoch()
        one.rescale(2)
        play(one, 1)
        found.append((one.outputs(), one.views()))
    assert kinds == [ResidentTasks, StepsAhead]
    assert jobs == [0 if stays else 3, 3]
    assert found[0] == found[1]


def jobs_of(one: Any) -> int:
    """How many jobs of its steps Spark knows."""
    runtime = one.runtime
    return len(runtime._context.statusTracker().getJobIdsForGroup(runtime._jobs.group))


@pytest.mark.spark
@pytest.mark.parametrize("point", rotating(["segment 1 begins", "segment 2 begins", "before writing", "all done"], 2))
@pytest.mark.usefixtures("stays")
def test_a_worker_killed_in_a_step_meets_the_others_again(
    point: str, spark: SparkHandle, opened: Open, tmp_path: Path
) -> None:
    one = opened(tmp_path / "a")
    play(one, 3)
    mark = tmp_path / "killed"
    killing = opened(
        tmp_path / "b", lambda work: SparkRuntime(work, spark=spark), workers=2,
        wrap_resources=lambda resources: KillingResources(resources, mark, point, 1, 1),
    )  # fmt: skip
    play(killing, 3)
    assert isinstance(killing.runtime._stage.steps, ResidentTasks)
    assert mark.exists()
    assert (killing.outputs(), killing.views()) == (one.outputs(), one.views())


@pytest.mark.spark
def test_a_worker_may_be_killed_in_every_step(
    spark: SparkHandle, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than a task may fail, which Spark counts for a whole job, and so over many steps."""
    monkeypatch.setattr(SparkRuntime, "_stays", lambda _: True)
    marks = [tmp_path / f"killed {step}" for step in range(TASK_FAILURES_MAX + 1)]
    one = opened(tmp_path / "a")
    play(one, len(marks))

    def killing(resources: Any) -> Any:
        for step, mark in enumerate(marks):
            resources = KillingResources(resources, mark, "segment 1 begins", 1, step)
        return resources

    other = opened(tmp_path / "b", lambda work: SparkRuntime(work, spark=spark), workers=2, wrap_resources=killing)
    play(other, len(marks))
    assert all(mark.exists() for mark in marks)
    assert (other.outputs(), other.views()) == (one.outputs(), one.views())


@pytest.mark.spark
def test_a_job_that_is_cancelled_between_steps_is_followed_by_another(
    spark: SparkHandle, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkRuntime, "_stays", lambda _: True)
    one = opened(tmp_path / "a")
    play(one, 3)
    cancelled = opened(tmp_path / "b", lambda work: SparkRuntime(work, spark=spark), workers=2)
    for _ in range(3):
        play(cancelled, 1)
        standing = cancelled.runtime._stage.steps._standing
        cancelled.runtime.cancel()
        assert standing.ended.exception(60) is not None
    assert (cancelled.outputs(), cancelled.views()) == (one.outputs(), one.views())
