"""Dead letters replayed in steps on Spark: by resident tasks, and by steps that are jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.checks.doctor import diagnose
from tests.coordinator.shop import settings
from tests.coordinator.test_letter_steps import expected, running, views, with_letters
from tests.coordinator.test_letters import counts, replay
from tests.pace import rotating

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

__all__ = ["expected"]


@pytest.mark.parametrize("cores", rotating([3, 1], 2))
def test_rows_are_replayed_once_on_spark(
    tmp_path: Path, expected: dict[str, list[dict[str, object]]], cores: int
) -> None:
    """With a core for each worker tasks are resident, else each step is a job."""
    with_letters(tmp_path)
    spark = ("pipeline.runtime=spark", f"spark.master=local[{cores}]")
    with running(tmp_path, *spark) as (service, client):
        assert counts(replay(client, table="orders")) == (2, 1, 0, 0)
        service.rescale(3)
        assert counts(replay(client)) == (7, 1, 2, 0)
        assert views(client) == expected
    with running(tmp_path, *spark) as (_, client):
        assert counts(replay(client)) == (0, 1, 9, 0)
        assert views(client) == expected
    assert not diagnose(settings(tmp_path)).findings
