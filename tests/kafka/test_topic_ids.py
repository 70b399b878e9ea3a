"""The ids of topics while brokers go: any number of answers fail at once, and the next question is asked by a new client."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka import topic_ids as module
from dbsp.io.kafka.topic_ids import TopicIds


class Admin:
    """A client whose answers are there at once: an id, or an error."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def describe_topics(self, collection: Any, request_timeout: float) -> dict[str, Future[Any]]:
        found = {topic: Future[Any]() for topic in self._answers}
        for topic, answer in self._answers.items():
            if isinstance(answer, Exception):
                found[topic].set_exception(answer)
            else:
                found[topic].set_result(SimpleNamespace(topic_id=answer))
        return found


def test_all_answers_that_fail_at_once_are_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    away = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))
    clients = [Admin({"a": 1, "b": 2, "c": 3}), Admin({"a": 1, "b": 2, "c": 4})]
    given = iter([Admin({"a": away, "b": away, "c": 3}), *clients])
    monkeypatch.setattr(module, "make_admin", lambda _: next(given))
    ids = TopicIds(KafkaSettings(brokers="nowhere:1", pipeline="p"), ["a", "b", "c"], ask_every_s=0.0)
    for _ in range(4):
        assert ids.changed() == frozenset()
    ids.close()
    ids.changed()
    assert ids.changed() == {"c"}
    with pytest.raises(StopIteration):
        next(given)
