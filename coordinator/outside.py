"""Whether the systems that a pipeline needs answer: brokers and their topics, schema registries.

`dbsp-coordinator --check` asks them before a start; a service that runs waits for them (`dbsp.io.waits`). Writes nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dbsp.algebra.table import Table
from dbsp.coordinator.config import Config, InputSection, OutputSection
from dbsp.plan.plan import Plan

ANSWER_S = 5.0
"""How long one answer is waited for."""


def look_outside(config: Config, plan: Plan) -> None:
    """Return if all systems answer.

    **Errors** `AwayError` with the address of one that does not, `ConfigError` for a topic that is not there.
    """
    if config.input.kind == "kafka":
        _look_at(config.input, config, plan.tables)
    elif config.input.copies_topics:
        _look_at(config.input, config, [table for table in plan.tables if table.name in config.input.topics])
    if config.output.kind == "kafka":
        _look_at(config.output, config, ())


def _look_at(section: InputSection | OutputSection, config: Config, tables: Sequence[Table]) -> None:
    """Ask the brokers of a section, for the topics of these tables too, and the registries of their formats."""
    from dbsp.coordinator.topics import kafka_settings, kafka_sources  # noqa: PLC0415 - only Kafka needs its client
    from dbsp.io.formats.avro.registry import SchemasAtHand  # noqa: PLC0415 - as above
    from dbsp.io.kafka.client import Reader  # noqa: PLC0415 - as above

    reader = Reader(replace(kafka_settings(section, config.pipeline.name), timeout_s=ANSWER_S))
    try:
        reader.look(ANSWER_S)
        for source in kafka_sources(config.input, tables):
            reader.partitions(source.topic)
            if source.reading.registry is not None and source.format.endswith("avro"):
                SchemasAtHand(source.reading.registry).refuse_away()
    finally:
        reader.close()
