"""Detection of a topic that was deleted and made again: the new topic has another id.

Offsets of the new topic begin at 0 and name other rows, so a reader must not continue at its old offset. The ids are
requested from time to time in the background, so that no read waits for them.

Left out: ids of earlier runs of the service; they are not stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from dbsp.errors import AwayError
from dbsp.io.kafka.client import KafkaSettings, kafka, make_admin, translate
from dbsp.io.kafka.own_client import OwnClient

ASK_EVERY_S = 1.0


class TopicIds:
    """The ids of some topics, compared with the first id that the brokers reported.

    **State** an admin client, the pending request, the first id of each topic, and the topics whose id differs now.
    """

    def __init__(self, settings: KafkaSettings, topics: Iterable[str], ask_every_s: float = ASK_EVERY_S) -> None:
        """Store the settings; the first request connects."""
        self._settings, self._topics, self._ask_every_s = settings, sorted(set(topics)), ask_every_s
        self._client = OwnClient(settings.properties, lambda: make_admin(settings))
        self._asked: dict[str, Future[Any]] = {}
        self._asked_at = 0.0
        self._first: dict[str, str] = {}
        self._changed: set[str] = set()

    def changed(self) -> frozenset[str]:
        """Return the topics whose id has changed, according to the answers so far; never wait."""
        self._hear()
        now = time.monotonic()
        if not self._asked and now - self._asked_at >= self._ask_every_s:
            self._asked_at = now
            self._ask()
        return frozenset(self._changed)

    def has_changed(self, topic: str) -> bool:
        """Ask the brokers now, and return whether the topic's id has changed.

        A topic whose first id is unknown counts as unchanged.

        **Errors** Kafka's errors if the brokers do not answer, or have no such topic.
        """
        answer = self._describe([topic])[topic]
        try:
            answer.result(timeout=self._settings.timeout_s)
        except kafka().KafkaException as error:
            raise translate(error, f"asking for the id of topic={topic}", self._settings.brokers) from error
        except TimeoutError as error:
            story = f"asking for the id of topic={topic} brokers={self._settings.brokers}"
            raise AwayError(f"Kafka does not answer: {story}") from error
        self._note(topic, answer)
        return topic in self._changed

    def _ask(self) -> None:
        self._asked = self._describe(self._topics)

    def _describe(self, topics: Sequence[str]) -> dict[str, Future[Any]]:
        self._client.renew()
        collection = kafka().TopicCollection(list(topics))
        return dict(self._client.current().describe_topics(collection, request_timeout=self._settings.timeout_s))

    def _hear(self) -> None:
        """Process the answers that have arrived; a topic that is away keeps its id."""
        for topic, answer in list(self._asked.items()):
            if (
                answer.done() and self._asked.pop(topic, None) is not None
            ):  # a failure in `_note` clears all pending requests
                self._note(topic, answer)

    def _note(self, topic: str, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            if not _is_gone(error):
                self.close()  # the next client reads addresses again
            return
        found = str(answer.result().topic_id)
        if self._first.setdefault(topic, found) != found:
            self._changed.add(topic)

    def close(self) -> None:
        """Drop the client, and forget what it was asked."""
        self._client.close()
        self._asked = {}


def _is_gone(error: BaseException) -> bool:
    """Return whether the brokers answered that the topic does not exist."""
    cause = error.args[0] if isinstance(error, kafka().KafkaException) else None
    return isinstance(cause, kafka().KafkaError) and cause.code() == kafka().KafkaError.UNKNOWN_TOPIC_OR_PART
