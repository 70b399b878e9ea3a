"""Two coordinators of one pipeline, started together (fault row 13): one owns it, the other is refused wherever it writes.

The step that decides (claim an epoch in the step log, note it in the ledger) is raced a hundred times by two processes that stay;
whole services are started together a few times, on Spark in the long runs.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.running.control import new_ledger, raise_epoch
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.errors import FencedError
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.layout import initial
from dbsp.logs import StepRecord
from dbsp.version import VERSION
from tests.crash.test_coordinator_crash import SETTINGS, finish, pipeline

pytestmark = pytest.mark.crash

ROUNDS = 100
WAIT_S = 120


def claim_in_turn(folder: Path, start: Any, claimed: Any, told: Any) -> None:
    """In a process: in every round claim, wait until the other has too, then write; tell what came of it."""
    for number in range(ROUNDS):
        steps, control = EmbeddedStepLog(folder), LmdbControl(folder)
        start.wait(WAIT_S)
        epoch, wrote = 0, False
        try:
            epoch = steps.claim()
            control.change(epoch, lambda ledger, epoch=epoch: raise_epoch(ledger, epoch))
        except FencedError:
            pass
        claimed.wait(WAIT_S)
        record = StepRecord(
            epoch=epoch, step=number, layout_version=0, ranges=(), engine=VERSION, clock_us=0, clock_before_us=None,
            waterlines=(),
        )  # fmt: skip
        try:
            steps.append(record)
            control.change(epoch, lambda ledger: ledger)
            wrote = True
        except FencedError:
            pass
        told.put((number, epoch, wrote))
        steps.close()
        control.close()


def test_one_of_two_owns_the_pipeline_a_hundred_times(tmp_path: Path) -> None:
    steps, control = EmbeddedStepLog(tmp_path, create=True), LmdbControl(tmp_path)
    control.begin(new_ledger(fingerprint="f", nodes=[], layout=initial(1)))
    steps.close()
    control.close()
    context = multiprocessing.get_context("spawn")
    start, claimed, told = context.Barrier(2), context.Barrier(2), context.Queue()
    both = [context.Process(target=claim_in_turn, args=(tmp_path, start, claimed, told)) for _ in range(2)]
    try:
        for each in both:
            each.start()
        found = [told.get(timeout=WAIT_S) for _ in range(2 * ROUNDS)]
    finally:
        for each in both:
            each.kill()
            each.join()
    newest = 0
    for number in range(ROUNDS):
        epochs = {epoch: wrote for each, epoch, wrote in found if each == number}
        assert len(epochs) == 2, "no two have one epoch"
        assert min(epochs) > newest, "epochs only grow"
        newest = max(epochs)
        assert epochs == {min(epochs): False, newest: True}, "the newest owns it, and only that one"
    steps = EmbeddedStepLog(tmp_path)
    assert [record.step for record in steps.read(0)] == list(range(ROUNDS))
    steps.close()


def start_two(folder: Path, seed: int, settings: str) -> None:
    """Two whole services at once: rows are pushed to whoever answers; one goes on, and nothing is lost or twice.

    The one that was replaced ends when it next wants to write: rows in the input make it want to.
    """
    with pipeline(folder, seed) as run:
        (folder / "pipeline.toml").write_text(settings)
        both = []
        for _ in range(2):
            run.start()
            assert run.process is not None
            both.append(run.process)
        try:
            limit = time.monotonic() + WAIT_S
            while all(each.poll() is None for each in both):
                assert time.monotonic() < limit, run.said()
                pid = read_address(run.data).get("pid")
                run.process = next((each for each in both if each.pid == pid), None)
                if run.process is None or not run.push():
                    time.sleep(0.05)  # polling processes that have no other way to say that they listen
            codes = [each.wait(WAIT_S) for each in both if each.poll() is not None]
            assert set(codes) <= {4, 6, -signal.SIGKILL}, run.said()
            run.process = next((each for each in both if each.poll() is None), None)
            finish(run)
        finally:
            for each in both:
                if each.poll() is None:
                    each.kill()
                    each.wait()


@pytest.mark.parametrize("seed", range(3))
def test_two_services_started_together(seed: int, tmp_path: Path) -> None:
    start_two(tmp_path, seed, SETTINGS)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(5))
def test_two_services_on_spark_started_together(seed: int, tmp_path: Path) -> None:
    start_two(tmp_path, seed, SETTINGS.replace('runtime = "local"', 'runtime = "spark"'))
