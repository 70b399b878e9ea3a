"""With Kafka's logs the coordinator's whole disk is lost, at any moment; a start finds the ledger in the step log and goes on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.build import build, load_plan
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import CircuitError, ConfigError, FencedError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from dbsp.io.kafka.steps import KafkaStepLog
from tests.coordinator.shop import script
from tests.kafka.test_service_kafka import CIRCUIT, config
from tests.kafka.topics import messages, send, weighted

pytestmark = pytest.mark.kafka


def shop(settings: KafkaSettings, folder: Path) -> Config:
    """The shop of Kafka's tests, with copies of checkpoints in another folder."""
    folder.mkdir(exist_ok=True)
    config(settings, folder)
    file = folder / "pipeline.toml"
    text = file.read_text().replace("interval_s = 0.5", f'interval_s = 1000\ncopies = "{folder.parent}/spare"')
    file.write_text(text)
    return load_config(file, overrides=["http.enabled=false"], environment={})


def order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": f"c{number % 3}", "amount": number}


def give(settings: KafkaSettings, service: Service, numbers: range) -> None:
    """Send orders; return when steps have taken them."""
    send(settings, f"{settings.pipeline}.in", [json.dumps(order(number)).encode() for number in numbers])
    assert service.live_status.wait_for(lambda now: sum(now.processed.values()) >= numbers.stop, 60)


def totals(count: int) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for number in range(count):
        orders, amount = found.get(f"c{number % 3}", (0, 0))
        found[f"c{number % 3}"] = (orders + 1, amount + number)
    return found


def seen(service: Service) -> dict[str, tuple[int, int]]:
    rows = service.read_view("per_customer").table.to_pylist()
    return {row["customer"]: (row["orders"], row["amount"]) for row in rows}


def test_a_lost_disk_of_the_coordinator_loses_nothing(settings: KafkaSettings, tmp_path: Path) -> None:
    """It is lost after a rescale that no checkpoint followed but its own, with steps since; then after a plain checkpoint."""
    ensure_topic(settings, f"{settings.pipeline}.in", 2, {})
    folder = tmp_path / "one"
    made = shop(settings, folder)
    with Service(made) as service:
        give(settings, service, range(10))
        service.rescale(3, 60)
        give(settings, service, range(10, 20))
        service.stop(now=True)
    for count in (30, 40):
        shutil.rmtree(made.data_dir)
        with Service(made) as service:
            assert len(service.layout().workers) == 3
            assert seen(service) == totals(count - 10)
            give(settings, service, range(count - 10, count))
            if count == 30:
                service.checkpoint(60)
            assert seen(service) == totals(count)
            service.stop(now=True)
        lines = [json.loads(line) for line in (made.data_dir / "coordinator.log").read_text().splitlines()]
        assert [line["run"] for line in lines if line["event"] == "ledger-found"] == [service.built.facts.run]
    found: Counter[tuple[Any, ...]] = Counter()
    for message in messages(settings, f"{settings.pipeline}.per_customer"):
        _, (row, weight) = weighted(message)
        found[row] += weight
    assert sorted(weight for weight in found.values() if weight) == [1, 1, 1], "each change is there once"
    other = shop(settings, tmp_path / "two")
    (other.folder / "circuit.py").write_text(CIRCUIT.replace("total(", "dbsp.max("))
    with pytest.raises(CircuitError, match="circuit is not the one"):
        build(other, plan=load_plan(other))
    assert not (other.data_dir / "control").exists()
    answer = script("cli", "restore", str(tmp_path / "spare"), str(folder / "pipeline.toml"), folder=folder)
    assert answer.returncode == ConfigError.exit_code
    assert "start the service: it finds the ledger in the step log" in answer.stderr


def test_the_step_log_carries_the_ledger_of_its_owner_also_when_it_is_trimmed(settings: KafkaSettings) -> None:
    with closing(KafkaStepLog(settings, create=True)) as log, closing(KafkaStepLog(settings, create=True)) as late:
        log.note_ledger({"before": "a claim"})
        assert log.ledger() is None
        late.claim()
        late.note_ledger({"of": 1})
        log.claim()
        assert log.ledger() == {"of": 1}
        with pytest.raises(FencedError):
            late.note_ledger({"of": 2})
        log.note_ledger({"of": 3})
        end = log._state.end
        log.note_ledger({"of": 3})
        assert log._state.end == end, "the same ledger is not written again"
        assert late.ledger() == {"of": 3}
        with pytest.raises(FencedError, match="another coordinator owns the step log: epoch=1 newest=2"):
            late.claim()
        log.note_ledger({"of": 4})
        assert log.claim() == 3, "the owner claims again after each of its failures"
