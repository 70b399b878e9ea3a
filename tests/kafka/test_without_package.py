"""Without the optional package: an error that says how to get it, and nothing else of dbsp.io is touched."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dbsp.errors import ConfigError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import TopicReader


def test_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"pip install 'dbsp-engine\[kafka\]'"):
        TopicReader(KafkaSettings(brokers="127.0.0.1:1", pipeline="p")).partitions("t")


def test_importing_the_logs_loads_neither_kafka_nor_spark() -> None:
    code = "import sys, dbsp.io, dbsp.io.kafka; print(sorted({'confluent_kafka', 'pyspark'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
