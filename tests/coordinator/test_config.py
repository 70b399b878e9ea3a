"""Settings: where they come from, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.settings.config import Config, load_config, make_config
from dbsp.errors import ConfigError


def made(found: dict[str, Any], *overrides: str, environment: dict[str, str] | None = None) -> Config:
    content = {**found, "pipeline": {"circuit": "a.py:b", **found.get("pipeline", {})}}
    return make_config(content, overrides=overrides, environment=environment or {})


def test_the_order_is_flag_environment_file_default() -> None:
    assert made({}).http.port == 8080
    assert made({"http": {"port": 1}}).http.port == 1
    assert made({"http": {"port": 1}}, environment={"DBSP_HTTP_PORT": "2"}).http.port == 2
    assert made({"http": {"port": 1}}, "http.port=3", environment={"DBSP_HTTP_PORT": "2"}).http.port == 3


def test_values_of_the_environment_have_types() -> None:
    found = made(
        {}, environment={"DBSP_CHECKPOINT_INTERVAL_S": "2", "DBSP_HTTP_TOKEN": "123", "DBSP_HTTP_ENABLED": "false"}
    )
    assert found.checkpoint.interval_s == 2.0
    assert found.http.token == "123"
    assert found.http.enabled is False


def test_variables_of_others_are_left_alone() -> None:
    assert made({}, environment={"DBSP_URL": "http://x", "DBSPX": "1"}) == made({})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"pipelin": {}}, "did you mean `pipeline`"),
        ({"http": {"prot": 1}}, "did you mean `port`"),
        ({"http": {"port": "80"}}, "http.port='80' expected=a whole number"),
        ({"http": {"port": True}}, "expected=a whole number"),
        ({"http": {"port": 70000}}, "not a port"),
        ({"http": {"host": "0.0.0.0"}}, "without a token"),
        ({"pipeline": {"runtime": "sparc"}}, "did you mean `spark`"),
        ({"pipeline": {"workers": 0}}, "pipeline.workers=0"),
        ({"pipeline": {"name": ""}}, "not a name of a pipeline"),
        ({"pipeline": {"name": "a/../../b"}}, "pipeline.name='a/../../b'"),
        ({"layout": {"weights": {"a": 2}}}, "a weight of a host that is not named: layout.weights=a"),
        ({"layout": {"shards": 3}}, "not a power of two: layout.shards=3"),
        ({"layout": {"shards": 0}}, "not a power of two"),
        ({"input": {"kind": "kafka"}}, "bootstrap"),
        ({"output": {"kind": "kafka"}}, "bootstrap"),
        ({"output": {"format": "parquet"}}, "output.format"),
        ({"step": {"max_rows_per_step": 0}}, "max_rows_per_step"),
        ({"checkpoint": {"interval_s": -1}}, "interval_s"),
        ({"checkpoint": {"interval_s": float("nan")}}, "checkpoint.interval_s=nan"),
        ({"query": {"timeout_s": float("inf")}}, "query.timeout_s=inf"),
        ({"step": {"failures_max": -1}}, "step.failures_max"),
        ({"query": {"memory_mb_max": 0}}, "query.memory_mb_max"),
        ({"query": {"timeout_s": -1}}, "query.timeout_s"),
        ({"query": {"rows_max": 0}}, "query.rows_max"),
        ({"query": {"at_once_max": 0}}, "query.at_once_max"),
        ({"spark": {"worker_silence_s": 0}}, "spark.worker_silence_s"),
        ({"spark": {"worker_silence_s": 60, "conf": {"spark.network.timeout": "1min"}}}, "worker_silence_s=60"),
        ({"http": {"max_body_bytes": 0}}, "http.max_body_bytes"),
        ({"input": {"partitions": 65536}}, "too large: input.partitions=65536 most=65535"),
        ({"http": 3}, "not a section"),
    ],
)
def test_what_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(content)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ({"circuit": "a.sql"}, "`circuit` belongs below [pipeline]"),
        ({"pipeline": {"port": 1}}, "`port` belongs below [http] or [postgres] or [flight]"),
        ({"spark": {"bootstrap": "x"}}, "`bootstrap` belongs below [input] or [output]"),
        ({"pipeline": {"circut": "a.sql"}}, "did you mean `circuit`?"),
        ({"http": 3}, "write its keys below [http]"),
        ({"htp": 3}, "did you mean `http`?"),
        ({"htp": {"port": 3}}, "did you mean `http`?"),
    ],
)
def test_a_key_that_stands_elsewhere_is_told_where_it_belongs(content: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(content, environment={})
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layout.hosts=x", 'expected=a list such as ["a", "b"]'),
        ("step.max_rows_per_step=1e6", "expected=a whole number in=--set step.max_rows_per_step"),
        ("spark.conf=3", "expected=a table such as"),
        ("input.kind=file", "unknown value: input.kind=file"),
    ],
)
def test_what_a_command_line_says_is_blamed_on_it(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        made({}, text)


@pytest.mark.parametrize("text", ["http.port", "port=3", "htp.port=3", "http.prot=3", "http.port=abc"])
def test_overrides_are_checked(text: str) -> None:
    with pytest.raises(ConfigError):
        made({}, text)


def test_a_token_allows_other_hosts() -> None:
    assert made({"http": {"host": "0.0.0.0", "token": "x"}}).http.host == "0.0.0.0"


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    with pytest.raises(ConfigError, match="no such file"):
        load_config(file)
    file.write_text('[pipeline]\ncircuit = "c.py:x"\ndata_dir = "state"\n[spark]\nconf = { "spark.a" = 1 }\n')
    found = load_config(file, environment={})
    assert found.data_dir == tmp_path / "state"
    assert found.spark.conf == {"spark.a": "1"}
    file.write_text("[pipeline\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(file, environment={})
    file.write_text("[pipeline]\n")
    with pytest.raises(ConfigError, match="no circuit"):
        load_config(file, environment={})
