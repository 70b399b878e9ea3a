"""Settings of kinds that read Kafka's topics: brokers, topics of tables, and how messages are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from dbsp.errors import ConfigError
from dbsp.io.connectors.kind import InputKind, Residence, option, words
from dbsp.io.connectors.places import Place

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.io.kafka.client import KafkaSettings
    from dbsp.io.kafka.input import KafkaSource

MESSAGE_FORMATS = ("json", "upsert", "arrow", "debezium", "debezium-flat", "avro", "debezium-avro")
NO_BROKERS = 'set `bootstrap = "host:9092"` in [{section}]'


def _formats(name: str, value: Mapping[str, str]) -> None:
    for table, each in value.items():
        words(*MESSAGE_FORMATS)(f"{name}.{table}", each)


@dataclass(frozen=True, kw_only=True)
class ReadsTopics(InputKind):
    """An input that reads topics: all its tables, or those in `topics`.

    `topics` maps tables to topics; a table that is not in it reads the topic of its own name. `format` is the format of the
    messages, and `formats` that of single tables. With `unknown_columns`, a row with names that the table does not have is
    bad, or the names are ignored. `decimals` and `timestamps` say how Debezium writes these in messages without a schema.
    Avro's schemas are in the `registry`, whose `registry_login` is "name:password".
    """

    bootstrap: str = option("")
    topics: Mapping[str, str] = option(
        factory=dict,
        names="table",
        elsewhere=("an input of {kind} has no topics", 'leave `topics` out, or set kind = "embedded"'),
    )
    format: str = option("json", check=words(*MESSAGE_FORMATS))
    formats: Mapping[str, str] = option(factory=dict, names="table", check=_formats)
    unknown_columns: str = option("refuse", check=words("refuse", "ignore"))
    decimals: str | None = option(None, check=words("text", "bytes"))
    timestamps: str | None = option(None, check=words("ms", "us", "ns"))
    registry: str | None = option(None)
    registry_login: str | None = option(None, is_shown=False)
    properties: Mapping[str, str] = option(factory=dict)

    def check(self) -> None:
        """Refuse Avro without its schemas, and topics without brokers."""
        named = {
            "input.format": self.format,
            **{f"input.formats.{table}": each for table, each in self.formats.items()},
        }
        for setting, value in named.items():
            if value.endswith("avro") and not self.registry:
                raise ConfigError(
                    f"Avro needs its schemas: {setting}={value}", 'set `registry = "http://host:8081"` in [input]'
                )
        if self.has_topics and not self.bootstrap:
            raise ConfigError("topics need the addresses of brokers", NO_BROKERS.format(section="input"))

    @property
    def has_topics(self) -> bool:
        """Return whether a topic is read."""
        return bool(self.topics)

    @property
    def ignores_unknown(self) -> bool:
        """Return whether `unknown_columns` is "ignore"."""
        return self.unknown_columns == "ignore"

    def copied_sources(self, tables: Sequence[Table]) -> list[KafkaSource]:  # noqa: ARG002 - the tables of a subclass
        """Return the topics that are copied into this input, instead of being read again by every step that needs them."""
        return []

    def sources(self, tables: Sequence[Table]) -> list[KafkaSource]:
        """Return the topic of each of the tables, and how its messages are read."""
        from dbsp.io.formats.avro.registry import Registry  # noqa: PLC0415 - reading settings loads no engine
        from dbsp.io.formats.debezium import Encodings  # noqa: PLC0415 - reading settings loads no engine
        from dbsp.io.kafka.input import KafkaSource  # noqa: PLC0415 - reading settings loads no engine
        from dbsp.io.kafka.messages import MessageReading  # noqa: PLC0415 - reading settings loads no engine

        encodings = Encodings(decimals=self.decimals, timestamps=self.timestamps)
        registry = Registry(self.registry, self.registry_login) if self.registry else None
        reading = MessageReading(extras=self.unknown_columns == "ignore", encodings=encodings, registry=registry)
        return [
            KafkaSource(
                table=table,
                topic=self.topic_of(table.name),
                format=self.formats.get(table.name, self.format),
                reading=reading,
            )
            for table in tables
        ]

    def topic_of(self, table: str) -> str:
        """Return the topic of a table that reads one."""
        return self.topics.get(table, table)

    def places(self, residence: Residence, names: Sequence[str]) -> Iterable[Place]:  # noqa: ARG002 - of the tables alone
        """Yield the topics of the tables in `topics`."""
        return self.places_of([table for table in names if table in self.topics])

    def places_of(self, tables: Sequence[str]) -> Iterable[Place]:
        """Yield the topics of tables that read one."""
        for table in tables:
            remedy = f"set another topic for {table} in `topics` of [input]"
            yield topic_place(self, self.topic_of(table), f"the table {table}", remedy)

    def refuse_away_topics(self, residence: Residence, tables: Sequence[Table], patience_s: float) -> None:
        """Return if the brokers, the topics of these tables, and the registries of their formats answer."""
        refuse_away_brokers(kafka_settings(self, residence), self.sources(tables), patience_s)


class HasBrokers(Protocol):
    """A connector whose settings say how to reach brokers."""

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the first brokers to ask."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the properties of Kafka's client."""
        ...


def topic_place(connector: HasBrokers, topic: str, use: str, remedy: str, *, is_written: bool = False) -> Place:
    """Return the place of a topic; topics of one name are the same if the first brokers are named alike."""
    return Place(where=f"topic={topic} brokers={connector.bootstrap}", use=use, remedy=remedy, is_written=is_written)


def kafka_settings(connector: HasBrokers, residence: Residence) -> KafkaSettings:
    """Return how a connector reaches its brokers."""
    from dbsp.io.kafka.client import KafkaSettings  # noqa: PLC0415 - reading settings loads no engine

    return KafkaSettings(brokers=connector.bootstrap, pipeline=residence.pipeline, properties=connector.properties)


def refuse_away_brokers(settings: KafkaSettings, sources: Sequence[KafkaSource], patience_s: float) -> None:
    """Ask brokers, topics and registries whether they answer; see `Connector.refuse_away`."""
    from dbsp.io.formats.avro.registry import SchemasAtHand  # noqa: PLC0415 - reading settings loads no engine
    from dbsp.io.kafka.client import TopicReader  # noqa: PLC0415 - reading settings loads no engine

    reader = TopicReader(replace(settings, timeout_s=patience_s))
    try:
        reader.look(patience_s)
        for source in sources:
            reader.partitions(source.topic)
            if source.reading.registry is not None and source.format.endswith("avro"):
                SchemasAtHand(source.reading.registry).refuse_away()
    finally:
        reader.close()
