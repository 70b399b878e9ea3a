"""A pipeline under traffic, and what its outputs must be whatever was done to its layout meanwhile."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import UnavailableError
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.logs import StepRecord
from dbsp.logs.step_commands import MIGRATE
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


def make_folder(tmp_path: Path) -> Path:
    """A folder with the pipeline."""
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


def settings(folder: Path, *overrides: str) -> Config:
    return load_config(folder / "pipeline.toml", overrides=overrides, environment={})


def orders(draw: random.Random, count: int, partition: int = 0, partitions: int = 1) -> pa.Table:
    ids = [draw.randrange(1500 // partitions) * partitions + partition for _ in range(count)]
    return pa.table({
        "id": ids, "customer": [draw.randrange(300) for _ in ids], "amount": [draw.randrange(1000) for _ in ids],
    })  # fmt: skip


def names(draw: random.Random, count: int) -> pa.Table:
    customers = [draw.randrange(300) for _ in range(count)]
    return pa.table({"customer": customers, "name": [f"name {draw.randrange(40)}" for _ in customers]})


PAUSE_S = 0.06
"""Between two pushes: every step has rows, and a processor has time for what the test is about."""
WITHOUT_END_S = 0.002
"""The same where there must always be rows that wait."""


@contextmanager
def traffic(service: Service, seed: int, pause_s: float = PAUSE_S, partitions: int = 1) -> Iterator[list[Any]]:
    """Rows come and go until the block ends, or the service does; the positions they got.

    All rows of an order are in one partition, since only there they have an order.
    """
    over, positions, draw = threading.Event(), list[Any](), random.Random(seed)

    def pushing() -> None:
        while not over.wait(pause_s):
            try:
                for partition in range(partitions):
                    found = orders(draw, 60 // partitions, partition, partitions)
                    positions.append(service.push("orders", found, delete=draw.random() < 0.2, partition=partition))
                if draw.random() < 0.2:
                    positions.append(service.push("names", names(draw, 5), delete=draw.random() < 0.3))
            except UnavailableError:
                if not service.snapshot.ended:
                    raise
                return

    service.push("names", names(draw, 200))
    for partition in range(partitions):
        found = orders(draw, 1000 // partitions, partition, partitions)
        service.wait_until_processed(service.push("orders", found, partition=partition), 60)
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


def without_moves(record: StepRecord) -> StepRecord:
    """The record without what it says of keys that move."""
    return replace(record, commands=tuple(c for c in record.commands if not c.startswith(MIGRATE)))


def check_golden(folder: Path, tmp_path: Path) -> None:
    """The same step log without what it says of rescales, run from its beginning by one worker, gives every step's outputs."""
    golden = tmp_path / "golden"
    (golden / "data").mkdir(parents=True)
    for name in ("circuit.py", "pipeline.toml"):
        shutil.copy(folder / name, golden / name)
    shutil.copytree(folder / "data" / "input", golden / "data" / "input")
    with (
        closing(EmbeddedStepLog(folder / "data", create=False)) as log,
        closing(EmbeddedStepLog(golden / "data", create=True)) as bare,
    ):
        epoch = bare.claim()
        for record in log.read(0):
            bare.append(replace(without_moves(record), epoch=epoch))
    with pytest.MonkeyPatch.context() as patch:  # logs without a ledger, which nobody else may start on
        for name in ("refuse_remains", "refuse_logged"):
            patch.setattr(build, name, lambda *_: None)
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
