"""A pipeline whose circuit (`kept/every_kind.py`) has every kind of node, and the rows it is fed; deterministic throughout.

`python -m tests.coordinator.every_kind` wrote `kept/0.1.0-every-kind.zip` with version 0.1.0. It stays as it is.
"""

from __future__ import annotations

import datetime
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from dbsp.coordinator.service import Service
from dbsp.version import VERSION
from tests.coordinator import keep, shop

CIRCUIT = keep.KEPT / "every_kind.py"
ROUNDS_KEPT = 4
CHECKPOINTS = (0, 2)
START = datetime.datetime(2024, 1, 1)
Changes = dict[str, list[dict[str, Any]]]


def archive(version: str = VERSION) -> Path:
    """Return the file that a version's data are kept in."""
    return keep.KEPT / f"{version}-every-kind.zip"


def prepared(folder: Path) -> Path:
    """Write the pipeline's settings into a folder, beside its circuit."""
    text = shop.settings_text(keep.MORE).replace('"shop"', '"every_kind"').replace("circuit.py", "every_kind.py")
    (folder / "every_kind.py").write_text(CIRCUIT.read_text())
    (folder / "pipeline.toml").write_text(text)
    return folder


def changes(count: int) -> Iterator[tuple[Changes, Changes]]:
    """Yield, for each of so many rounds, the rows that each table gets, then those it loses."""
    random = Random(7)
    held: list[dict[str, Any]] = []
    for number in range(count):
        at = [START + datetime.timedelta(seconds=60 * number + random.randrange(60)) for _ in range(8)]
        numbers = [random.randrange(6) for _ in range(8)]
        t = [
            {"k": random.randrange(4), "at": moment, "x": x, "f": x / 4, "c": x % 3, "s": random.choice("abc")}
            for moment, x in zip(at, numbers, strict=True)
        ]
        came: Changes = {
            "t": t,
            "b": [{"k": random.randrange(4), "at": moment, "x": random.randrange(6)} for moment in at[:4]],
            "u": [
                {"id": key, "y": random.randrange(6), "d": f"{random.randrange(999)}.25"}
                for key in range(number % 2, 6, 2)
            ],
            "o": [{"id": 4 * number + n, "k": random.randrange(4), "x": random.randrange(9)} for n in range(4)],
            "w": [{"k": random.randrange(4), "at": moment, "x": random.randrange(6)} for moment in at[4:]],
            "n": [{"k": number, "l": numbers[:number], "p": {"a": number}}],
            "e": [{"a": number, "b": number + 1}, {"a": number + 1, "b": random.randrange(5)}],
        }
        held += t
        gone = [held.pop(random.randrange(len(held))) for _ in range(3)] if number else []
        yield came, {"t": gone, "u": [{"id": 1, "y": None, "d": None}]} if number else {}


def push(service: Service, round_: tuple[Changes, Changes]) -> None:
    """Push a round: the inserts in one step, then a step for each table with deletes; all are over on return."""
    for rows, delete in zip(round_, (False, True), strict=True):
        if rows and not delete:
            positions = service.push_together({table: _table(service, table, each) for table, each in rows.items()})
            service.wait_until_processed(positions[-1])
        for table, each in rows.items() if delete else ():
            service.wait_until_processed(service.push(table, _table(service, table, each, delete), delete=True))


def _table(service: Service, table: str, rows: list[dict[str, Any]], delete: bool = False) -> pa.Table:
    types = {column.name: column.type for column in service.table(table).schema}
    columns = {name: pa.array([row[name] for row in rows]).cast(types[name]) for name in rows[0]}
    return pa.table(columns)


def identity(service: Service) -> dict[str, Any]:
    """Return all that tells the stored circuit apart: its fingerprint, its nodes, the signatures of its plan."""
    ledger = service.built.parts.control.load()
    return {
        "fingerprint": ledger.fingerprint,
        "nodes": [token for _, token in ledger.nodes],
        "signatures": ledger.signatures.to_json(),
    }


def views_of(service: Service) -> dict[str, list[str]]:
    """Return the rows of every view with their weights, as texts in order."""
    names = service.views()
    return {name: sorted(map(str, service.read_view(name).table.to_pylist())) for name in names}


def go_on(service: Service) -> dict[str, list[str]]:
    """Push the round after the kept ones, take a checkpoint, and return the views."""
    push(service, list(changes(ROUNDS_KEPT + 1))[-1])
    service.checkpoint()
    return views_of(service)


def make() -> Path:
    """Write the archive: two checkpoints, a logged round above them, and the views one round later."""
    with tempfile.TemporaryDirectory() as place:
        folder = prepared(Path(place))
        service = Service(shop.settings(folder))
        service.start()
        for number, each in enumerate(changes(ROUNDS_KEPT)):
            push(service, each)
            if number in CHECKPOINTS:
                service.checkpoint()
        text = json.dumps(identity(service), sort_keys=True)
        service.stop(now=True)
        with zipfile.ZipFile(archive(), "w", zipfile.ZIP_LZMA) as target:
            target.writestr(zipfile.ZipInfo("identity.json"), text, zipfile.ZIP_LZMA)
            keep.add_data(target, folder)
            with Service(shop.settings(folder)) as service:
                views = json.dumps(go_on(service), sort_keys=True)
            target.writestr(zipfile.ZipInfo("views.json"), views, zipfile.ZIP_LZMA)
    return archive()


if __name__ == "__main__":
    made = make()
    print(f"{made}: {made.stat().st_size:,} bytes")
