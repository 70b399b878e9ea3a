"""The pause of an upgrade by a successor, there and back: `python -m benchmarks.upgrade [--keys 60000000] [--runtime spark]`.

The state is count per key over distinct keys, in a checkpoint. A client outside pushes a row every 20 ms, each on a connection of
its own, waits for its step, and pushes again. *No step could run* is what the service says. The *longest answer* is what the
client saw. The two versions differ in their number alone. Afterwards each pushed row is in the view once.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.restart import CIRCUIT, SETTINGS
from dbsp.coordinator.address import read_address
from tests import plain_http
from tests.coordinator.versions import Installations

LOAD_ROWS, PACE_S, WAIT_S = 500_000, 0.02, 60.0
STEP_MAX_S = {"local": 0.5, "spark": 1.0}


@contextmanager
def pushing(url: str, key: int) -> Iterator[list[float]]:
    """Push rows of one key, one at a time; yields the seconds that each answer took."""
    took, ended = list[float](), threading.Event()

    def push_on() -> None:
        while not ended.wait(PACE_S):
            begun = time.perf_counter()
            while not pushed(url, key, len(took)):
                pass
            took.append(time.perf_counter() - begun)

    thread = threading.Thread(target=push_on)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def pushed(url: str, key: int, number: int) -> bool:
    """Push one row and wait for its step; False if it must be asked again, which changes nothing twice."""
    headers = {"Dbsp-Producer": "outside", "Dbsp-Sequence": str(number)}
    try:
        with plain_http.client(url, timeout_s=WAIT_S) as client:
            answer = client.post("/v1/tables/rows/rows?wait=true", json=[{"k": key}], headers=headers)
    except httpx.RemoteProtocolError:  # the old process closed the connection beneath the request
        return False
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return False
    answer.raise_for_status()
    return True


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--keys", type=int, default=60_000_000)
    parser.add_argument("--runtime", choices=sorted(STEP_MAX_S), default="local")
    given = parser.parse_args()
    figures, targets = dict[str, float](), dict[str, report.Target]()
    with tempfile.TemporaryDirectory(prefix="upgrade-") as name:
        folder, versions = Path(name) / "pipeline", Path(name) / "versions"
        folder.mkdir()
        versions.mkdir()
        (folder / "circuit.py").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(SETTINGS.replace('"spark"', f'"{given.runtime}"'))
        installed = Installations(versions)
        installed.install("0.9.1", "# a process of its own")
        other, before = (installed.python(version) for version in ("0.9.2", "0.9.1"))
        with installed.serving(folder):
            url = read_address(folder / "data")["url"]
            client = dbsp.Client(url=url)
            order = np.random.default_rng(7).permutation(given.keys)
            for first in range(0, given.keys, LOAD_ROWS):
                client.push("rows", pa.table({"k": order[first : first + LOAD_ROWS]}), wait_s=WAIT_S)
            client.checkpoint()
            figures["state MB"] = client.status()["state_bytes"] / 1e6
            with pushing(url, given.keys) as took:
                for way, python in (("there", other), ("back", before)):
                    already = len(took)
                    done = installed.run("cli", "--json", "upgrade", "--python", str(python), folder=folder)
                    if done.returncode != 0:
                        raise SystemExit(done.stderr)
                    figures[f"{way}: no step could run s"] = json.loads(done.stdout)["pause_seconds"]
                    figures[f"{way}: longest answer s"] = max(took[already:], default=0.0)
                    targets[f"{way}: no step could run s"] = report.at_most(STEP_MAX_S[given.runtime])
            counted = client.query(f"select n from counts where k = {given.keys}").to_pylist()
            figures["rows pushed meanwhile"] = len(took)
            if counted != [{"n": len(took)}]:
                raise SystemExit(f"pushed {len(took)} rows, the view counts {counted}")
    report.keep(f"upgrade {given.runtime}", figures, targets)


if __name__ == "__main__":
    main()
