"""The Kafka logs pass the contracts of the logs, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import confluent_kafka
import pytest

from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.formats import pieces
from dbsp.io.kafka import KafkaInputLog, KafkaOutputLog, KafkaSettings, KafkaSource, KafkaStepLog
from dbsp.io.kafka.client import ensure_topic, make_producer
from dbsp.io.kafka.transaction import TransactionalWriter
from tests.io.log_contracts import InputLogContract, OutputLogContract, Rows, StepLogContract, by_step, make_part
from tests.io.log_samples import TABLE
from tests.kafka.topics import messages, send, weighted

pytestmark = pytest.mark.kafka


class KafkaInputHarness:
    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.opened: list[KafkaInputLog] = []
        self.topic = settings.topic("source")
        ensure_topic(settings, self.topic, 1)

    def open(self) -> KafkaInputLog:
        self.opened.append(KafkaInputLog(self.settings, [KafkaSource(table=TABLE, topic=self.topic)]))
        return self.opened[-1]

    def send(self, lines: Sequence[bytes]) -> None:
        send(self.settings, self.topic, lines)


class TransactionalInputHarness(KafkaInputHarness):
    """Messages come in transactions, with an aborted one before each: offsets have gaps."""

    def send(self, lines: Sequence[bytes]) -> None:
        send(self.settings, self.topic, [b'{"id": 666}'], commit=False)
        send(self.settings, self.topic, lines, commit=True)


class TestKafkaInputLog(InputLogContract):
    @pytest.fixture(params=[KafkaInputHarness, TransactionalInputHarness])
    def harness(self, settings: KafkaSettings, request: pytest.FixtureRequest) -> Iterator[KafkaInputHarness]:
        made = request.param(settings)
        yield made
        for log in made.opened:
            log.close()


class TestKafkaStepLog(StepLogContract):
    @pytest.fixture
    def harness(self, settings: KafkaSettings) -> Iterator[Callable[[], KafkaStepLog]]:
        opened: list[KafkaStepLog] = []

        def open_log() -> KafkaStepLog:
            opened.append(KafkaStepLog(settings, create=True))
            return opened[-1]

        yield open_log
        for log in opened:
            log.close()


class KafkaOutputHarness:
    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.opened: list[KafkaOutputLog] = []

    def open(self, worker: int = 0, first_step: int = 0) -> KafkaOutputLog:
        self.opened.append(KafkaOutputLog(self.settings, worker, first_step=first_step, create=True))
        return self.opened[-1]

    def consume(self, view: str) -> Rows:
        try:
            return by_step(weighted(message) for message in messages(self.settings, self.settings.topic(view)))
        except confluent_kafka.KafkaException:
            return {}


class TestKafkaOutputLog(OutputLogContract):
    @pytest.fixture
    def harness(self, settings: KafkaSettings) -> Iterator[KafkaOutputHarness]:
        made = KafkaOutputHarness(settings)
        yield made
        for log in made.opened:
            log.close()

    def test_a_large_part_is_made_into_texts_piece_by_piece(
        self, harness: KafkaOutputHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pieces, "TEXT_ROWS", 3)
        rows = [((number, "abc"[number % 3]), 1 + number % 2) for number in range(10)]
        keyed = KafkaOutputLog(
            harness.settings, 0, keys={"w": ("name",)}, topics={"w": harness.settings.topic("w")}, create=True
        )
        harness.opened.append(keyed)
        keyed.write(1, 0, {"v": make_part(rows), "w": make_part(rows)}, [])
        assert harness.consume("v") == harness.consume("w") == {0: sorted(rows)}
        found = messages(harness.settings, harness.settings.topic("w"))
        assert {(json.loads(each.value())["insert"]["name"], each.key()) for each in found} == {
            (name, json.dumps(name).encode()) for name in "abc"
        }


def test_how_long_a_transaction_may_take_is_a_setting(settings: KafkaSettings) -> None:
    longer = make_producer(replace(settings, properties={"transaction.timeout.ms": "90000"}), "longer")
    longer.init_transactions(30)
    with pytest.raises(UnavailableError, match="larger than the maximum"):
        TransactionalWriter(
            replace(settings, properties={"transaction.timeout.ms": "999999999"}), "too long"
        ).take_over()
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms=soon"):
        make_producer(replace(settings, properties={"transaction.timeout.ms": "soon"}), "never")
