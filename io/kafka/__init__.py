"""The three logs on Kafka: `KafkaInputLog`, `KafkaStepLog`, `KafkaOutputLog`, with the contracts of the embedded
logs.

They need `confluent-kafka`, which is imported when the first client is made.
"""

from __future__ import annotations

from dbsp.io.kafka.client import KafkaSettings
from dbsp.io.kafka.input import KafkaInputLog, KafkaSource
from dbsp.io.kafka.output import KafkaOutputLog
from dbsp.io.kafka.steps import KafkaStepLog

__all__ = ["KafkaInputLog", "KafkaOutputLog", "KafkaSettings", "KafkaSource", "KafkaStepLog"]
