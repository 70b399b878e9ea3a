"""The Kafka logs pass the contracts of the logs, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import confluent_kafka
import pytest

from dbsp.io.kafka import KafkaInputLog, KafkaOutputLog, KafkaSettings, KafkaSource, KafkaStepLog
from dbsp.io.kafka.client import ensure_topic
from tests.io.log_contracts import InputLogContract, OutputLogContract, Rows, StepLogContract, by_step
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
