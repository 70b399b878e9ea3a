"""The routes that the console reads beside the status: history, dataflow, settings in force, log; and its files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.http.pages import BUNDLE, CONSOLE
from dbsp.coordinator.http.tokens import ADMIN, INGEST, READ, allowing
from dbsp.coordinator.running.dataflow import dataflow_as_json
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import SECTIONS, load_config, make_config
from dbsp.coordinator.settings.settings_shown import settings_as_json
from dbsp.io.connectors import KINDS
from dbsp.plan.explain import explain
from dbsp.plan.planner import plan
from dbsp.runtime.totals import NodeTotals
from examples.recursion import programs
from tests.coordinator.shop import CIRCUIT, SETTINGS, answering, script, settings
from tests.examples.test_queries import QUERIES

ORDERS = [{"id": number, "customer": "abc"[number % 3], "amount": 100 * number} for number in range(12)]
LIES = {"id": "x", "customer": "a", "amount": 1}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, httpx.Client]]:
    """A service with some steps, a dead letter and a checkpoint behind it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS)
    with Service(settings(folder, "http.max_push_rows=999")) as service, answering(service) as client:
        client.post("/v1/tables/orders/rows", json=[*ORDERS, LIES], params={"wait": "true"}).raise_for_status()
        client.post("/v1/checkpoint").raise_for_status()
        yield service, client


def test_the_history_has_what_was_pushed(shop: tuple[Service, httpx.Client]) -> None:
    _, client = shop
    found = client.get("/v1/history").json()
    points = found["points"]
    assert sum(points["rows_in"]) == pytest.approx(len(ORDERS), abs=0.1)
    assert sum(points["dead_letters"]) == pytest.approx(1, abs=0.1)
    assert max(seconds or 0 for seconds in points["latency_seconds"]) > 0
    assert points["state_bytes"][-1] > 0
    assert [each["event"] for each in found["checkpoints"]] == ["checkpoint"] * len(found["checkpoints"]) != []
    later = client.get("/v1/history", params={"first": found["next"]}).json()
    assert later["points"]["number"][0] == found["next"]
    assert client.get("/v1/history", params={"first": -1}).status_code == 422


def test_the_dataflow_has_the_figures_of_every_worker(shop: tuple[Service, httpx.Client]) -> None:
    service, client = shop
    found = client.get("/v1/dataflow").json()
    by_name = {node["operator"]: node for node in found["nodes"]}
    assert sum(worker["rows_out"] for worker in by_name["source orders"]["workers"]) == len(ORDERS)
    assert [worker["worker"] for worker in by_name["upsert by (id)"]["workers"]] == [0, 1]
    assert by_name["upsert by (id)"]["source"]["text"].startswith("orders = dbsp.table(")
    assert {view["name"] for view in found["views"]} == {"large", "per_customer"}
    assert found["tables"] == [
        {
            "name": "orders", "primary_key": ["id"], "nodes": ["#0"],
            "columns": [
                {"name": "id", "type": "int64"}, {"name": "customer", "type": "string"}, {"name": "amount", "type": "int64"}
            ],
        }
    ]  # fmt: skip
    assert found["connectors"] == {"input": "embedded", "output": "embedded"}
    assert found["steps"] >= 1
    seconds = sum(worker["seconds"] for node in found["nodes"] for worker in node["workers"])
    assert 0 < seconds < 60
    assert service.explain().count("\n") > len(found["nodes"])


CIRCUITS = {name: query.circuit() for name, query in QUERIES.items()} | {
    name: getattr(programs, name)() for name in ("reachability", "components", "shortest_paths", "points_to")
}


@pytest.mark.parametrize("name", sorted(CIRCUITS))
def test_a_dataflow_is_one_graph_with_the_names_that_explain_gives(name: str) -> None:
    """From each node a view can be reached, along edges whose ends exist; nothing of the plan is missing."""
    planned = plan(CIRCUITS[name])
    found = dataflow_as_json(planned, NodeTotals())
    ids = [node["id"] for node in found["nodes"]]
    assert sorted(ids) == sorted(re.findall(r"^ *([#@][\d.]+) \w", explain(planned), re.MULTILINE))
    assert json.loads(json.dumps(found)) == found
    into: dict[str, set[str]] = {}
    for edge in found["edges"]:
        assert {edge["from"], edge["to"]} <= set(ids)
        into.setdefault(edge["to"], set()).add(edge["from"])
    reached = [view["node"] for view in found["views"]]
    for at in reached:
        reached += into.get(at, set()) - set(reached)
    assert set(ids) == set(reached)
    assert {node for table in found["tables"] for node in table["nodes"]} == {
        node["id"] for node in found["nodes"] if node["kind"] == "source"
    }


# --- settings ---------------------------------------------------------------------------------------------------------

SECRET = "hush-hush"


def test_each_setting_says_where_it_was_set(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text('[pipeline]\ncircuit = "c.py:c"\nworkers = 3\n[http]\nport = 1\n')
    config = load_config(
        tmp_path / "pipeline.toml", overrides=["http.port=7"],
        environment={"DBSP_STEP_FAILURES_MAX": "9", "DBSP_HTTP_PORT": "8"},
    )  # fmt: skip
    found = {f"{each['section']}.{each['key']}": each for each in settings_as_json(config)["settings"]}
    told = {name: (each["value"], each["default"], each["origin"]) for name, each in found.items() if each["set"]}
    assert told == {
        "pipeline.circuit": ("c.py:c", None, str(tmp_path / "pipeline.toml")),
        "pipeline.workers": (3, 2, str(tmp_path / "pipeline.toml")),
        "http.port": (7, 8080, "--set http.port"),
        "step.failures_max": (9, 5, "DBSP_STEP_FAILURES_MAX"),
    }
    assert found["http.host"] == {
        "section": "http", "key": "host", "value": "127.0.0.1", "default": "127.0.0.1", "set": False, "origin": "default"
    }  # fmt: skip
    assert {each.split(".")[0] for each in found} == set(SECTIONS)
    json.dumps(list(found.values()))


@pytest.mark.parametrize("kind", sorted(KINDS["input"]))
def test_all_settings_of_a_kind_are_shown(kind: str) -> None:
    given: dict[str, Any] = {"kind": kind}
    if kind == "kafka":
        given |= {"bootstrap": f"{SECRET}:9092", "properties": {"sasl.password": SECRET}}
    if kind == "files":
        given |= {"directory": "in"}
    config = make_config({"pipeline": {"circuit": "c.py:c", "runtime": "local"}, "input": given})
    shown = {each["key"] for each in settings_as_json(config)["settings"] if each["section"] == "input"}
    assert shown == {"kind", *(each.name for each in fields(config.input))}  # type: ignore[arg-type]


def test_no_secret_is_shown() -> None:
    """Planted: the name of each setting that may hold a secret, with a secret as its value."""
    config = make_config({
        "pipeline": {"circuit": "c.py:c"},
        "spark": {"conf": {"spark.authenticate.secret": SECRET}},
        "input": {"kind": "kafka", "bootstrap": "b:1", "registry": f"http://me:{SECRET}@r", "registry_login": f"me:{SECRET}",
                  "properties": {"sasl.password": SECRET}},
        "http": {"token": SECRET, "read_token": SECRET, "ingest_token": SECRET, "admin_token": SECRET},
        "delta": {"directory": f"s3://me:{SECRET}@host/x", "options": {"key": SECRET}},
        "checkpoint": {"copies": f"s3://me:{SECRET}@host/x", "copies_options": {"secret_access_key": SECRET}},
    })  # fmt: skip
    found = settings_as_json(config)
    assert SECRET not in json.dumps(found)
    hidden = [each["key"] for each in found["settings"] if each["value"] == "***"]
    assert {"token", "conf", "properties", "copies_options", "options", "registry"} <= set(hidden)
    assert next(each for each in found["settings"] if each["key"] == "token_files")["value"] == {}, "nothing to hide"


# --- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_can_be_read_and_searched(shop: tuple[Service, httpx.Client]) -> None:
    service, client = shop
    found = client.get("/v1/logs", params={"lines": 2}).json()
    assert len(found["events"]) == 2
    assert found["file"] == str(service.config.log_file)
    chosen = client.get("/v1/logs", params={"contains": '"CHECKPOINT"'}).json()["events"]
    assert {event["event"] for event in chosen} == {"checkpoint"}
    for wrong in ({"lines": 0}, {"lines": 10**6}, {"contains": "x" * 999}, {"line": 1}):
        assert client.get("/v1/logs", params=wrong).status_code in (400, 422)


# --- figures that are not known yet -----------------------------------------------------------------------------------


def sizes(client: httpx.Client) -> tuple[Any, list[Any]]:
    found = client.get("/v1/layout").json()["rows"]
    return client.get("/v1/status").json()["state_bytes"], [row["state_bytes"] for row in found]


def gauge(client: httpx.Client, name: str) -> float:
    return next(
        float(line.split()[1]) for line in client.get("/metrics").text.splitlines() if line.startswith(f"{name} ")
    )


def test_size_of_state_and_waiting_rows_are_null_until_they_are_known(folder: Path) -> None:
    with Service(settings(folder)) as service, answering(service) as client:
        client.post("/v1/tables/orders/rows", json=ORDERS, params={"wait": "true"}).raise_for_status()
        total, workers = sizes(client)
        assert total == sum(workers) > 0
        service.rescale(3)
        assert sizes(client) == (None, [None] * 3), "the sizes of the layout before are not those of this one"
        assert math.isnan(gauge(client, "dbsp_state_bytes"))
        client.post("/v1/tables/orders/rows", json=ORDERS[:1], params={"wait": "true"}).raise_for_status()
        total, workers = sizes(client)
        assert total == sum(workers) > 0
    service = Service(settings(folder))
    try:
        with answering(service) as client:
            found = client.get("/v1/status").json()
            assert (found["state"], found["lag_rows"], found["state_bytes"]) == ("Starting", None, None)
            assert [each["waiting_rows"] for each in found["inputs"]] == [None]
            assert math.isnan(gauge(client, "dbsp_input_lag_rows"))
            said = script("cli", "--url", str(client.base_url), "status").stdout
            assert "the number that waits is known when recovery ends" in said
            service.start(timeout_s=60)
            found = client.get("/v1/status").json()
            assert (found["lag_rows"], found["state_bytes"]) == (0, None)
            assert (
                "the size of the state is known after the next step"
                in script("cli", "--url", str(client.base_url), "status").stdout
            )
    finally:
        service.stop(quiet=True)


# --- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "scopes"),
    [
        ("/v1/history", {READ, ADMIN}), ("/v1/dataflow", {READ, ADMIN}), ("/v1/logs", {ADMIN}), ("/v1/settings", {ADMIN}),
    ],
)  # fmt: skip
def test_what_each_scope_may_see(path: str, scopes: set[str]) -> None:
    assert allowing("GET", path) == allowing("HEAD", path) == scopes


def test_the_files_of_the_console_need_no_token_and_the_rest_does(folder: Path) -> None:
    tokens = [f"http.{scope}_token={scope}" for scope in (READ, INGEST, ADMIN)]
    with Service(settings(folder, *tokens)) as service, answering(service) as client:
        for address, (name, media_type) in CONSOLE.items():
            answer = client.get(address)
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
            assert answer.content == (BUNDLE / name).read_bytes()
        for path, wanted in (("/v1/history", 200), ("/v1/dataflow", 200), ("/v1/logs", 403), ("/v1/settings", 403)):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": f"Bearer {READ}"}).status_code == wanted
            assert client.get(path, headers={"Authorization": f"Bearer {INGEST}"}).status_code == 403
            assert client.get(path, headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 200
        assert client.get("/console/index.html").status_code == 401, "no other file of the folder is sent"
