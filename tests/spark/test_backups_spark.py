"""Backups of a service on Spark: taken while steps go on, restored, gone on from with Spark and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import in_turn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not in_turn(0, 2), reason="the turn of `test_standbys_spark` at this commit; `make soak` runs both"
    ),
]


@pytest.mark.timeout(1200)
def test_a_backup_under_traffic_goes_on(tmp_path: Path) -> None:
    """Every step's outputs, before the backup and after it was restored, are what the step log says."""
    spark = ("pipeline.runtime=spark", "pipeline.workers=2", "spark.master=local[2]")
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with Service(settings(make_folder(one), *spark)) as service, traffic(service, 5):
        step = service.snapshot.step
        assert service.live_status.wait_for(lambda now: now.step > step + 2, 200)
        found = service.back_up(tmp_path / "backups", 200)
        assert service.live_status.wait_for(lambda now: now.step > found["step"] + 2, 200), "steps go on"
        assert service.snapshot.rollbacks == 0
    check_golden(one, tmp_path / "replayed")
    make_folder(other)
    again = settings(other, *spark)
    restore(Path(found["folder"]), again)
    with Service(again) as service, traffic(service, 6):
        assert service.live_status.wait_for(lambda now: now.step > found["step"] + 2, 200)
    assert diagnose(again).findings == ()
    check_golden(other, other / "replayed")
