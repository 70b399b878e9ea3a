"""Error policy `stop`: a step on which rows fail halts the pipeline; `skip` is a logged decision, and replays take it too."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import dbsp
from dbsp import col
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import ConfigError, DataError, RowsError, UnavailableError
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from tests.coordinator.shop import killable, script, settings_text
from tests.spark.waiting import until

CIRCUIT = """
import dbsp
from dbsp import col, count
orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
rates = dbsp.table("rates", {"customer": dbsp.STRING, "rate": dbsp.INT64})
shares = orders.filter(col("amount") < 50).select(col("id"), share=100 // col("amount"))
priced = orders.join(rates, on="customer").select(col("id"), price=col("amount") // col("rate"))
per_customer = orders.group_by("customer").aggregate(orders=count())
views = {"shares": shares, "priced": priced, "per_customer": per_customer}
pipeline = dbsp.circuit("shop", views, error_policy="stop")
"""
SETTINGS = settings_text("[checkpoint]\ninterval_s = 1000\n", workers=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


def settings(folder: Path) -> Config:
    return load_config(folder / "pipeline.toml", environment={})


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    made = Service(settings(folder))
    made.start(timeout_s=60)
    yield made
    made.stop(now=True, quiet=True)


def orders(*rows: tuple[int, str, int]) -> pa.Table:
    ids, customers, amounts = zip(*rows, strict=True)
    return pa.table({"id": ids, "customer": customers, "amount": pa.array(amounts, pa.int64())})


def rates(*rows: tuple[str, int]) -> pa.Table:
    customers, numbers = zip(*rows, strict=True)
    return pa.table({"customer": customers, "rate": pa.array(numbers, pa.int64())})


def halted(service: Service, table: str, rows: pa.Table) -> dict[str, Any]:
    """Push rows that fail; what the status says then."""
    position = service.push(table, rows)
    with pytest.raises(UnavailableError, match="rows of the next step fail"):
        service.wait_until_processed(position, 60)
    assert service.live_status.wait_for(lambda now: now.halt is not None, 60)
    found = service.status()["halt"]
    assert isinstance(found, dict)
    return found


def view(service: Service, name: str) -> dict[Any, Any]:
    found = service.read_view(name).table.to_pylist()
    assert all(row["weight"] == 1 for row in found)
    return {next(iter(row.values())): list(row.values())[1] for row in found}


def dead_letters(folder: Path) -> Counter[tuple[str, str]]:
    """(payload, origin) with their weights summed, as a consumer reads them."""
    found: Counter[tuple[str, str]] = Counter()
    for _, _, table in read_outputs(folder / "data", DEAD_LETTERS):
        for row in table.to_pylist():
            found[row["payload"], row["origin"].split("#")[0]] += row["weight"]
    return Counter({key: weight for key, weight in found.items() if weight})


BAD = ('{"id": 2, "customer": "b", "amount": 0}', "apply")


def test_failing_rows_are_named_and_nothing_goes_on(service: Service, folder: Path) -> None:
    service.wait_until_processed(service.push("orders", orders((1, "a", 10))), 60)
    halt = halted(service, "orders", orders((3, "a", 20), (2, "b", 0), (4, "b", 0)))
    assert (halt["step"], halt["count"]) == (1, 2)
    assert [(row["table"], row["partition"], row["offset"]) for row in halt["rows"]] == [
        ("orders", 0, 2), ("orders", 0, 3),
    ]  # fmt: skip
    assert all("divi" in row["reason"] and '"amount": 0' in row["payload"] for row in halt["rows"])
    assert service.status()["state"] == "Halted"
    assert view(service, "shares") == {1: 10}, "as of the step before"
    position = service.push("orders", orders((5, "a", 5)))
    with pytest.raises(UnavailableError, match="coordinator skip"):
        service.wait_until_processed(position, 60)
    assert dead_letters(folder) == Counter()


def test_skip_goes_on_without_them(service: Service, folder: Path) -> None:
    halted(service, "orders", orders((1, "a", 10), (2, "b", 0), (3, "b", 20)))
    waiting = service.push("orders", orders((5, "c", 5)))
    found = service.skip(timeout_s=60)
    assert (found.step, found.rows, found.before) == (0, 1, False)
    service.wait_until_processed(waiting, 60)
    assert view(service, "shares") == {1: 10, 3: 5, 5: 20}
    assert view(service, "per_customer") == {"a": 1, "b": 2, "c": 1}, "only where it fails the row is left out"
    assert dead_letters(folder) == {BAD: 1}
    assert service.status()["halt"] is None
    assert service.skip(found.step, 60).before, "an answer is given again"


def test_nothing_to_skip_is_refused(service: Service) -> None:
    with pytest.raises(ConfigError, match="nothing to skip: state=Running"):
        service.skip(timeout_s=60)
    service.wait_until_processed(service.push("orders", orders((1, "a", 10))), 60)
    with pytest.raises(ConfigError, match="nothing to skip: step=0"):
        service.skip(0, 60)
    halted(service, "orders", orders((2, "b", 0)))
    with pytest.raises(ConfigError, match="step 1 is the one that waits"):
        service.skip(7, 60)


def test_http_a_push_while_a_step_waits_is_taken_and_says_so(service: Service, client: httpx.Client) -> None:
    halted(service, "orders", orders((2, "b", 0)))
    row = [{"id": 3, "customer": "a", "amount": 10}]
    answer = client.post("/v1/tables/orders/rows?wait=true", json=row)
    assert (answer.status_code, answer.json()["processed"], answer.json()["last"]) == (202, False, 2)
    assert "rows of the next step fail" in answer.json()["waiting"]
    assert service.lag_rows() == 2, "taken, once"


def test_what_cannot_be_done_before_a_decision_is_refused(service: Service) -> None:
    halted(service, "orders", orders((2, "b", 0)))
    for action in (service.checkpoint, service.pause, service.resume, lambda t: service.rescale(2, t)):
        with pytest.raises(UnavailableError, match="coordinator skip"):
            action(60)
    service.skip(timeout_s=60)
    service.resume(60)
    assert service.checkpoint(60) == 1


def test_a_pause_that_was_refused_does_not_stop_the_steps_after_the_decision(service: Service) -> None:
    halted(service, "orders", orders((2, "b", 0)))
    with pytest.raises(UnavailableError, match="coordinator skip"):
        service.pause(60)
    service.skip(timeout_s=60)
    service.wait_until_processed(service.push("orders", orders((5, "a", 5))), 20)
    assert service.status()["state"] == "Running"


def test_a_row_that_was_skipped_may_be_mended(service: Service, folder: Path) -> None:
    """Its going fails as its coming did, which needs no second decision; its dead letter goes too."""
    halted(service, "orders", orders((2, "b", 0)))
    service.skip(timeout_s=60)
    assert dead_letters(folder) == {BAD: 1}
    service.wait_until_processed(service.push("orders", orders((2, "b", 25))), 60)
    assert view(service, "shares") == {2: 4}
    assert dead_letters(folder) == Counter()


def test_rows_of_a_later_node_are_decided_about_by_themselves(service: Service, folder: Path) -> None:
    """A decision is about the rows that were named, not about the whole step."""
    service.wait_until_processed(service.push("rates", rates(("a", 1), ("b", 0))), 60)
    first = halted(service, "orders", orders((1, "a", 0), (2, "b", 30)))
    assert [row["offset"] for row in first["rows"]] == [0]
    service.skip(timeout_s=60)
    assert service.live_status.wait_for(lambda now: now.halt is not None and now.halt.name != first["name"], 60)
    second = service.status()["halt"]
    assert (second["step"], second["count"], second["rows"][0]["offset"]) == (first["step"], 1, -1)
    assert '"rate": 0' in second["rows"][0]["payload"]
    service.skip(timeout_s=60)
    assert service.live_status.wait_for(lambda now: now.halt is None and now.step == 2, 60)
    assert view(service, "shares") == {2: 3}
    assert view(service, "priced") == {1: 0}
    assert len(dead_letters(folder)) == 2


def state_of(service: Service) -> dict[str, dict[Any, Any]]:
    return {name: view(service, name) for name in ("shares", "priced", "per_customer")}


def test_it_holds_across_restarts(folder: Path) -> None:
    first = Service(settings(folder))
    first.start(timeout_s=60)
    first.push("orders", orders((1, "a", 10)))
    halt = halted(first, "orders", orders((2, "b", 0)))
    first.push("orders", orders((3, "a", 4)))
    first.stop(now=True)
    second = Service(settings(folder))
    second.start(timeout_s=60)
    assert second.status()["halt"] == halt, "a restart changes nothing"
    second.skip(timeout_s=60)
    assert second.live_status.wait_for(lambda now: now.lag_rows == 0 and now.processed == {("orders", 0): 3}, 60)
    before = state_of(second)
    second.stop(now=True)
    log = EmbeddedStepLog(folder / "data")
    assert [record.commands for record in log.read(0) if record.step == halt["step"]] == [
        (f"skip node={halt['node']}",)
    ]
    log.close()
    third = Service(settings(folder))
    third.start(timeout_s=60)
    assert (third.status()["halt"], state_of(third)) == (None, before), "the replay takes the decision too"
    assert third.skip(halt["step"], 60).before
    assert dead_letters(folder) == {BAD: 1}
    third.stop(now=True)
    assert diagnose(settings(folder)).findings == ()


def test_a_halted_pipeline_stops(folder: Path) -> None:
    service = Service(settings(folder))
    service.start(timeout_s=60)
    halted(service, "orders", orders((2, "b", 0)))
    service.stop(timeout_s=60)
    assert service.snapshot.ended


def test_any_worker_count_gives_the_same(folder: Path, tmp_path: Path) -> None:
    found = []
    for workers in (1, 2, 5):
        home = tmp_path / str(workers)
        shutil.copytree(folder, home, ignore=shutil.ignore_patterns("data", "1", "2", "5"))
        (home / "pipeline.toml").write_text(SETTINGS.replace("workers = 3", f"workers = {workers}"))
        with Service(settings(home)) as service:
            rows = [(i, f"c{i % 7}", i % 5) for i in range(200)]
            halt = halted(service, "orders", orders(*rows))
            assert halt["count"] == 40
            assert sorted(row["offset"] for row in halt["rows"]) == list(range(0, 200, 5))
            service.skip(timeout_s=60)
            assert service.live_status.wait_for(lambda now: now.step == 1, 60)
            found.append((state_of(service), dead_letters(home)))
    assert found[0] == found[1] == found[2]
    assert sum(found[0][1].values()) == 40


def test_the_command_line(folder: Path) -> None:
    with killable(folder) as process:
        refused = script("cli", "skip", folder=folder)
        assert (refused.returncode, "nothing to skip" in refused.stderr) == (2, True)
        script("cli", "push", "orders", folder=folder, given='{"id": 2, "customer": "b", "amount": 0}')
        until(lambda: "halted before step 0: a row failed" in (folder / "said.txt").read_text(), "the halt is reported")
        status = script("cli", "status", folder=folder)
        assert "shop: Halted" in status.stdout
        assert "orders partition 0 offset 0: " in status.stdout
        assert "coordinator skip" in status.stdout
        done = script("cli", "skip", folder=folder)
        assert (done.returncode, "step 0 goes on without 1 rows" in done.stdout) == (0, True), done.stderr
        assert "decided before" in script("cli", "skip", "--step", "0", folder=folder).stdout
        assert script("cli", "stop", folder=folder).returncode == 0
        assert process.wait(60) == 0


def test_without_a_service_the_error_names_the_rows() -> None:
    table = dbsp.table("t", {"a": dbsp.INT64, "b": dbsp.INT64})
    circuit = dbsp.circuit("c", {"v": table.select(q=col("a") // col("b"))}, error_policy="stop")
    with dbsp.open(circuit, workers=2) as run:
        run.push("t", [{"a": 1, "b": 0}, {"a": 2, "b": 0}, {"a": 4, "b": 2}])
        with pytest.raises(RowsError, match=r"a row failed: reason=.*divi.* row=\{\"a\": ") as caught:
            run.step()
    assert caught.value.count == 2
    assert isinstance(caught.value, DataError)


def test_an_overflowing_group_stops_too() -> None:
    table = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    circuit = dbsp.circuit("c", {"v": table.group_by("k").aggregate(s=dbsp.sum("x"))}, error_policy="stop")
    with dbsp.open(circuit) as run:
        run.push("t", [{"k": "a", "x": 2**62}])
        run.step()
        run.push("t", [{"k": "a", "x": 2**62}])
        with pytest.raises(RowsError, match="does not fit"):
            run.step()


def test_where_rows_came_from_is_left_open_if_the_input_cannot_be_read_again(folder: Path) -> None:
    def away(_record: Any, _error: Any) -> Any:
        raise UnavailableError("Kafka does not answer")

    config = settings(folder)
    built = build(config)
    with Service(config, replace(built, parts=replace(built.parts, locate=away))) as service:
        found = halted(service, "orders", orders((1, "a", 0), (2, "b", 5)))
        assert found["count"] == 1
        assert [row["offset"] for row in found["rows"]] == [-1]
        service.skip(found["step"])
        assert service.live_status.wait_for(lambda now: now.halt is None and now.processed.get(("orders", 0)) == 2, 60)
