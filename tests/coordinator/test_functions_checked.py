"""User functions that are not deterministic: named before they run, named when they show, and a logged way on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.build import load_plan
from dbsp.coordinator.checks.determinism import refuse_varying, varying
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.serve import way_past
from dbsp.coordinator.service import Service
from dbsp.errors import CircuitError, ConfigError, UnavailableError
from dbsp.io.embedded_output import read_outputs
from dbsp.logs import Range
from tests.coordinator.shop import settings, settings_text

CHECKED = """
import itertools, random
import dbsp

orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING})
schema = {"id": dbsp.INT64, "item": dbsp.STRING}
seen = itertools.count()

def sound(row):
    return {"id": row["id"] * 2, "item": row["item"].upper()}

def chance(row):
    return {"id": random.randint(0, 10**9), "item": row["item"]}

def order_of_a_set(row):
    return {"id": row["id"], "item": "".join({row["item"], "x", "yy", "zzz", "b", "c", "d"})}

def hashed(row):
    return {"id": hash(row["item"]), "item": row["item"]}

def only_of_real_rows(row):
    return {"id": random.randint(0, 10**9) if row["item"] == "real" else 0, "item": row["item"]}

def longest(rows):
    return max(hash(row["item"]) for row in rows) % 1000

views = {each.__name__: orders.map(each, schema) for each in (sound, chance, order_of_a_set, hashed, only_of_real_rows)}
views["grouped"] = orders.group_by("id").aggregate(n=dbsp.fold_aggregate("item", function=longest, type=dbsp.INT64))
pipeline = dbsp.circuit("shop", views)
"""
DRIFTING = """
import os
from pathlib import Path
import dbsp

orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING}, primary_key=["id"])

def drifting(row):
    return {"id": row["id"], "said": Path(__file__).with_name("said").read_text()}

pipeline = dbsp.circuit("shop", {
    "said": orders.map(drifting, {"id": dbsp.INT64, "said": dbsp.STRING}),
    "counted": orders.group_by("item").aggregate(n=dbsp.count()),
})
"""


def written(folder: Path, circuit: str) -> Path:
    (folder / "circuit.py").write_text(circuit)
    (folder / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 1000\n"))
    return folder


def orders(*items: str, first: int = 0) -> pa.Table:
    return pa.table({"id": range(first, first + len(items)), "item": list(items)})


def names(found: tuple[str, ...]) -> set[str]:
    assert all("circuit.py:" in label for label in found)
    return {label.partition(" ")[0] for label in found}


def test_functions_are_tried_twice_on_generated_and_on_real_rows(tmp_path: Path) -> None:
    config = settings(written(tmp_path, CHECKED))
    with pytest.raises(CircuitError, match=r"a user function is not deterministic: chance at .*circuit.py:12"):
        refuse_varying(config, load_plan(config))
    service = Service(config)
    service.push("orders", orders("real", "tea", "tea"))
    service.stop(now=True, quiet=True)
    found = varying(config, [Range(table="orders", partition=0, first=0, last=3)])
    assert names(found) == {"chance", "order_of_a_set", "hashed", "only_of_real_rows", "longest"}


def total(folder: Path, view: str) -> Counter[tuple[Any, ...]]:
    """What a consumer has who adds everything up."""
    found: Counter[tuple[Any, ...]] = Counter()
    for _, _, table in read_outputs(folder / "data", view):
        for row in table.to_pylist():
            found[tuple(row.values())[:-1]] += row["weight"]
    return Counter({row: weight for row, weight in found.items() if weight})


def started(folder: Path) -> Service:
    service = Service(settings(folder))
    service.start(timeout_s=300)
    return service


def test_another_output_halts_by_name_and_is_accepted(tmp_path: Path) -> None:
    folder = written(tmp_path, DRIFTING)
    (folder / "said").write_text("old")
    service = started(folder)
    service.wait_until_processed(service.push("orders", orders("tea", "mugs")), 300)
    service.wait_until_processed(service.push("orders", orders("tea", first=2)), 300)
    service.stop(now=True)
    (folder / "said").write_text("new")
    for step in (0, 1):
        service = started(folder)
        halt = service.status()["halt"]
        assert (halt["step"], halt["command"]) == (step, "accept-output")
        assert service.snapshot.halt is not None
        assert "`coordinator accept-output`" in way_past(service.snapshot.halt)
        assert "views=said functions=drifting at" in halt["message"]
        with pytest.raises(UnavailableError, match=r"gives another output.*coordinator accept-output"):
            service.checkpoint()
        with pytest.raises(ConfigError, match="no row is at fault"):
            service.skip(timeout_s=300)
        assert service.accept_output(timeout_s=300).step == step
        if step == 0:
            service.stop(now=True, quiet=True)  # a start takes the decision, and halts before the next step
    try:
        assert service.accept_output(1, 300).before
        assert total(folder, "said") == {(at, "old"): 1 for at in range(3)}, "nothing is put out without a new step"
        service.wait_until_processed(service.push("orders", orders("tea", first=3)), 300)
        wanted = {(at, "new"): 1 for at in range(4)}
        assert total(folder, "said") == wanted, "the difference comes with the next step"
        assert {(row["id"], row["said"]) for row in service.read_view("said").table.to_pylist()} == set(wanted)
        assert total(folder, "counted") == {("tea", 3): 1, ("mugs", 1): 1}
    finally:
        service.stop(now=True, quiet=True)
    service = started(folder)  # all is replayed once more, decisions and what was paid with them
    try:
        assert service.status()["state"] == "Running"
        assert total(folder, "said") == {(at, "new"): 1 for at in range(4)}
    finally:
        service.stop()
    assert diagnose(settings(folder)).findings == ()
    (folder / "said").write_text("newest")
