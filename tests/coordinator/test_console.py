"""The console built anew from its source, and every page of it in a real browser, with axe looking for faults."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.http.pages import BUNDLE
from dbsp.coordinator.service import Service
from tests.coordinator.shop import answering, settings
from tests.coordinator.test_browser import CHROMIUM, REASON

SOURCE = BUNDLE.parent
PAGES = Path(__file__).with_name("console_pages.mjs")
NODE_S = 900.0
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="no Node: install node and npm"),
]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program of Node that must succeed; its output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=NODE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source, its packages as the lock file has them, and a new bundle."""
    folder = tmp_path_factory.mktemp("console") / "source"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules", "bundle"))
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    run("npm", "run", "build", cwd=folder)
    return folder


def test_the_bundle_is_what_its_source_makes(built: Path) -> None:
    """After a change of the source: see docs/testing.md."""
    made = {path.name: path.read_bytes() for path in (built / "bundle").iterdir()}
    assert made == {path.name: path.read_bytes() for path in BUNDLE.iterdir()}


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (SOURCE / "package-lock.json").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason=REASON)
def test_every_page_works_in_light_in_dark_and_on_a_phone(built: Path, folder: Path) -> None:
    with Service(settings(folder)) as service, answering(service) as client:
        _fill(client)
        address = str(client.base_url).rstrip("/")
        found = json.loads(run("node", PAGES, built, str(CHROMIUM), address, cwd=built))
    for page in found["pages"]:
        where = f"{page['mode']} {page['name']}"
        assert page["errors"] == page["foreign"] == [], where
        assert page["wide"] <= 0, f"{where} is wider than the window"
        assert page["faults"] == [], where
    assert len(found["pages"]) == 33
    did = found["did"]
    assert did["answer"] == "3"
    assert did["plan"].startswith("as of step "), did["plan"]
    assert "\nlarge: " in did["plan"], did["plan"]
    assert did["left"] == 0, "the result of an earlier query does not stay under an error"
    assert did["past"] == 2
    assert "By worker" in did["profile"]
    assert "From 2 workers to 3" in did["planned"]
    assert "0 KiB" not in did["planned"]


def _fill(client: httpx.Client) -> None:
    """Push rows of which one is a dead letter, and take a checkpoint."""
    rows = [{"id": number, "customer": "abc"[number % 3], "amount": 100 * number} for number in range(9)]
    client.post("/v1/tables/orders/rows", json=[*rows, {"id": "x"}], params={"wait": "true"}).raise_for_status()
    client.post("/v1/checkpoint").raise_for_status()
