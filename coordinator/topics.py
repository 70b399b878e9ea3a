"""Kafka topics as the settings name them: how brokers are reached, which table has which topic, how its messages are read."""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.algebra.table import Table
from dbsp.coordinator.config import Config, InputSection, OutputSection
from dbsp.io.formats.avro.registry import Registry
from dbsp.io.formats.debezium import Encodings
from dbsp.io.kafka.client import KafkaSettings
from dbsp.io.kafka.input import KafkaSource
from dbsp.io.kafka.messages import Reading


def kafka_settings(section: InputSection | OutputSection, pipeline: str) -> KafkaSettings:
    """How a section reaches its brokers."""
    return KafkaSettings(brokers=section.bootstrap, pipeline=pipeline, properties=section.properties)


def kafka_sources(section: InputSection, tables: Sequence[Table]) -> list[KafkaSource]:
    """The topic of each of the tables, and how its messages are read."""
    encodings = Encodings(decimals=section.decimals, timestamps=section.timestamps)
    registry = Registry(section.registry, section.registry_login) if section.registry else None
    reading = Reading(extras=section.unknown_columns == "ignore", encodings=encodings, registry=registry)
    return [
        KafkaSource(
            table=table,
            topic=section.topics.get(table.name, table.name),
            format=section.formats.get(table.name, section.format),
            reading=reading,
        )
        for table in tables
    ]


def copied_sources(config: Config, tables: Sequence[Table]) -> list[KafkaSource]:
    """The topics that are copied into the embedded input; `ConfigError` for a format that a table cannot have."""
    section = config.input
    found = kafka_sources(section, [table for table in tables if table.name in section.topics])
    for source in found:
        source.reader()
    return found
