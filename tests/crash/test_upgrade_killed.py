"""An upgrade that is killed at named points: either version goes on when it is started, if the other has logged no step since."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.coordinator.takeover.upgrades import Restart
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.version import VERSION
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, ORDERS, rows, settings_text
from tests.coordinator.versions import Installations
from tests.crash.coordinator_child import Child
from tests.pace import rotating

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

STARTING = """
import os, sys
if "dbsp.coordinator.serve" in " ".join(sys.orig_argv) and not {"--check", "--formats"} & set(sys.argv):
"""
DIES = f"{STARTING}    os.kill(os.getpid(), 9)\n"
DIES_AS_OWNER = f"""{STARTING}
    import dbsp.io.embedded_steps as log
    claim = log.EmbeddedStepLog.claim
    log.EmbeddedStepLog.claim = lambda self, above=0: (claim(self, above), os.kill(os.getpid(), 9))
"""
POINTS = {
    "runtime.pin:before:1": "",
    "runtime.copy:after:1": "",
    "control.change:after:7": "",
    "runtime.close:before:1": "",
    "runtime.close:after:1": "",
    "control.close:after:1": "",
    "never, the new one dies when it is imported": DIES,
    "never, the new one dies when it owns the pipeline": DIES_AS_OWNER,
}
"""Where the old version dies, or how the new one does."""
OVER = tuple(POINTS)[3:]
"""All was in the checkpoint."""
EXPECTED = {"a": (1, 10, 1), "b": (2, 601, 1)}


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installations:
    return Installations(tmp_path_factory.mktemp("installations"))


def restart_as(installed: Installations, folder: Path) -> Restart:
    """The command line, run by what is installed."""
    script = folder / "python"
    path = shlex.quote(installed.environment()["PYTHONPATH"])
    script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    arguments = (str(folder / "pipeline.toml"), "--no-progress")
    return Restart(interpreter=(str(script), "-m", "dbsp.coordinator.serve"), arguments=arguments)


def upgraded(folder: Path, point: str, restart: Restart) -> None:
    """A service that logs a step and is asked for an upgrade, which somebody does not survive."""
    child = Child(folder / "pipeline.toml", point, folder / "said.txt", restart)
    try:
        while "url" not in read_address(folder / "data") and child.poll() is None:
            threading.Event().wait(0.05)
        with plain_http.client(read_address(folder / "data")["url"], timeout_s=120) as client:
            lines = "".join(json.dumps(row) + "\n" for row in ORDERS.to_pylist())
            client.post("/v1/tables/orders/rows", params={"wait": "true"}, content=lines).raise_for_status()
            with suppress(httpx.HTTPError):
                client.post("/v1/upgrade").raise_for_status()
        assert child.wait(120) == -9, (folder / "said.txt").read_text()
    finally:
        child.kill()


@pytest.mark.parametrize("point", rotating(tuple(POINTS), 4))
def test_either_version_goes_on(folder: Path, installed: Installations, point: str) -> None:
    config = load_config(folder / "pipeline.toml")
    installed.install("9.9.9", POINTS[point])
    upgraded(folder, point, restart_as(installed, folder))
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)
    installed.install("9.9.9")
    if point in OVER:
        with installed.serving(folder):
            url = read_address(folder / "data")["url"]
            asked = {"sql": "SELECT sum(amount) FROM per_customer"}
            found = plain_http.post(f"{url}/v1/query", json=asked, timeout_s=120)
            assert found.json()["rows"] == [[611]]
            installed.run("cli", "stop", "--now", folder=folder)
    else:
        refused = installed.run("serve", "pipeline.toml", "--no-progress", folder=folder)
        assert (refused.returncode, f"step 0 by {VERSION}" in refused.stderr) == (7, True), refused.stderr
    check_goes_on(config)


def check_goes_on(config: Config) -> None:
    """The version under test has all rows, each once, and takes more."""
    with Service(config) as service:
        assert rows(service) == EXPECTED
        service.wait_until_processed(
            service.push("orders", pa.Table.from_pylist([{"id": 9, "customer": "c", "amount": 7}]))
        )
        assert rows(service) == {**EXPECTED, "c": (1, 7, 1)}
    assert not diagnose(config).findings
    log = EmbeddedStepLog(config.data_dir)
    assert log.next_step() == 2
    log.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 3600"))
    return tmp_path
