"""One broker for all tests of a run, also of its several processes, and a pipeline name of its own for each test.

A broker takes seconds to start, and 2 % of a processor while nothing is asked of it. A test that kills or freezes the broker
has one of its own.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbsp.io.kafka import KafkaSettings
from tests.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    base = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        yield shared(base.parent / "broker")
        return
    yield from started()


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    yield from started()


def started() -> Iterator[Broker]:
    """A broker that lives as long as it is needed here."""
    made = Broker().start()
    yield made
    made.close()


def shared(folder: Path) -> Broker:
    """The broker of the processes that run tests for one parent: the first that asks starts it, and it ends with the parent."""
    folder.mkdir(exist_ok=True)
    port = folder / "port"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if port.exists():
            return Broker(folder, port=int(port.read_text()))
        made = Broker(folder).start(ends_with=os.getppid())
        port.write_text(str(made.port))
        return made


@pytest.fixture
def settings(broker: Broker) -> KafkaSettings:
    return KafkaSettings(brokers=broker.brokers, pipeline=f"p{uuid.uuid4().hex[:8]}")
