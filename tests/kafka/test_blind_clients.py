"""A client that does not see a broker which came back (row 68 of docs/faults.md); brokers are played."""

from __future__ import annotations

import threading
from dataclasses import replace

import confluent_kafka
import pytest

from dbsp.errors import UnavailableError
from dbsp.io.kafka import KafkaSettings, client
from dbsp.io.kafka.client import TopicReader
from tests.kafka.test_kafka_faults import Unsettled

SETTINGS = KafkaSettings(brokers="nowhere:9092", pipeline="p")


class Blind(Unsettled):
    """A consumer that does not see a broker which is there again: librdkafka has it in no cache, and asks nobody."""

    def __init__(self) -> None:
        super().__init__(confluent_kafka.KafkaError._ALL_BROKERS_DOWN, 1_000)
        self.is_closed = False

    def get_watermark_offsets(self, *_: object, timeout: float, **__: object) -> tuple[int, int]:
        threading.Event().wait(timeout)
        return super().get_watermark_offsets()

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_does_not_see_a_broker_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hostile events found it: after the broker was killed, every try of a step failed for one consumer, for minutes."""
    made: list[Unsettled] = [Blind(), Blind(), Unsettled(0, 0)]
    coming = iter(made)
    monkeypatch.setattr(client, "make_consumer", lambda *_, **__: next(coming))
    monkeypatch.setattr(client, "TRY_S", 0.05)
    reader = TopicReader(SETTINGS)
    assert reader.bounds("t", 0) == (3, 7)
    assert [each.is_closed for each in made[:2]] == [True, True]
    assert reader.bounds("t", 0) == (3, 7), "the one that sees it stays"


def test_a_broker_that_is_away_is_so_after_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Blind] = []
    monkeypatch.setattr(client, "make_consumer", lambda *_, **__: made.append(Blind()) or made[-1])
    monkeypatch.setattr(client, "TRY_S", 0.05)
    with pytest.raises(UnavailableError, match="asking for offsets"):
        TopicReader(replace(SETTINGS, timeout_s=0.2)).bounds("t", 0)
    assert len(made) > 2
