"""Spark is started the way steps need it, and nothing of it is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dbsp.errors import ConfigError
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, configuration, start


def test_the_users_settings_come_last(tmp_path: Path) -> None:
    settings = SparkSettings(conf={"spark.driver.memory": "5g"}, environment={"MINE": "1"})
    conf = configuration(settings, tmp_path)
    assert conf["spark.driver.memory"] == "5g"
    assert conf["spark.executorEnv.MINE"] == "1"
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert all("TieredStopAtLevel=1" in conf[f"spark.{side}.extraJavaOptions"] for side in ("driver", "executor"))


def test_a_remote_master_is_not_bound_to_loopback(tmp_path: Path) -> None:
    assert "spark.driver.bindAddress" not in configuration(SparkSettings(master="spark://far:7077"), tmp_path)


def test_a_silence_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="worker_silence_s"):
        SparkSettings(worker_silence_s=0)


@pytest.mark.spark
def test_workers_run_the_drivers_interpreter(spark: SparkHandle) -> None:
    def look(_: object) -> list[tuple[str, str, str]]:
        names = os.environ
        return [(sys.executable, names["PYTHONHASHSEED"], names.get("PYTHON_UNIX_DOMAIN_ENABLED", "false"))]

    seen = spark.context.parallelize(range(2), 2).mapPartitions(look).collect()
    assert seen == [(sys.executable, "0", "True")] * 2


@pytest.mark.spark
def test_spark_writes_to_its_own_log_and_no_warnings(spark: SparkHandle, capfd: pytest.CaptureFixture[str]) -> None:
    assert spark.context.parallelize(range(2), 2).count() == 2
    assert capfd.readouterr() == ("", "")
    log = (spark.work_dir / "spark.log").read_text()
    assert " WARN " not in log


@pytest.mark.spark
def test_a_second_context_is_refused(spark: SparkHandle) -> None:
    with pytest.raises(ConfigError, match="a Spark context is running"):
        start(SparkSettings())
