"""Check a service's address before a request is sent there, and notice when the service stops responding."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx

from dbsp.coordinator.exits import error_of
from dbsp.coordinator.http.identity import Expected, expected_of, is_written
from dbsp.coordinator.http.tokens import load_tokens
from dbsp.coordinator.http.trust import connecting
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.processes import find_process

SILENT_S = 3.0
"""A service that has not answered for this many seconds is taken over."""
ANSWER_S_MAX = 10.0
"""Seconds that a service may take to name its pipeline; after that it counts as stopped."""
LOOK_EVERY_S, LOOK_S_MAX = 10.0, 30.0
"""Seconds between two checks of a waiting client that the service still responds, and the time limit of a check."""
ANNOUNCED_WITHIN_S = 3.0
"""A running service writes its address again within this many seconds after the file was deleted."""
STOPPED_HINT = "it is stopped or overloaded: look at its process, or start another with `dbsp-coordinator --take-over`"
UNAUTHORIZED = (401, 403)

T = TypeVar("T")


def refuse_running(config: Config) -> None:
    """Raise `UnavailableError` if a service of this pipeline responds; a silent or stopped one is taken over."""
    try:
        expected = expected_of(config)
    except UnavailableError:  # a power loss may leave an unreadable address, which this start replaces
        return
    if expected is None or expected.pid == os.getpid() or not _answers(expected, config):
        return
    pid = "" if expected.pid is None else f" pid={expected.pid}"
    raise UnavailableError(
        f"a service of this pipeline answers already: url={expected.url}{pid}",
        "talk to it with `coordinator`, stop it with `coordinator stop`, or take the pipeline over with --take-over",
    )


def _answers(expected: Expected, config: Config) -> bool:
    """Return whether the pipeline's own service responds there in time."""
    token = load_tokens(config.http, config.folder).best("GET", "/v1/status")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with connecting(expected.url, config.http, config.folder) as session:
            answer = session.get(f"{expected.url}/v1/status", headers=headers, timeout=SILENT_S)
        if answer.status_code in UNAUTHORIZED:
            return expected.pid is not None and find_process(expected.pid) is not None
        expected.refuse_other(answer.json())
    except (httpx.HTTPError, ValueError, AttributeError, ConfigError):
        return False
    return True


def found_service(config: Config) -> Expected | None:
    """Return the address of the pipeline's service; None if none runs.

    A running service writes its address again if the file was deleted, so wait for it a short time.
    """
    until = time.monotonic() + ANNOUNCED_WITHIN_S
    while (expected := expected_of(config)) is None and is_written(config.data_dir) and time.monotonic() < until:
        time.sleep(0.1)  # polling a file that another process writes
    return expected


def silent(url: str, seconds: float) -> UnavailableError:
    """Return the error for a service that accepts connections and does not respond."""
    return UnavailableError(f"the service does not answer: url={url} seconds={seconds:g}", STOPPED_HINT)


def while_it_answers(send: Callable[[], T], look: Callable[[float], Any]) -> T:
    """Return the result of `send`, however long it takes; meanwhile `look` raises if the service stops responding."""
    future: Future[T] = Future()

    def sent() -> None:
        try:
            future.set_result(send())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is waited for
            future.set_exception(error)

    threading.Thread(target=sent, name="dbsp-asking", daemon=True).start()
    while True:
        try:
            return future.result(LOOK_EVERY_S)
        except TimeoutError:
            if future.done():
                raise
            look(LOOK_S_MAX)


def not_running(place: str, hint: str) -> UnavailableError:
    """Return the error for a place where no service runs."""
    return UnavailableError(f"the service is not running: {place}", hint)


def error_in(answer: httpx.Response) -> DbspError:
    """Return the service's own error, with its kind and hint."""
    try:
        found = answer.json()["error"]
        if found["code"] == "unauthorized":
            return ConfigError(str(found["message"]), "give --token, or set DBSP_TOKEN, or `token` in [http]")
        if found["code"] == "forbidden":
            return ConfigError(str(found["message"]), found.get("hint"))
        return error_of(str(found["code"]), str(found["message"]), found.get("hint"))
    except (ValueError, KeyError, TypeError):
        kind = ConfigError if answer.is_client_error else UnavailableError
        return kind(f"the service refused: status={answer.status_code} answer={answer.text[:500]}")
