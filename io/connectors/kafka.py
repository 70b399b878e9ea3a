"""The kind "kafka": rows are read from topics, changes are written to topics, and the step log is a topic, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dbsp.errors import ConfigError
from dbsp.io.connectors.kind import OutputKind, Residence, columns_of, option, words
from dbsp.io.connectors.messages import (
    NO_BROKERS,
    HasBrokers,
    ReadsTopics,
    kafka_settings,
    refuse_away_brokers,
    topic_place,
)
from dbsp.io.connectors.places import Place
from dbsp.io.connectors.registry import input_kind, output_kind
from dbsp.io.topic_names import HEARTBEATS, PROGRESS, STEPS, own_topic

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.circuit.circuit import Circuit
    from dbsp.io.kafka.heartbeats import KafkaHeartbeats
    from dbsp.io.kafka.input import KafkaInputLog
    from dbsp.io.kafka.output import KafkaOutputLog
    from dbsp.io.kafka.steps import KafkaStepLog
    from dbsp.plan.plan import ViewSpec

NO_BACKUP = (
    "a pipeline with Kafka cannot be backed up",
    "its topics are not part of the data folder; set `standbys` in [layout] so that the loss of a disk loses no state",
)


@input_kind
@dataclass(frozen=True, kw_only=True)
class KafkaInput(ReadsTopics):
    """A topic per table. Kafka keeps the backlog; the step log is a topic of the pipeline."""

    kind: ClassVar[str] = "kafka"
    stored_formats: ClassVar[Mapping[str, int]] = {}
    log_form: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    needs_one_host: ClassVar[bool] = False
    no_backup: ClassVar[tuple[str, str] | None] = NO_BACKUP
    logs_elsewhere: ClassVar[str | None] = "input and step log are on Kafka"
    push_elsewhere: ClassVar[str | None] = "send the rows to the table's Kafka topic"
    is_expensive_to_read: ClassVar[bool] = True
    asks_others: ClassVar[bool] = True
    knows_ends: ClassVar[bool] = False
    no_resume: ClassVar[tuple[str, str] | None] = None

    @property
    def has_topics(self) -> bool:
        """Return True: a table that is not in `topics` reads the topic of its own name."""
        return True

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:
        """Yield the step log and the topics of the tables."""
        yield own_place(self, residence, STEPS, "the step log")
        yield own_place(self, residence, HEARTBEATS, "the heartbeats of the coordinator")
        yield from self.places_of(names)

    def open(
        self,
        residence: Residence,
        tables: Sequence[Table],
        *,
        create: bool = False,  # noqa: ARG002 - others make the topics
        check: bool = False,
    ) -> KafkaInputLog:
        """Open a reader of the tables' topics."""
        from dbsp.io.kafka.input import KafkaInputLog  # noqa: PLC0415 - reading settings loads no engine

        return KafkaInputLog(kafka_settings(self, residence), self.sources(tables), check_topics=check)

    def open_steps(self, residence: Residence, *, create: bool = False) -> KafkaStepLog:
        """Open the step log in its topic."""
        from dbsp.io.kafka.steps import KafkaStepLog  # noqa: PLC0415 - reading settings loads no engine

        return KafkaStepLog(kafka_settings(self, residence), create=create)

    def open_heartbeats(self, residence: Residence) -> KafkaHeartbeats:
        """Open the heartbeats in their topic."""
        from dbsp.io.kafka.heartbeats import KafkaHeartbeats  # noqa: PLC0415 - reading settings loads no engine

        return KafkaHeartbeats(kafka_settings(self, residence))

    def make_folders(self, residence: Residence, tables: Collection[Table]) -> None:
        """Do nothing: users make the topics."""

    def examine(self, residence: Residence) -> None:
        """Return None: nothing of the input is on this host."""

    def left_out(self, residence: Residence) -> tuple[str, ...]:  # noqa: ARG002 - there is no backup
        """Return nothing: there is no backup."""
        return ()

    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Ask the brokers, the tables' topics and the registry whether they answer."""
        self.refuse_away_topics(residence, tables, patience_s)


@output_kind
@dataclass(frozen=True, kw_only=True)
class KafkaOutput(OutputKind):
    """A topic per view; `topics` maps views to other topics, and `keys` to the columns of the message key ("shop, item").

    With the format "upsert" every view has keys, and a message is the current row of its key.
    """

    kind: ClassVar[str] = "kafka"
    stored_formats: ClassVar[Mapping[str, int]] = {}
    needs_one_host: ClassVar[bool] = False
    no_backup: ClassVar[tuple[str, str] | None] = NO_BACKUP
    changes_elsewhere: ClassVar[str | None] = "consume the view's Kafka topic"
    retracts: ClassVar[bool] = True
    form: ClassVar[str | None] = None
    is_expensive_to_open: ClassVar[bool] = True

    format: str = option("json", check=words("json", "arrow", "upsert"))
    bootstrap: str = option("")
    topics: Mapping[str, str] = option(factory=dict, names="view")
    keys: Mapping[str, str] = option(factory=dict, names="view", columns=True)
    properties: Mapping[str, str] = option(factory=dict)

    def check(self) -> None:
        """Refuse missing brokers."""
        if not self.bootstrap:
            raise ConfigError("a kafka output needs the addresses of brokers", NO_BROKERS.format(section="output"))

    def check_circuit(self, circuit: Circuit) -> Circuit:
        """Return the circuit; with the format "upsert", distribute each view so that one worker has all rows of a key."""
        keys = columns_of(self.keys)
        if self.format != "upsert":
            return circuit
        for view, _ in circuit.views:
            if view not in keys:
                raise ConfigError(
                    f"a view without a key: output.format=upsert view={view}",
                    f'set `keys = {{ {view} = "…" }}` in [output]',
                )
        from dbsp.algebra.key_by import keyed_views  # noqa: PLC0415 - reading settings loads no engine

        return keyed_views(circuit, keys)

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:
        """Yield the progress, and the topics of the views."""
        yield own_place(self, residence, PROGRESS, "the progress of the outputs")
        for view in names:
            topic = self.topics.get(view) or own_topic(residence.pipeline, view)
            remedy = f"rename the view, or set another topic for {view} in `topics` of [output]"
            yield topic_place(self, topic, f"the view {view}", remedy, is_written=True)

    def open(self, residence: Residence, worker: int, first_step: int, *, create: bool = False) -> KafkaOutputLog:
        """Open a producer for the worker."""
        from dbsp.io.kafka.output import KafkaOutputLog  # noqa: PLC0415 - reading settings loads no engine

        return KafkaOutputLog(
            kafka_settings(self, residence), worker, topics=self.topics, keys=columns_of(self.keys),
            format=self.format, first_step=first_step, create=create, create_views=True,
        )  # fmt: skip

    def no_retraction(self, before: ViewSpec, now: ViewSpec) -> str | None:
        """Refuse an edit if the old rows have other keys, or none; other columns are allowed: messages name their columns.

        With `upsert` a key must stay on its worker, because the transactions of two workers have no order. A tombstone for
        the old row could be the last message of a key that has a row.
        """
        keys = columns_of(self.keys).get(now.name, ())
        if self.format == "upsert":
            was, new = ([(key, spec.schema[key].type) for key in spec.keyed_by] for spec in (before, now))
            if was != new:
                return "the key of its messages changed"
            if before.home is None or before.home != now.home or not {name for name, _ in before.home} <= set(keys):
                return "the rows of a key move to another worker"
        lacking = [column for column in keys if column not in before.schema]
        return f"its old rows have no column {lacking[0]}, which is in the key of its messages" if lacking else None

    def folders(self, residence: Residence) -> tuple[tuple[str, Path], ...]:  # noqa: ARG002 - none are needed
        """Return nothing: rows are in topics."""
        return ()

    def progress(self, residence: Residence) -> None:
        """Return None: the progress is in a topic."""

    def resume(self, residence: Residence, workers: Iterable[int], step: int) -> None:
        """Do nothing: the progress is in a topic, and replayed steps are compared with it."""

    def examine(self, residence: Residence, worker: int) -> None:
        """Return None: nothing of the output is on this host."""

    def in_backup(self) -> KafkaOutput:
        """Return this output: there is no backup."""
        return self

    def written_later(self, residence: Residence, step: int) -> Sequence[str]:  # noqa: ARG002 - there is no backup
        """Return nothing: there is no backup to restore."""
        return ()

    def left_out(self, residence: Residence) -> tuple[str, ...]:  # noqa: ARG002 - there is no backup
        """Return nothing: there is no backup."""
        return ()

    def refuse_away(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:  # noqa: ARG002
        """Ask the brokers whether they answer."""
        refuse_away_brokers(kafka_settings(self, residence), (), patience_s)


def own_place(connector: HasBrokers, residence: Residence, name: str, use: str) -> Place:
    """Return the place of a topic that the pipeline needs for itself."""
    remedy = "set another `name` in [pipeline], or another topic in `topics`"
    return topic_place(connector, own_topic(residence.pipeline, name), use, remedy, is_written=True)
