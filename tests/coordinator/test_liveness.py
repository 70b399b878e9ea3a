"""A client acts on its own pipeline's service alone, notices a silent one, and a second service is refused where one answers."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.address import ADDRESS_FILE
from dbsp.coordinator.client import client, liveness
from dbsp.coordinator.client.client import Client
from dbsp.coordinator.client.liveness import refuse_running
from dbsp.coordinator.commands import cli
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.identity import Expected
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import ConfigError, UnavailableError
from tests.coordinator.shop import CIRCUIT, settings_text


def placed(folder: Path, name: str) -> Config:
    folder.mkdir()
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text().replace('name = "shop"', f'name = "{name}"'))
    return load_config(folder / "pipeline.toml", environment={})


def served(config: Config, stack: ExitStack) -> HttpServer:
    """A service of this process that answers, and has written where."""
    service = stack.enter_context(Service(config))
    who = {"name": config.pipeline.name, "run": service.built.facts.run}
    server = HttpServer(make_app(service), bind(config.http), config.data_dir, who)
    stack.callback(server.stop)
    server.announce()
    server.start()
    return server


def client_of(config: Config) -> Client:
    return Client(config.folder / "pipeline.toml")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.mark.parametrize("name", ["b", "a"])
@pytest.mark.parametrize("noted", [True, False])
def test_another_pipeline_at_an_old_address_is_refused(
    name: str, noted: bool, tmp_path: Path, stack: ExitStack
) -> None:
    """Also one of the same name, which its run tells apart; 0.1.0 did not note that with the address."""
    ours, other = placed(tmp_path / "ours", "a"), placed(tmp_path / "other", name)
    with Service(ours) as before:
        run = before.built.facts.run
    address = {"url": served(other, stack).url, "pid": 1} | ({"run": run, "name": "a"} if noted else {})
    (ours.data_dir / ADDRESS_FILE).write_text(json.dumps(address))
    client = client_of(ours)
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"another pipeline answers there: .* pipeline={name} "):
            client.ask("POST", "/v1/stop", json={"now": True})
    refuse_running(ours)
    assert client_of(other).ask("GET", "/v1/status")["state"] == "Running"


def test_a_client_that_compares_nothing_is_seen(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = placed(tmp_path / "ours", "a"), placed(tmp_path / "other", "b")
    ours.data_dir.mkdir()
    (ours.data_dir / ADDRESS_FILE).write_text(json.dumps({"url": served(other, stack).url}))
    monkeypatch.setattr(Expected, "refuse_other", lambda *_: None)
    assert client_of(ours).ask("POST", "/v1/pause")["state"] == "Paused"


def test_a_running_service_whose_address_was_deleted_is_found(tmp_path: Path, stack: ExitStack) -> None:
    config = placed(tmp_path / "ours", "a")
    server = served(config, stack)
    file = config.data_dir / ADDRESS_FILE
    file.unlink()
    server.keep_announced()
    assert client_of(config).ask("GET", "/v1/status")["name"] == "a"
    file.unlink()
    text = (config.folder / "pipeline.toml").read_text().replace("port = 0", f"port = {server.address[1]}")
    (config.folder / "pipeline.toml").write_text(text)
    assert client_of(config).ask("GET", "/v1/status")["name"] == "a"


def test_a_second_service_is_refused_where_one_answers(tmp_path: Path, stack: ExitStack) -> None:
    config = placed(tmp_path / "ours", "a")
    refuse_running(config)
    server = served(config, stack)
    refuse_running(config)  # an upgrade starts in its own process
    address = json.loads((config.data_dir / ADDRESS_FILE).read_text())
    (config.data_dir / ADDRESS_FILE).write_text(json.dumps(address | {"pid": 1}))
    with pytest.raises(UnavailableError, match=f"answers already: url={server.url} pid=1"):
        refuse_running(config)
    (config.data_dir / ADDRESS_FILE).write_text("")
    refuse_running(config)
    (config.data_dir / ADDRESS_FILE).write_text(json.dumps(address))


@pytest.fixture
def silent_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """A pipeline whose service accepts connections and says nothing: one that was stopped."""
    for name in ("SILENT_S", "LOOK_EVERY_S", "LOOK_S_MAX"):
        monkeypatch.setattr(liveness, name, 0.2)
    monkeypatch.setattr("dbsp.coordinator.client.connection.ANSWER_S_MAX", 0.2)
    config = placed(tmp_path / "ours", "a")
    config.data_dir.mkdir()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        (config.data_dir / ADDRESS_FILE).write_text(json.dumps({"url": url, "pid": 1}))
        yield config


def test_a_stopped_service_is_named_in_time_and_taken_over(silent_config: Config) -> None:
    with pytest.raises(UnavailableError, match=r"the service does not answer: url=.* seconds=0.2"):
        client_of(silent_config).ask("GET", "/v1/status")
    refuse_running(silent_config)


def test_a_service_that_stops_while_it_is_asked_is_noticed(silent_config: Config) -> None:
    client = client_of(silent_config)
    client.connection.met.append(
        Expected(url=json.loads((silent_config.data_dir / ADDRESS_FILE).read_text())["url"], name="a", run=None)
    )
    with pytest.raises(UnavailableError, match="the service does not answer"):
        client.ask("POST", "/v1/checkpoint")
    assert not client.connection.met, "it is looked for anew: an upgraded one may answer elsewhere"


def test_who_answers_late_is_waited_for() -> None:
    over, looks = threading.Event(), []

    def look(_seconds: float) -> None:
        looks.append(1)
        over.set()

    def send() -> str:
        assert over.wait(60)
        return "done"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness, "LOOK_EVERY_S", 0.01)
        assert liveness.while_it_answers(send, look) == "done"
    assert looks


def test_a_port_in_use_is_something_to_try_again(tmp_path: Path) -> None:
    config = placed(tmp_path / "ours", "a")
    with closing(bind(config.http)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"the address is in use: host=127.0.0.1 port={port}") as raised:
            bind(load_config(config.folder / "pipeline.toml", overrides=[f"http.port={port}"], environment={}).http)
    assert raised.value.exit_code == 4


@pytest.mark.parametrize(
    ("status", "strategy", "said"),
    [
        ("Paused", "icadd", True),
        ("Paused", "redistribute", True),
        ("Paused", "cold", False),
        ("Running", "icadd", False),
    ],
)
def test_a_rescale_that_waits_for_a_paused_pipeline_says_so(
    status: str, strategy: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cli._say_if_paused({"state": status}, strategy)
    assert ("after `coordinator resume`" in capsys.readouterr().err) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt(), True),
        (UnavailableError("the service stopped answering: url=x"), True),
        (UnavailableError("the rescale was abandoned: x"), False),
        (ConfigError("no such strategy"), False),
    ],
)
def test_a_rescale_whose_client_ends_says_that_the_request_stays(
    error: BaseException, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked() -> None:
        with cli._wish_stays(3, dry_run=False):
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
            raise error

    with pytest.raises(type(error)):
        asked()
    assert ("coordinator rescale --cancel" in capsys.readouterr().err) == said


def test_a_follower_waits_for_a_service_that_restarts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.0)
    page = {"next": 3, "changes": []}
    answers: list[Any] = [UnavailableError("the service is not running: x"), UnavailableError("again"), page]

    def ask(*_: Any, **__: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    asking = Client(url="http://127.0.0.1:1")
    monkeypatch.setattr(asking, "ask", ask)
    assert next(asking.pages("v", follow=True, waiting=cli._say_waiting)) == page
    assert capsys.readouterr().err.count("waiting for the service") == 1
