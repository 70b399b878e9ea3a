"""The three logs on Kafka: `KafkaInputLog`, `KafkaStepLog`, `KafkaOutputLog`, the same contracts as the embedded ones.

Needs `confluent-kafka`, which is imported when a client is first made.
"""

from __future__ import annotations

from dbsp.io.kafka.client import KafkaSettings
from dbsp.io.kafka.input import KafkaInputLog, KafkaSource
from dbsp.io.kafka.output import KafkaOutputLog
from dbsp.io.kafka.steps import KafkaStepLog

__all__ = ["KafkaInputLog", "KafkaOutputLog", "KafkaSettings", "KafkaSource", "KafkaStepLog"]
