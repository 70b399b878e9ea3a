"""Warm-up in a whole service with the in-process runtime: under traffic, through cancels, other requests, restarts."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import HttpSection
from dbsp.errors import ConfigError, UnavailableError
from tests import plain_http
from tests.coordinator.under_traffic import PAUSE_S, WITHOUT_END_S, check_golden, make_folder, settings, traffic
from tests.pace import in_turn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


@pytest.mark.skipif(not in_turn(1, 2), reason="at every second commit; `make soak` runs it")
def test_every_count_under_traffic_gives_the_outputs_of_the_step_log(folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder)) as service, traffic(service, 1, PAUSE_S / 4) as positions:
        for workers in (2, 3, 1, 4, 2):
            before = service.snapshot.step
            moved = service.rescale(workers, 120, strategy="warmup")
            assert moved is not None
            assert 0 < moved.bytes_ahead <= moved.bytes_moved
            assert len(service.layout().workers) == workers
            assert service.snapshot.step > before, "steps go on"
            service.wait_until_processed(positions[-1], 60)
        assert service.status()["rescale"] is None
        assert service.snapshot.rollbacks == 0
    check_golden(folder, tmp_path)


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
def test_cold_and_warm_in_turn_with_restarts(folder: Path, tmp_path: Path) -> None:
    draw = random.Random(3)
    for _ in range(3):
        with Service(settings(folder)) as service, traffic(service, draw.randrange(1000)):
            for _ in range(2):
                service.rescale(draw.choice([1, 2, 3, 4]), 120, strategy=draw.choice(["cold", "warmup"]))
    check_golden(folder, tmp_path)


def test_the_setting_says_which_strategy(folder: Path) -> None:
    with Service(settings(folder, "layout.strategy=warmup")) as service, traffic(service, 1):
        moved = service.rescale(2, 60)
        assert moved is not None
        assert moved.bytes_ahead > 0
    with pytest.raises(ConfigError, match=r"warmup"):
        settings(folder, "layout.strategy=warm-up")


def test_another_request_takes_the_place_of_one_that_warms_up(folder: Path, tmp_path: Path) -> None:
    """With no lag accepted a warm-up goes on as long as rows come."""
    answers: list[Any] = []

    def first() -> None:
        try:
            answers.append(service.rescale(4, 60, strategy="warmup"))
        except UnavailableError as error:
            answers.append(error)

    with (
        Service(settings(folder, "layout.acceptable_recovery_lag=0")) as service,
        traffic(service, 1, WITHOUT_END_S) as positions,
    ):
        waiting = threading.Thread(target=first)
        waiting.start()
        assert service.live_status.wait_for(lambda now: now.rescale is not None and now.rescale.round > 1, 60)
        service.rescale(2, 60, strategy="cold")
        waiting.join()
        assert isinstance(answers[0], UnavailableError)
        assert len(service.layout().workers) == 2
        service.wait_until_processed(positions[-1], 60)
        assert sorted(path.name for path in (folder / "data" / "workers").iterdir()) == ["0000", "0001"]
    check_golden(folder, tmp_path)


def test_a_warm_up_can_be_taken_back(folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder, "layout.acceptable_recovery_lag=0")) as service:
        server = HttpServer(make_app(service), bind(HttpSection(port=0)), service.config.data_dir)
        server.start()
        with plain_http.client(server.url) as client, traffic(service, 1, WITHOUT_END_S):
            assert client.delete("/v1/rescale").status_code == 400
            done: list[httpx.Response] = []
            body = {"workers": 3, "strategy": "warmup"}
            asking = threading.Thread(target=lambda: done.append(client.post("/v1/rescale", json=body)))
            asking.start()
            assert service.live_status.wait_for(lambda now: now.rescale is not None and now.rescale.round > 2, 60)
            shown = client.get("/v1/status").json()["rescale"]
            assert (shown["workers_before"], shown["workers"]) == (1, 3)
            assert "dbsp_rescale_round 0" not in client.get("/metrics").text
            assert client.delete("/v1/rescale").json() == {"cancelled": True, "workers": 1}
            asking.join()
            assert "cancelled" in done[0].json()["error"]["message"]
            assert client.get("/v1/status").json()["rescale"] is None
        server.stop()
        assert [path.name for path in (folder / "data" / "workers").iterdir()] == ["0000"]
        service.rescale(2, 60, strategy="warmup")
        assert service.snapshot.rollbacks == 0
    check_golden(folder, tmp_path)


def test_a_stopped_service_warms_up_anew(folder: Path, tmp_path: Path) -> None:
    def rescaling() -> None:
        with pytest.raises(UnavailableError):
            service.rescale(3, 60, strategy="warmup")

    with Service(settings(folder, "layout.acceptable_recovery_lag=0")) as service:
        with traffic(service, 1, WITHOUT_END_S):
            waiting = threading.Thread(target=rescaling)
            waiting.start()
            assert service.live_status.wait_for(lambda now: now.rescale is not None and now.rescale.round > 1, 60)
        service.pause(60)
    waiting.join()
    with Service(settings(folder)) as again:
        assert again.live_status.wait_for(lambda now: now.layout is not None and len(now.layout.workers) == 3, 60)
    check_golden(folder, tmp_path)
