"""State that moves key by key on Spark: 2 -> 3 -> 1 under traffic, the JVM killed while keys move."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.moves import MovingProgress
from dbsp.coordinator.service import Service
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic

pytestmark = pytest.mark.spark


@pytest.mark.timeout(1200)
def test_a_killed_jvm_does_not_hinder_keys_that_move(tmp_path: Path) -> None:
    """The steps since the last checkpoint move the same keys again, and every step gives what its log says."""
    chosen = settings(
        make_folder(tmp_path), "pipeline.runtime=spark", "pipeline.workers=2", "spark.master=local[2]",
        "layout.keys_per_step=100",
    )  # fmt: skip
    with Service(chosen) as service, traffic(service, 5) as positions:
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(service.rescale(3, 300, strategy="icadd")))
        asking.start()
        assert service.board.wait_for(
            lambda now: isinstance(now.rescale, MovingProgress) and now.rescale.moved_keys > 0, 120
        )
        runtime: Any = service._shell.hands.runtime
        os.kill(runtime._spark.process.pid, signal.SIGKILL)
        asking.join()
        assert len(service.layout().workers) == 3
        assert answers[0].bytes_moved > 0
        assert service.snapshot.rollbacks >= 1
        before = service.snapshot.step
        moved = service.rescale(1, 300, strategy="redistribute")
        assert moved is not None
        assert moved.bytes_moved > 0
        assert service.snapshot.step > before + 2
        service.wait_until_processed(positions[-1], 200)
    check_golden(tmp_path, tmp_path)
