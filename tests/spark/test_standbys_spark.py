"""Standbys on Spark: databases that are lost while the service runs, and between two starts."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import in_turn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not in_turn(1, 2), reason="the turn of `test_backups_spark` at this commit; `make soak` runs both"
    ),
]


@pytest.mark.timeout(1200)
def test_a_worker_is_made_again_from_its_standby(tmp_path: Path) -> None:
    """The JVM dies and takes a worker's folder with it; every step gives what its log says."""
    folder = make_folder(tmp_path)
    chosen = settings(
        folder, "pipeline.runtime=spark", "pipeline.workers=2", "spark.master=local[2]", 'layout.standbys=["spare"]'
    )
    home = folder / "data" / "workers" / "0001"
    with Service(chosen) as service, traffic(service, 5):
        service.checkpoint(200)
        runtime: Any = service._loop.runner.runtime
        shutil.rmtree(home)
        os.kill(runtime._spark.process.pid, signal.SIGKILL)
        lost = service.snapshot.step
        assert service.live_status.wait_for(lambda now: now.rollbacks > 0 and now.step > lost + 2, 300)
        service.checkpoint(200)
    shutil.rmtree(home)
    with Service(chosen) as service:
        assert len(service.layout().workers) == 2
    assert (folder / "data" / "coordinator.log").read_text().count('"restored"') >= 2
    check_golden(folder, tmp_path)
