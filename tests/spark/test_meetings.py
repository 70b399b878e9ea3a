"""Tasks that meet: everybody gets what all have for him; a repeated task too; nobody waits for a job that has ended. No JVM."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import UnavailableError
from dbsp.runtime.spark.meetings import Meetings, joined
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle
from dbsp.runtime.spark.steps_ahead import StepsAhead
from dbsp.runtime.spark.steps_together import StepsTogether, meet
from tests.spark.pipelines import Open, play
from tests.spark.waiting import until
from tests.spark.wrapped_sites import KillingSite

WORKERS = 3


@pytest.fixture
def meetings() -> Iterator[Meetings]:
    with tempfile.TemporaryDirectory(prefix="meet") as folder:
        made = Meetings(Path(folder), threading.Lock())
        yield made
        made.close()
        assert not list(Path(folder).iterdir())


def blocks_of(source: int, depth: int) -> list[bytes]:
    """Of any length, also none."""
    return [f"{depth}: {source} to {to}".encode() * (source * to * 1000) for to in range(WORKERS)]


def task(meetings: Meetings, number: int, slot: int, exchanges: int = 2) -> list[list[bytes]]:
    with joined(meetings.address, number, slot) as meeting:
        return [meeting.exchange(depth, blocks_of(slot, depth)) for depth in range(exchanges)]


def arrive(slot: int) -> list[list[bytes]]:
    return [[blocks_of(source, depth)[slot] for source in range(WORKERS)] for depth in range(2)]


def test_everybody_gets_what_all_have_for_him(meetings: Meetings) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        for job in range(3):
            with meetings.held(WORKERS) as number:
                assert number == job + 1
                found = list(pool.map(lambda slot, number=number: task(meetings, number, slot), range(WORKERS)))
            assert found == [arrive(slot) for slot in range(WORKERS)]
    assert meetings.heard() == 3 * 2 * WORKERS


def test_a_task_that_runs_again_finds_what_it_brought_before(meetings: Meetings) -> None:
    with ThreadPoolExecutor(WORKERS) as pool, meetings.held(WORKERS) as number:
        others = [pool.submit(task, meetings, number, slot) for slot in (0, 1)]
        with joined(meetings.address, number, 2) as dies:
            dies.exchange(0, blocks_of(2, 0))
        assert task(meetings, number, 2) == arrive(2)
        assert [other.result() for other in others] == [arrive(0), arrive(1)]
        assert task(meetings, number, 0) == arrive(0), "and after all have left"


def test_who_waits_when_the_job_ends_is_turned_away(meetings: Meetings) -> None:
    with ThreadPoolExecutor(1) as pool:
        with meetings.held(WORKERS) as number:
            waits = pool.submit(task, meetings, number, 1)
            until(lambda: meetings.heard() == 1, "it waits")
        with pytest.raises(UnavailableError, match="ended before its task: slot=1 depth=0"):
            waits.result()


def test_a_task_of_another_job_is_turned_away(meetings: Meetings) -> None:
    with meetings.held(WORKERS) as first:
        pass
    with meetings.held(WORKERS), pytest.raises(UnavailableError, match="has ended"):
        task(meetings, first, 0)
    with pytest.raises(UnavailableError, match="has ended"):
        task(meetings, first + 1, 0)


def test_where_nobody_listens_the_socket_is_named(meetings: Meetings) -> None:
    meetings.close()
    with pytest.raises(UnavailableError, match=re.escape(f"socket={meetings.address}")):
        task(meetings, 1, 0)


def test_one_job_meets_at_a_time(meetings: Meetings) -> None:
    other = Meetings(Path(meetings.address).parent, meetings._turn)
    began = threading.Event()

    def second() -> None:
        with other.held(1):
            began.set()

    thread = threading.Thread(target=second)
    with meetings.held(1):
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


class Plan:
    """What counts of a plan."""

    def __init__(self, segments: int = 2, loops: tuple[int, ...] = ()) -> None:
        self.segments, self.loops = segments, loops


def test_tasks_wait_for_each_other_only_where_all_run_at_once() -> None:
    context: Any = Context()
    plan: Any = Plan()
    assert meet(context, plan, 2)
    assert not meet(context, plan, 3)
    wide: Any = Context(spark_task_cpus="2")
    assert meet(wide, plan, 1)
    assert not meet(wide, plan, 2)
    single: Any = Plan(segments=1)
    loops: Any = Plan(loops=(0,))
    assert not meet(context, single, 2)
    assert not meet(context, loops, 2)
    context.master = "local-cluster[2,1,600]"
    assert not meet(context, plan, 2)


@pytest.mark.spark
def test_steps_that_meet_and_steps_with_shuffles_give_the_same_bytes(
    spark: SparkHandle, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = []
    found = []
    for together in (True, False):
        if not together:
            monkeypatch.setattr("dbsp.runtime.spark.runtime.meet", lambda *_: False)
        one = opened(tmp_path / str(together), lambda work: SparkRuntime(work, spark=spark), workers=2)
        play(one, 2)
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
    assert kinds == [StepsTogether, StepsAhead]
    assert found[0] == found[1]


@pytest.mark.spark
@pytest.mark.parametrize("point", ["segment 1 begins", "segment 2 begins", "before writing", "all done"])
def test_a_worker_killed_in_a_step_meets_the_others_again(
    point: str, spark: SparkHandle, opened: Open, tmp_path: Path
) -> None:
    one = opened(tmp_path / "a")
    play(one, 3)
    mark = tmp_path / "killed"
    killing = opened(
        tmp_path / "b", lambda work: SparkRuntime(work, spark=spark), workers=2,
        wrap_site=lambda site: KillingSite(site, mark, point, 1, 1),
    )  # fmt: skip
    play(killing, 3)
    assert isinstance(killing.runtime._stage.steps, StepsTogether)
    assert mark.exists()
    assert (killing.outputs(), killing.views()) == (one.outputs(), one.views())
