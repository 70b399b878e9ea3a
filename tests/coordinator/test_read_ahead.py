"""A whole service with an embedded log reads the next step's input while a step runs, and in a replay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog
from tests.coordinator.shop import rows, settings

ORDERS = pa.table({"id": list(range(60)), "customer": [f"c{n % 7}" for n in range(60)], "amount": list(range(60))})
STEPS = 6
ROWS_PER_STEP = len(ORDERS) // STEPS
WAIT_S = 60.0


@contextmanager
def every_step_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """No step but the last ends before the input of the one behind it is being read; gives the threads that read such."""
    begun = {step: threading.Event() for step in range(1, STEPS)}
    ended = threading.Event()
    readers: set[str] = set()
    read, write = EmbeddedInputLog.read, EmbeddedOutputLog.write

    def watched_read(self: EmbeddedInputLog, range_: Any, step: int) -> Any:
        if step in begun:
            readers.add(threading.current_thread().name)
            begun[step].set()
        return read(self, range_, step)

    def watched_write(self: EmbeddedOutputLog, epoch: int, step: int, *rest: Any) -> None:
        write(self, epoch, step, *rest)
        assert step + 1 not in begun or begun[step + 1].wait(WAIT_S), f"nobody reads ahead: step={step}"
        if step == STEPS - 1:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedInputLog, "read", watched_read)
        patch.setattr(EmbeddedOutputLog, "write", watched_write)
        yield readers
        assert ended.wait(WAIT_S)


def test_a_service_reads_ahead_and_so_does_its_replay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(folder, f"step.max_rows_per_step={ROWS_PER_STEP}", "checkpoint.interval_s=3600")
    first = Service(config)
    with every_step_waits(monkeypatch) as readers:
        first.start(timeout_s=WAIT_S)
        first.wait_until_processed(first.push("orders", ORDERS), WAIT_S)
    expected = rows(first)
    assert first.snapshot.step == STEPS
    assert readers == {"dbsp-background-fetch"}
    first.stop(now=True)
    with every_step_waits(monkeypatch) as readers, Service(config) as second:
        assert rows(second) == expected
    assert readers == {"dbsp-background-fetch"}
