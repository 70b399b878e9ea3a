"""Settings that Kafka refuses are told as settings: told as brokers that are away, a supervisor would start again for ever."""

from __future__ import annotations

import confluent_kafka
import pytest

from dbsp.errors import AwayError, ConfigError, DbspError
from dbsp.io.kafka.client import translate

CODES = confluent_kafka.KafkaError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CODES._INVALID_ARG, ConfigError),
        (CODES.TOPIC_EXCEPTION, ConfigError),
        (CODES.UNKNOWN_TOPIC_OR_PART, ConfigError),
        (CODES._ALL_BROKERS_DOWN, AwayError),
    ],
)
def test_the_kind_of_an_error(code: int, kind: type[DbspError]) -> None:
    assert type(translate(confluent_kafka.KafkaException(CODES(code)), "asking", "b:9092")) is kind


def test_a_property_that_the_client_does_not_know() -> None:
    with pytest.raises(confluent_kafka.KafkaException) as error:
        confluent_kafka.Producer({"foo.bar": "1"})
    assert "foo.bar" in str(translate(error.value, "asking", "b:9092"))
    assert isinstance(translate(error.value, "asking", "b:9092"), ConfigError)
