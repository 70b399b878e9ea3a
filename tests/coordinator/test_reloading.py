"""Certificates and tokens whose files change while the service runs: the good ones are used, the bad ones refused by name."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.running import watch
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError
from dbsp.reloading import Reloadable
from tests.certificates import certificate
from tests.coordinator.shop import ORDERS, answering, settings
from tests.spark.waiting import until

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["one", "two"]), st.sampled_from(["1", "2", "3", "bad"])),
        st.tuples(st.sampled_from(["one", "two"]), st.none()),
        st.just(("look", None)),
    ),
    max_size=20,
)
"""What is written into which file, that it is deleted, or that somebody looks."""


@given(ACTIONS)
def test_what_is_used_is_the_last_good_content_that_rested(actions: list[tuple[str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / "one", Path(name) / "two"]
        for file in files:
            replace(file, "0")
        found = Reloadable("both", files, lambda: "".join(map(good, files)))
        used, seen, changed = "00", "00", False
        for what, text in actions:
            if what != "look":
                replace(Path(name) / what, text)
                changed = True
                continue
            new = found.look()
            if not changed:  # it rests
                now = [file.read_text() if file.exists() else None for file in files]
                is_good = None not in now and "bad" not in now
                assert (found.refused is None) == is_good
                assert new in (False, is_good)
                used = "".join(map(str, now)) if is_good else used
            changed = False
            seen = found.value
            assert seen == used


def good(file: Path) -> str:
    text = file.read_text() if file.exists() else "bad"
    if text == "bad":
        raise ConfigError(f"cannot be read: {file.name}")
    return text


def replace(file: Path, text: str | None) -> None:
    """Replace a file as whoever renews certificates does: by another with its name."""
    if text is None:
        file.unlink(missing_ok=True)
        return
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.rename(file)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.05)


# --- a whole service ------------------------------------------------------------------------------------------------


@contextmanager
def over_tls(folder: Path, *overrides: str) -> Iterator[tuple[Service, HttpServer]]:
    certificate(folder, "shop", x509.DNSName("localhost"))
    with Service(settings(folder, "http.certificate=shop.pem", "http.key=shop.key", *overrides)) as service:
        config = service.config
        server = HttpServer(make_app(service), bind(config.http), config.data_dir, folder=config.folder)
        assert server.certificate is not None
        service.watch.reload(server.certificate)
        server.start()
        try:
            yield service, server
        finally:
            server.stop()


def shown(server: HttpServer) -> str:
    """The certificate that a new connection meets."""
    return ssl.get_server_certificate(server.address, timeout=10)


def renew(folder: Path) -> str:
    """Put another certificate and its key in the place of the service's, one after the other; the new one."""
    (folder / "renewed").mkdir(exist_ok=True)
    certificate(folder / "renewed", "shop", x509.DNSName("localhost"))
    text = (folder / "renewed" / "shop.pem").read_text()
    for name in ("shop.pem", "shop.key"):
        (folder / "renewed" / name).replace(folder / name)
    return text


def refusals(service: Service) -> list[str]:
    return [alarm["text"] for alarm in service.status()["alarms"] if alarm["kind"] == "not-reloaded"]


def noted(folder: Path, event: str) -> list[dict[str, str]]:
    lines = map(json.loads, (folder / "data" / "coordinator.log").read_text().splitlines())
    return [line for line in lines if line["event"] == event and line.get("kind", "not-reloaded") == "not-reloaded"]


def test_a_renewed_certificate_is_shown_and_a_bad_one_is_refused(folder: Path) -> None:
    with over_tls(folder) as (service, server):
        first = (folder / "shop.pem").read_text()
        assert shown(server) == first
        with follower(server, folder / "shop.pem") as next_event:
            second = renew(folder)
            until(lambda: shown(server) == second, "the new certificate is shown")
            service.push("orders", ORDERS)
            assert b"600" in next_event(), "a connection that was open goes on"
            (folder / "shop.pem").write_text("no certificate")
            until(lambda: bool(refusals(service)), "the bad one is refused")
            (refusal,) = refusals(service)
            assert refusal.startswith(
                "changed files are not used, what was read before stays: not a certificate and its key"
            )
            assert str(folder / "shop.pem") in refusal
            assert shown(server) == second
            assert service.readiness()[0], "it is no reason to send requests elsewhere"
            third = renew(folder)
            until(lambda: shown(server) == third, "the next good one is shown")
            until(lambda: not refusals(service), "the alarm is over")
            service.push("orders", ORDERS.slice(1, 1).set_column(2, "amount", [[601]]))
            assert b"601" in next_event()
    assert len(noted(folder, "alarm")) == len(noted(folder, "alarm-over")) == 1
    assert len(noted(folder, "reloaded")) >= 2


@contextmanager
def follower(server: HttpServer, trusted: Path) -> Iterator[Callable[[], bytes]]:
    """Follow a view over one connection; what is yielded returns what comes next."""
    context = ssl.create_default_context(cafile=trusted)
    with (
        socket.create_connection(server.address, timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(
            b"GET /v1/views/large/changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        )

        def next_event() -> bytes:
            read = b""
            while b'"rows"' not in read:
                more = connection.recv(65536)
                assert more, f"the connection was closed: {read!r}"
                read += more
            return read

        yield next_event


def test_tokens_are_read_again_and_a_bad_file_is_refused(folder: Path) -> None:
    readers = folder / "readers"
    readers.write_text("old-one\n")
    config = settings(folder, "http.token=all", 'http.token_files={ read = "readers" }')
    with Service(config) as service, answering(service) as client:

        def status(token: str) -> int:
            return client.get("/v1/views", headers={"Authorization": f"Bearer {token}"}).status_code

        assert (status("old-one"), status("new-one")) == (200, 401)
        replace(readers, "old-one\nnew-one\n")
        until(lambda: status("new-one") == 200, "the new token is known")
        assert status("old-one") == 200, "both, while they are changed"
        replace(readers, "new-one\n")
        until(lambda: status("old-one") == 401, "the old token is gone")
        for bad in ("", "not a token\n", None):
            replace(readers, bad)
            until(lambda: bool(refusals(service)), "the bad file is refused")
            assert status("new-one") == status("all") == 200, "nobody is let in without a token"
            assert client.get("/v1/views").status_code == 401
            assert not any("not a" in text and "not a token: file" not in text for text in refusals(service))
            replace(readers, "new-one\n")
            until(lambda: not refusals(service), "the good file is read")


@pytest.mark.parametrize("broken", ["keep nothing", "never read", "read at once"])
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The law above fails for a `look` that breaks one of the invariants."""

    def look(self: Reloadable[str]) -> bool:
        before, self._seen = self._seen, self._stamp()
        if broken == "never read" or self._seen == self._loaded or (broken == "keep nothing" and before != self._seen):
            return False
        self._loaded = self._seen
        try:
            self.value, self.refused = self._read(), None
        except ConfigError as error:
            self.refused = error.message
            if broken == "keep nothing":
                self.value = ""
        return self.refused is None

    monkeypatch.setattr(Reloadable, "look", look)
    with pytest.raises((AssertionError, ExceptionGroup)):
        test_what_is_used_is_the_last_good_content_that_rested()
