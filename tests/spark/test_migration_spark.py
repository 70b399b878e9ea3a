"""State that moves key by key on Spark: 2 -> 3 -> 1 under traffic, the JVM killed while keys move."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.running.progress import MovingProgress
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import in_turn
from tests.spark.killing import rescaled_through_a_kill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not in_turn(0, 2), reason="the turn of `test_warmup_spark` at this commit; `make soak` runs both"
    ),
]


def keys_move(now: Snapshot) -> bool:
    """Some have moved."""
    return isinstance(now.rescale, MovingProgress) and now.rescale.moved_keys > 0


@pytest.mark.timeout(1200)
def test_a_killed_jvm_does_not_hinder_keys_that_move(tmp_path: Path) -> None:
    """The steps since the last checkpoint move the same keys again, and every step gives what its log says."""
    chosen = settings(
        make_folder(tmp_path), "pipeline.runtime=spark", "pipeline.workers=2", "spark.master=local[2]",
        "layout.keys_per_step=100",
    )  # fmt: skip
    with Service(chosen) as service, traffic(service, 5) as positions:
        moved = rescaled_through_a_kill(service, 3, "icadd", keys_move)
        assert moved.bytes_moved > 0
        before = service.snapshot.step
        moved = service.rescale(1, 300, strategy="redistribute")
        assert moved is not None
        assert moved.bytes_moved > 0
        assert service.snapshot.step > before + 2
        service.wait_until_processed(positions[-1], 200)
    check_golden(tmp_path, tmp_path)
