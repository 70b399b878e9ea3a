"""One broker for all tests of the session, and a pipeline name of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dbsp.io.kafka import KafkaSettings
from tests.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    made = Broker().start()
    yield made
    made.close()


@pytest.fixture
def settings(broker: Broker) -> KafkaSettings:
    return KafkaSettings(brokers=broker.brokers, pipeline=f"p{uuid.uuid4().hex[:8]}")
