"""Warm-up in a whole service with the in-process runtime: under traffic, through cancels, other wishes, restarts."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.config import Config, HttpSection, load_config
from dbsp.coordinator.http import make_app
from dbsp.coordinator.listen import Server, bind
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io import EmbeddedStepLog, read_outputs
from tests.coordinator.shop import settings_text

CIRCUIT = """
import dbsp
from dbsp import col, count, max, min
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.INT64, "amount": dbsp.INT64}, primary_key=["id"])
names = dbsp.table("names", {"customer": dbsp.INT64, "name": dbsp.STRING}, primary_key=["customer"])
joined = orders.join(names, on="customer")
per_name = joined.group_by("name").aggregate(orders=count(), amount=total("amount"), least=min("amount"), most=max("amount"))
pipeline = dbsp.circuit("shop", {"per_name": per_name, "joined": joined})
"""
SETTINGS = settings_text("[checkpoint]\nretention_s = 100000\n", workers=1)
VIEWS = ("per_name", "joined")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


def settings(folder: Path, *overrides: str) -> Config:
    return load_config(folder / "pipeline.toml", overrides=overrides, environment={})


def orders(draw: random.Random, count: int) -> pa.Table:
    ids = [draw.randrange(4000) for _ in range(count)]
    return pa.table({
        "id": ids, "customer": [draw.randrange(300) for _ in ids], "amount": [draw.randrange(1000) for _ in ids],
    })  # fmt: skip


def names(draw: random.Random, count: int) -> pa.Table:
    customers = [draw.randrange(300) for _ in range(count)]
    return pa.table({"customer": customers, "name": [f"name {draw.randrange(40)}" for _ in customers]})


@contextmanager
def traffic(service: Service, seed: int) -> Iterator[list[Any]]:
    """Rows come and go until the block ends; the positions they got."""
    over, positions, draw = threading.Event(), list[Any](), random.Random(seed)

    def pushing() -> None:
        while not over.wait(0.002):
            positions.append(service.push("orders", orders(draw, 60), delete=draw.random() < 0.2))
            if draw.random() < 0.2:
                positions.append(service.push("names", names(draw, 5), delete=draw.random() < 0.3))

    service.push("names", names(draw, 200))
    service.wait_until_processed(service.push("orders", orders(draw, 3000)), 60)
    thread = threading.Thread(target=pushing)
    thread.start()
    try:
        yield positions
    finally:
        over.set()
        thread.join()


def outputs(folder: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """Per view, what every step changed, whoever wrote it."""
    found = {}
    for view in VIEWS:
        total: Counter[tuple[Any, ...]] = Counter()
        for step, _, part in read_outputs(folder / "data", view):
            for row in part.to_pylist():
                total[step, *(value for name, value in row.items() if name != "weight")] += row["weight"]
        found[view] = Counter({key: weight for key, weight in total.items() if weight})
    return found


def check_golden(folder: Path, tmp_path: Path) -> None:
    """The same step log, run from its beginning by one worker that nobody disturbs, gives every step's outputs."""
    golden = tmp_path / "golden"
    (golden / "data").mkdir(parents=True)
    for name in ("circuit.py", "pipeline.toml"):
        shutil.copy(folder / name, golden / name)
    for name in ("input", "steps"):
        shutil.copytree(folder / "data" / name, golden / "data" / name)
    with Service(settings(golden, "pipeline.runtime=local")) as service:
        assert service.status()["workers"] == 1
    with closing(EmbeddedStepLog(folder / "data", create=False)) as log:
        last = log.last()
    assert last is not None
    expected, found = outputs(golden), outputs(folder)
    for view in VIEWS:
        for key in [key for key in expected[view] if key[0] > last.step]:
            del expected[view][key]  # rows that had come and were not processed when the service stopped
        assert expected[view], "the golden run says nothing"
        assert found[view] == expected[view]


def test_every_count_under_traffic_gives_the_outputs_of_the_step_log(folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder)) as service, traffic(service, 1) as positions:
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


def test_another_wish_takes_the_place_of_one_that_warms_up(folder: Path, tmp_path: Path) -> None:
    """With no lag accepted a warm-up goes on as long as rows come."""
    answers: list[Any] = []

    def first() -> None:
        try:
            answers.append(service.rescale(4, 60, strategy="warmup"))
        except UnavailableError as error:
            answers.append(error)

    with Service(settings(folder, "layout.acceptable_recovery_lag=0")) as service, traffic(service, 1) as positions:
        waiting = threading.Thread(target=first)
        waiting.start()
        assert service.board.wait_for(lambda now: now.rescale is not None and now.rescale.round > 1, 60)
        service.rescale(2, 60, strategy="cold")
        waiting.join()
        assert isinstance(answers[0], UnavailableError)
        assert len(service.layout().workers) == 2
        service.wait_until_processed(positions[-1], 60)
        assert sorted(path.name for path in (folder / "data" / "workers").iterdir()) == ["0000", "0001"]
    check_golden(folder, tmp_path)


def test_a_warm_up_can_be_taken_back(folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder, "layout.acceptable_recovery_lag=0")) as service:
        server = Server(make_app(service), bind(HttpSection(port=0)), service.config.data_dir)
        server.start()
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client, traffic(service, 1):
            assert client.delete("/v1/rescale").status_code == 400
            done: list[httpx.Response] = []
            body = {"workers": 3, "strategy": "warmup"}
            asking = threading.Thread(target=lambda: done.append(client.post("/v1/rescale", json=body)))
            asking.start()
            assert service.board.wait_for(lambda now: now.rescale is not None and now.rescale.round > 2, 60)
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
        with traffic(service, 1):
            waiting = threading.Thread(target=rescaling)
            waiting.start()
            assert service.board.wait_for(lambda now: now.rescale is not None and now.rescale.round > 1, 60)
        service.pause(60)
    waiting.join()
    with Service(settings(folder)) as again:
        assert again.board.wait_for(lambda now: now.layout is not None and len(now.layout.workers) == 3, 60)
    check_golden(folder, tmp_path)
