"""The demo as a user meets it: played to the end, killed and continued, run again, started over."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.examples.playing import EQUAL, Demo, same_as_golden
from tests.pace import in_turn

RANDOM_KILLS = 20


@pytest.mark.crash
@pytest.mark.skipif(
    not in_turn(0, 2),
    reason="the turn of `test_a_signal_stops_it_and_it_goes_on` at this commit; `make soak` runs both",
)
def test_killed_at_random_moments_in_process(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "state", "local", changes=40_000, rows_per_batch=1_000)
    generator = random.Random(7)
    steps = 0
    for started in (False, True, True):
        running = demo.start()
        if started:
            demo.wait_until_playing(running)
        time.sleep(3 * generator.random())  # the fault's own moment; nothing waits for it
        demo.kill(running)
        steps = max(steps, demo.steps())
    code, said = demo.run(180)
    assert code == 0, said
    assert EQUAL in said
    assert same_as_golden(demo.data_dir) >= steps > 0

    code, said = demo.run(120)
    assert code == 0, said
    assert "were played before; these are the views from the state" in said
    assert EQUAL in said


@pytest.mark.crash
@pytest.mark.skipif(
    not in_turn(1, 2),
    reason="the turn of `test_killed_at_random_moments_in_process` at this commit; `make soak` runs both",
)
def test_a_signal_stops_it_and_it_goes_on(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "state", "local", changes=20_000, rows_per_batch=1_000)
    running = demo.start()
    demo.wait_until_playing(running)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "interrupted; run it again to go on" in said
    assert not demo.left()

    code, said = demo.run(120)
    assert code == 0, said
    assert EQUAL in said
    code, said = demo.run(120, FRESH="1")
    assert code == 0, said
    assert "playing 2" in said
    assert EQUAL in said


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_killed_on_spark(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "state", "spark", changes=60_000, rows_per_batch=5_000)
    running = demo.start()
    assert running.stdout is not None
    for line in running.stdout:
        if line[:1].isdigit() and not line.startswith("0 of"):
            break  # some of it is processed
    demo.kill(running)
    code, said = demo.run(400)
    assert code == 0, said
    assert EQUAL in said
    assert same_as_golden(demo.data_dir) > 2


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_all_flights_killed_twenty_times_on_spark(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "state", "spark", changes=None, rows_per_batch=10_000)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    for _ in range(RANDOM_KILLS):
        running = demo.start()
        time.sleep(4 + 26 * generator.random())  # the fault's own moment; nothing waits for it
        demo.kill(running)
        assert running.returncode in (-signal.SIGKILL, 0)  # 0: everything was played already
    code, said = demo.run(3600)
    assert code == 0, said
    assert EQUAL in said
    same_as_golden(demo.data_dir)
