"""Whatever arrives is a message or a refusal, and the service goes on."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.coordinator.postgres import messages as m
from dbsp.coordinator.postgres.messages import ProtocolError, decode, decode_startup
from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.postgres.statements import located, split
from tests.pace import examples
from tests.postgres.conftest import Connect

KINDS = st.sampled_from([bytes([each]) for each in b"QPBDECpSHXdcf?"])
STARTUP = struct.pack("!II", 0, m.PROTOCOL_3)[4:] + b"user\0me\0database\0kinds\0\0"


def startup_bytes() -> bytes:
    return struct.pack("!I", len(STARTUP) + 4) + STARTUP


@given(kind=KINDS, body=st.binary(max_size=60))
def test_bytes_are_a_message_or_refused(kind: bytes, body: bytes) -> None:
    with suppress(ProtocolError):
        decode(kind, body)


@given(code=st.sampled_from([m.SSL, m.GSS, m.CANCEL, m.PROTOCOL_3, 2 << 16, 0]), body=st.binary(max_size=40))
def test_first_bytes_are_a_message_or_refused(code: int, body: bytes) -> None:
    with suppress(ProtocolError):
        decode_startup(struct.pack("!I", code) + body)


PIECES = st.sampled_from(["'", '"', "$$", "$a$", "/*", "*/", "--", "\n", ";", "select", " ", "E'", "\\", "1", "é", "("])


@given(sql=st.lists(PIECES, max_size=20).map("".join))
def test_a_text_is_taken_apart_or_refused(sql: str) -> None:
    """Nothing is lost: the pieces of all statements are those of the whole text."""
    try:
        found = split(sql)
    except PostgresRefusal:
        return
    whole = [piece for piece, _, _ in located(sql) if piece != ";"]
    assert [piece for each in found for piece, _, _ in located(each.text)] == whole


@settings(max_examples=examples(48), deadline=None)
@given(
    begun=st.booleans(),
    sent=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=60),
            st.builds(m.message, KINDS, st.binary(max_size=60)),
            st.builds(lambda kind, size: kind + struct.pack("!I", size), KINDS, st.integers(0, (1 << 32) - 1)),
        ),
        max_size=4,
    ),
)
def test_no_bytes_end_the_service(server: Any, begun: bool, sent: list[bytes]) -> None:
    with socket.create_connection(server.address, 10) as connection:
        try:
            connection.sendall((startup_bytes() if begun else b"") + b"".join(sent))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except ConnectionError:  # cut off, which is an answer
            pass
    assert server._thread.is_alive()


def test_after_all_that_it_answers(connect: Connect, server: Any) -> None:
    assert connect().execute("select 1").fetchone() == (1,)
    bugs = [
        line
        for line in server._service.config.data_dir.joinpath("coordinator.log").read_text().splitlines()
        if "bug" in line
    ]
    assert bugs == []


def test_a_browser_gets_nothing(server: Any) -> None:
    """A page that sends an HTTP request here is refused before anything of it is looked at."""
    with socket.create_connection(server.address, 10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"not a first message" in connection.recv(1000)


@pytest.mark.parametrize("sql", ["select 'a", "select /* a", "select $x$ a", 'select "a'])
def test_a_text_without_an_end_is_refused(sql: str) -> None:
    with pytest.raises(PostgresRefusal, match="unterminated"):
        split(sql)
