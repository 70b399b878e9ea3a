"""Copy Kafka topics into the embedded input, with a thread for each topic (`dbsp.io.kafka.copying`).

So a topic need not keep messages that were copied: it may be compacted, or have a short retention. While too many rows
wait to be processed, nothing is copied. A failure is shown in status, log and metrics, and the copy is tried again; the
pipeline goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dbsp.coordinator.running.notices import CopyFailed, CopyWorks, Notify
from dbsp.coordinator.settings.config import Config
from dbsp.errors import UnavailableError
from dbsp.io.connectors.messages import ReadsTopics, kafka_settings
from dbsp.logs import Waiting
from dbsp.logs.step_commands import DroppedRow
from dbsp.plan.plan import Plan
from dbsp.steps.timing import Place

if TYPE_CHECKING:
    from dbsp.coordinator.running.command_runner import Parts
    from dbsp.io.kafka.copying import Partitioned, Pushing, TopicCopy

SKIP_S = 60.0
TIMEOUT_S = 5.0
"""The most seconds that a start or a stop waits for brokers."""


class TopicCopies:
    """The copies of all topics of one pipeline."""

    def __init__(self, config: Config, plan: Plan, parts: Parts, pushing: Pushing, note: Notify) -> None:
        """Prepare the copies without opening anything; `note` receives a notice when a copy fails or recovers."""
        self._ending = threading.Event()
        self._copies: list[TopicCopy] = []
        self._threads: list[threading.Thread] = []
        reads = config.input
        if not isinstance(reads, ReadsTopics) or not (sources := reads.copied_sources(plan.tables)):
            return
        from dbsp.io.kafka.copying import TopicCopy  # noqa: PLC0415 - only copies need it
        from dbsp.io.kafka.follow import TopicFollower  # noqa: PLC0415 - as above

        def heard(event: str, fields: dict[str, Any]) -> None:
            note(next(notice(**fields) for notice in (CopyWorks, CopyFailed) if event == notice.EVENT))

        brokers = replace(kafka_settings(reads, config.residence), timeout_s=TIMEOUT_S)
        for source in sources:
            follower = TopicFollower(brokers, source.topic)
            inputs = cast("Partitioned", parts.inputs)
            self._copies.append(TopicCopy(source, follower, inputs, pushing, heard, self._ending))
        parts.waterlines.ask(self)

    def start(self) -> None:
        """Start the threads; raise an error if a topic is missing, but retry brokers that do not answer."""
        for copy in self._copies:
            copy.look()
        for copy in self._copies:
            thread = threading.Thread(target=copy.run, name=f"dbsp-copy-{copy.table}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads; messages that were read and not pushed are read again by the next start."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def waits(self) -> list[Waiting]:
        """Return the copies that are blocked, with the reason."""
        return [
            Waiting(
                table=copy["table"],
                place=f"topic={copy['topic']}",
                reason=copy["error"],
                since_s=copy["since_s"] or 0.0,
            )
            for copy in self.status
            if copy["error"] is not None
        ]

    @property
    def refused(self) -> bool:
        """Return True if a copy stops at a message that the settings do not explain; may be called from any thread."""
        return any(copy.refused for copy in self._copies)

    def skip_refused(self, timeout_s: float | None) -> tuple[DroppedRow, ...]:
        """Turn the refused messages into dead letters; return them by their places in the topics, once they are in the input.

        **Errors** `UnavailableError` if the messages are not copied in time; they still become dead letters later.
        """
        skipped = [(copy, copy.skip_refused()) for copy in self._copies]
        for copy, rows in skipped:
            if not copy.wait_for(rows, SKIP_S if timeout_s is None else timeout_s):
                raise UnavailableError(
                    f"the messages are not copied yet: table={copy.table}",
                    "they become dead letters when they are: see `coordinator status`",
                )
        return tuple(row for _, rows in skipped for row in rows)

    def settled_s(self) -> Mapping[Place, float | None]:
        """Return for each copied partition when brokers last confirmed that all its rows are in the input."""
        return {
            (copy.table, partition): said_s for copy in self._copies for partition, said_s in copy.settled_s().items()
        }

    @property
    def status(self) -> list[dict[str, Any]]:
        """Return for each copy what it has copied since this start, what waits, and its error."""
        return [copy.shown for copy in self._copies]
