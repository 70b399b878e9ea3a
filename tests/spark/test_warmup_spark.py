"""Warm-up on Spark: 2 -> 3 -> 2 under traffic, the JVM killed while state is copied ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import in_turn
from tests.spark.killing import rescaled_through_a_kill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not in_turn(1, 2), reason="the turn of `test_migration_spark` at this commit; `make soak` runs both"
    ),
]


@pytest.mark.timeout(1200)
def test_a_killed_jvm_does_not_hinder_a_warm_up(tmp_path: Path) -> None:
    """The request outlives the rollback: the warm-up begins anew, and every step gives what its log says."""
    chosen = settings(make_folder(tmp_path), "pipeline.runtime=spark", "pipeline.workers=2", "spark.master=local[2]")
    with Service(chosen) as service, traffic(service, 5) as positions:
        moved = rescaled_through_a_kill(service, 3, "warmup", lambda now: now.rescale is not None)
        assert moved.bytes_ahead > 0
        before = service.snapshot.step
        moved = service.rescale(2, 300, strategy="warmup")
        assert moved is not None
        assert moved.bytes_ahead > 0
        assert service.snapshot.step > before
        service.wait_until_processed(positions[-1], 200)
    check_golden(tmp_path, tmp_path)
