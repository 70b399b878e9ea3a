"""What people click in the console: replays, decisions, backups, a rescale that is cancelled, pages; in a real browser."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.runtime import tasks
from dbsp.trace.redistribute import WarmReport
from tests.coordinator.shop import CIRCUIT, answering, settings
from tests.coordinator.test_browser import CHROMIUM, REASON
from tests.coordinator.test_console import SOURCE, run

CLICKS = Path(__file__).with_name("console_clicks.mjs")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("npm") is None, reason="no Node: install node and npm"),
    pytest.mark.skipif(CHROMIUM is None, reason=REASON),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of Node that drive the browser; the bundle is the one that is served."""
    folder = tmp_path_factory.mktemp("clicks")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, folder)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return folder


def click(packages: Path, service: Service, act: str, *arguments: str) -> dict[str, Any]:
    """Do an act in the console of a running service; what the pages said."""
    with answering(service) as client:
        address = str(client.base_url).rstrip("/")
        found: dict[str, Any] = json.loads(
            run("node", CLICKS, packages, str(CHROMIUM), address, act, *arguments, cwd=packages)
        )
    assert found.pop("errors") == []
    return found


def test_letters_are_paged_and_replayed_after_a_fix(packages: Path, folder: Path) -> None:
    good = [{"id": number, "customer": "a", "amount": 700} for number in range(70)]
    bad = [{"id": 100 + number, "customer": "b", "amount": 700, "sku": 1} for number in range(60)]
    with Service(settings(folder)) as service, answering(service) as client:
        client.post("/v1/tables/orders/rows", json=[*good, *bad], params={"wait": "true"}).raise_for_status()
    with Service(settings(folder, "input.unknown_columns=ignore")) as service:
        said = click(packages, service, "letters")
        assert service.read_view("large", 30).table.num_rows == 130
    assert said["one"].startswith("Replay 1 row?")
    assert said["replayed"] == "1 row replayed, 0 still cannot be read"
    assert "59 rows can be read now" in said["all"]
    assert "1 letter was replayed before and adds nothing" in said["all"]
    assert said["rest"] == "59 rows replayed, 0 still cannot be read"


def test_rows_of_a_view_are_paged(packages: Path, folder: Path) -> None:
    with Service(settings(folder)) as service:
        rows = [{"id": number, "customer": "a", "amount": 700} for number in range(70)]
        with answering(service) as client:
            client.post("/v1/tables/orders/rows", json=rows, params={"wait": "true"}).raise_for_status()
        assert click(packages, service, "paging") == {
            "spans": ["rows 51 to 70", "rows 1 to 50"], "last": True, "same": True
        }  # fmt: skip


def test_a_backup_is_made_to_its_end(packages: Path, folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder)) as service:
        said = click(packages, service, "backup", str(tmp_path / "backups"))
    assert said["said"].startswith("Backup of ")
    assert "Made" in said["row"]
    assert str(tmp_path / "backups") in said["row"]
    assert list((tmp_path / "backups").iterdir())


def test_a_rescale_is_cancelled(packages: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies never end by themselves: a piece copies nothing, and says that much is missing."""
    pause = threading.Event()

    def endless(*_: Any) -> WarmReport:
        pause.wait(0.02)
        return WarmReport(copied_bytes=0, missing_bytes=1 << 30, slices_bytes=1 << 30)

    monkeypatch.setattr(tasks, "warm", endless)
    with Service(settings(folder)) as service, answering(service) as client:
        rows = [{"id": number, "customer": str(number), "amount": 700} for number in range(70)]
        client.post("/v1/tables/orders/rows", json=rows, params={"wait": "true"}).raise_for_status()
        said = click(packages, service, "rescale")
        assert said["said"] == "The rescale was cancelled"
        assert (len(said["toasts"]), said["bad"]) == (1, 0), "it is said once, and is no error"
        status = client.get("/v1/status").json()
        assert (status["workers"], status["rescale"]) == (2, None)


def test_failing_rows_are_skipped(packages: Path, folder: Path) -> None:
    circuit = CIRCUIT.replace('"large": large}', '"large": large}, error_policy="stop"')
    (folder / "circuit.py").write_text(circuit.replace('col("amount") > 500', '100 // (col("amount") - 1) > 500'))
    with Service(settings(folder)) as service:
        service.push("orders", pa.table({"id": [1], "customer": ["a"], "amount": [1]}))
        service.live_status.wait_for(lambda now: now.halt is not None, 60)
        said = click(packages, service, "skip")
        assert service.snapshot.dead == 1
    assert "The pipeline has halted before step 0" in said["why"]
    assert "they become dead letters" in said["asked"]
    assert said["said"] == "Step 0 goes on without 1 row"


def test_another_output_is_accepted(packages: Path, folder: Path) -> None:
    (folder / "factor").write_text("1")
    more = f"""
from pathlib import Path
def times(row):
    return {{"id": row["id"], "price": row["amount"] * int(Path({str(folder / "factor")!r}).read_text())}}
pipeline = dbsp.circuit("shop", {{"priced": orders.map(times, schema={{"id": dbsp.INT64, "price": dbsp.INT64}})}})
"""
    (folder / "circuit.py").write_text(CIRCUIT + more)
    config = load_config(folder / "pipeline.toml", overrides=["checkpoint.interval_s=3600"], environment={})
    service = Service(config)
    service.start(timeout_s=60)
    service.wait_until_processed(service.push("orders", pa.table({"id": [1], "customer": ["a"], "amount": [7]})), 60)
    service.stop(now=True)
    (folder / "factor").write_text("2")
    with Service(config) as again:
        again.live_status.wait_for(lambda now: now.halt is not None, 60)
        said = click(packages, again, "accept")
        assert again.read_view("priced", 30).table.column("price").to_pylist() == [14]
    assert "accept the new output" in said["why"]
    assert said["said"] == "Step 0 goes on with its new output"
