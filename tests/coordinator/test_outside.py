"""A look before a start: brokers and registries that do not answer are named with their addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.build import load_plan
from dbsp.coordinator.checks import outside
from dbsp.coordinator.checks.outside import look_outside
from dbsp.coordinator.exits import exit_code
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import AwayError
from dbsp.io.connectors.kafka import KafkaInput
from dbsp.io.formats.avro.registry import Registry, SchemasAtHand
from dbsp.io.kafka import KafkaInputLog, KafkaSettings
from tests.io import registry as registries

CIRCUIT = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64})
pipeline = dbsp.circuit("shop", {"n": orders.group_by().aggregate(n=dbsp.count())})
"""
NOWHERE = "127.0.0.1:9"


def config(folder: Path, **sections: str) -> Config:
    (folder / "circuit.py").write_text(CIRCUIT)
    text = '[pipeline]\ncircuit = "circuit.py:pipeline"\nruntime = "local"\n'
    text += "".join(f"[{name}]\n{lines}\n" for name, lines in sections.items())
    (folder / "pipeline.toml").write_text(text)
    return load_config(folder / "pipeline.toml", environment={})


KAFKA = f'kind = "kafka"\nbootstrap = "{NOWHERE}"'
COPIED = f'topics = {{ orders = "shop" }}\nbootstrap = "{NOWHERE}"'


@pytest.mark.parametrize("sections", [{"input": KAFKA}, {"input": COPIED}, {"output": KAFKA}])
def test_brokers_that_are_away_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, str]
) -> None:
    monkeypatch.setattr(outside, "ANSWER_S", 0.5)
    found = config(tmp_path, **sections)
    with pytest.raises(AwayError, match=f"Kafka does not answer: .* brokers={NOWHERE}") as caught:
        look_outside(found, load_plan(found))
    assert exit_code(caught.value.code) == 4


def test_a_pipeline_that_needs_nobody_asks_nobody(tmp_path: Path) -> None:
    found = config(tmp_path)
    look_outside(found, load_plan(found))


def test_a_start_names_the_address(tmp_path: Path) -> None:
    found = config(tmp_path, input=KAFKA)
    assert isinstance(found.input, KafkaInput)
    sources = found.input.sources(load_plan(found).tables)
    with pytest.raises(AwayError, match=f"brokers={NOWHERE}"):
        KafkaInputLog(KafkaSettings(brokers=NOWHERE, pipeline="p", timeout_s=0.5), sources)


def test_a_registry_is_away_or_out_of_order_or_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbsp.io.formats.avro.registry.LOOK_EVERY_S", 0.0)
    with registries.registry() as held:
        there = SchemasAtHand(Registry(held.url))
        there.refuse_away()
        held.answers = {"/schemas/types": (503, {})}
        with pytest.raises(AwayError, match=f"out of order: registry={held.url} status=503"):
            there.refuse_away()
        held.answers = {}
        there.refuse_away()
    with pytest.raises(AwayError, match=f"does not answer: registry={held.url}"):
        there.refuse_away()
    there.close()
