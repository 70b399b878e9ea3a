"""A small pipeline in a folder, for tests of a whole service with the in-process runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from dbsp.coordinator.http.access_log import open_log
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from tests import plain_http
from tests.crash.coordinator_child import serve
from tests.forked import Forked, ended
from tests.spark.waiting import until

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
large = orders.filter(col("amount") > 500)
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "large": large})
"""


def settings_text(more: str = "", *, workers: int = 2, step: str = "max_step_delay_ms = 0") -> str:
    """The settings of a pipeline in a folder, with further sections."""
    return f"""
[pipeline]
name = "shop"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = {workers}
[http]
port = 0
[step]
{step}
{more}"""


SETTINGS = settings_text()
ORDERS = pa.table({"id": [1, 2, 3], "customer": ["a", "b", "b"], "amount": [10, 600, 1]})


def settings(folder: Path, *overrides: str) -> Config:
    return load_config(folder / "pipeline.toml", overrides=overrides, environment={})


@contextmanager
def answering(service: Service) -> Iterator[httpx.Client]:
    """The service behind a real socket."""
    config = service.config
    server = HttpServer(
        make_app(service, open_log(config.http, config.folder)),
        bind(config.http),
        config.data_dir,
        folder=config.folder,
    )
    server.start()
    with plain_http.client(server.url) as client:
        yield client
    server.stop()


@contextmanager
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The service in a process of its own, answering; its standard error can be read on."""
    command = [sys.executable, "-m", "dbsp.coordinator.serve", "pipeline.toml", "--no-progress"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = [process.stderr.readline()]
            while said[-1] and "answering at" not in said[-1]:  # before it may stand that something takes long
                said.append(process.stderr.readline())
            assert said[-1], f"it has ended: {said}"
            yield process
        finally:
            process.kill()


@contextmanager
def killable(folder: Path) -> Iterator[Forked]:
    """The service in a process that is forked, not started by its command: for tests that start many and kill them."""
    said = folder / "said.txt"
    said.touch()
    before = said.stat().st_size
    process = Forked(said, serve, folder / "pipeline.toml", "", None, False)

    def answers() -> bool:
        assert process.poll() is None, said.read_text()
        return b"answering at" in said.read_bytes()[before:]

    try:
        until(answers, "the service answers")
        yield process
    finally:
        process.kill()
        process.wait(60)


MODULES = {"cli": "dbsp.coordinator.commands.cli", "serve": "dbsp.coordinator.serve"}
"""The modules of the command line and of the service, by the names that tests use."""


def script(name: str, *arguments: str, folder: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command line of the coordinator to its end; it is forked, which saves its start."""
    return ended(MODULES[name], *arguments, folder=folder, given=given)


def rows(service: Service, view: str = "per_customer") -> dict[Any, tuple[Any, ...]]:
    found = service.read_view(view).table.to_pylist()
    return {row["customer"]: (row["orders"], row["amount"], row["weight"]) for row in found}
