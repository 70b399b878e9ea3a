"""Certificates between the pipeline and its brokers are renewed under their old names: the pipeline waits, and goes on by itself.

A broker that asks its clients for certificates; both its authority and the client's certificate are replaced.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.io.kafka import KafkaSettings
from tests.certificates import PEM, new_key, private_text, signed
from tests.kafka.broker import Broker
from tests.kafka.test_inputs_wait import count, order, pay, processed, settle, shown
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def authority(folder: Path, name: str) -> None:
    """Make a new authority, `ca.pem`, and certificates that it signs, `broker.pem` and `client.pem`, each with its key."""
    folder.mkdir(exist_ok=True)
    key, host = new_key(), [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    root = signed(name, key, name, key, host, is_authority=True)
    (folder / "ca.pem").write_bytes(root.public_bytes(PEM))
    for each in ("broker", "client"):
        own = new_key()
        (folder / f"{each}.pem").write_bytes(private_text(own) + signed(each, own, name, key, host).public_bytes(PEM))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    authority(tmp_path / "broker", "first")
    made = Broker(tls=tmp_path / "broker").start()
    yield made
    made.close()


def secured(path: Path, plain: KafkaSettings, broker: Broker, folder: Path) -> None:
    """Let the pipeline use the broker's other address, with the certificates of a folder."""
    files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "client.pem", "ssl.key.location": "client.pem"}
    properties = {"security.protocol": "SSL"} | {name: str(folder / file) for name, file in files.items()}
    given = ", ".join(f'"{name}" = "{value}"' for name, value in properties.items())
    line = f'bootstrap = "{plain.brokers}"'
    path.write_text(path.read_text().replace(line, f'bootstrap = "{broker.tls_brokers}"\nproperties = {{ {given} }}'))


def renew(source: Path, own: Path) -> None:
    """Give the pipeline the newest files of the authority, under the names that it knows."""
    for name in ("ca.pem", "client.pem"):
        (own / name).write_bytes((source / name).read_bytes())


def test_certificates_are_renewed_under_their_names(broker: Broker, tmp_path: Path) -> None:
    plain = KafkaSettings(brokers=broker.brokers, pipeline="renewed")
    path, own = settle(plain, tmp_path, "kafka"), tmp_path / "client"
    own.mkdir()
    renew(tmp_path / "broker", own)
    secured(path, plain, broker, own)
    with Service(load_config(path, environment={})) as service:
        order(plain, 0)
        processed(service, "orders", 0, 1)
        (own / "client.pem").write_text("half of a file")
        order(plain, 1)
        processed(service, "orders", 0, 2)  # the clients that there are go on
        renew(tmp_path / "broker", own)
        order(plain, 2)
        processed(service, "orders", 0, 3)
        assert (service.snapshot.rollbacks, shown(service, "orders")["away"]) == (0, None)
        broker.kill()
        authority(tmp_path / "broker", "second")
        broker.start()
        until(lambda: shown(service, "orders")["away"] is not None, "neither side trusts the other one")
        assert f"brokers={broker.tls_brokers}" in shown(service, "orders")["away"]
        renew(tmp_path / "broker", own)
        order(plain, 3)
        pay(plain, 1)
        processed(service, "orders", 0, 4)
        processed(service, "pays", 0, 1)
        until(lambda: shown(service, "orders")["away"] is None, "the table waits no more")
        assert (count(service, "ordered"), count(service, "paid")) == (4, 1)
        assert service.snapshot.last_error is None
