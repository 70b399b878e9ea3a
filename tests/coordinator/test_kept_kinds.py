"""A pipeline of version 0.1.0 with every kind of node opens with an equal identity, and goes on with the right answers.

The circuit is `kept/every_kind.py`; version 0.1.0 wrote the data. The names of Python classes and fields are not stored
(`dbsp.stored`), so renaming one in the product leaves this test green; changing a stored name turns it red.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import dbsp
from dbsp.algebra.key_by import KeyBy, keyed_views
from dbsp.circuit.fingerprint import parameters, token_of
from dbsp.circuit.graph import nodes_of
from dbsp.circuit.nodes import Node
from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.answers import ViewChanges
from dbsp.errors import InternalError
from dbsp.plan.planner import plan
from dbsp.plan.signatures import signatures
from dbsp.stored import _NAMES, stored
from tests.coordinator import every_kind, shop

FROM = "0.1.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(every_kind.archive(FROM)) as found:
        found.extractall(every_kind.prepared(tmp_path))
    return tmp_path


def test_the_identity_is_what_0_1_0_stored(folder: Path) -> None:
    kept = json.loads((folder / "identity.json").read_text())
    circuit = dbsp.load_circuit(f"{folder / 'every_kind.py'}:pipeline")
    assert circuit.fingerprint == kept["fingerprint"]
    assert signatures(plan(circuit)).to_json() == kept["signatures"]


def test_state_of_every_kind_goes_on(folder: Path) -> None:
    """The kept state with one more round gives the views that version 0.1.0 gave.

    `integrate` adds up the rows of `t` once a step. A step without input follows where a waterline rose, unless the next
    push comes first. So how many steps there are is not fixed, and this view is compared with the changes of `t`.
    """
    config = shop.settings(folder)
    expected = json.loads((folder / "views.json").read_text())
    with Service(config, build(config, accepting=[FROM])) as service:
        found = every_kind.go_on(service)
        expected["integrate"] = _added_up(service.changes("t", rows_max=1_000_000))
    assert {name for name in expected if found[name] != expected[name]} == set()
    assert sum(map(bool, expected.values())) > len(expected) * 3 // 4, "most views have rows, or nothing was compared"
    assert not diagnose(config).findings


def test_every_kind_of_node_is_in_the_circuit(folder: Path) -> None:
    """A new logical node joins a kept circuit of its own version; those of 0.1.0 are all here but what only sinks make."""
    circuit = dbsp.load_circuit(f"{folder / 'every_kind.py'}:pipeline")
    here = {type(node) for node in nodes_of(circuit)}
    keyed = keyed_views(dbsp.circuit("one", {"v": dbsp.table("t", {"k": dbsp.INT64}, primary_key="k")}), {"v": ("k",)})
    key_by = keyed.views[0][1]
    assert isinstance(key_by, KeyBy)
    assert parameters(key_by).startswith("KeyBy ")
    inner = {"Given", "SetByIteration", "ExtremesByIteration"}
    assert {cls.__name__ for cls in _kinds()} - {cls.__name__ for cls in here} <= inner | {"KeyBy"}


def test_a_class_without_stored_names_is_refused() -> None:
    @dataclass(frozen=True)
    class Unnamed:
        x: int

    with pytest.raises(InternalError, match="without stored names"):
        token_of(Unnamed(1))
    with pytest.raises(InternalError, match="do not match the fields"):
        stored("Unnamed", "x y")(Unnamed)


def test_python_names_do_not_reach_the_fingerprint(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    circuit = dbsp.load_circuit(f"{folder / 'every_kind.py'}:pipeline")
    before, meant = circuit.fingerprint, signatures(plan(circuit))
    renamed = {type(node) for node in nodes_of(circuit)} | {type(node.operator) for node in plan(circuit).nodes}
    names = {cls: cls.__name__ for cls in renamed}
    try:
        for cls, name in names.items():
            cls.__name__ = f"Renamed{name}"
        assert circuit.fingerprint == before
        assert signatures(plan(circuit)) == meant
    finally:
        for cls, name in names.items():
            cls.__name__ = name
    table = type(circuit.tables[0])
    monkeypatch.setattr(table, _NAMES, replace(table.__dict__[_NAMES], name="Other"))
    assert circuit.fingerprint != before, "the stored name is what counts"


def _added_up(changes: ViewChanges) -> list[str]:
    """Return the rows that `integrate` of the column `k` has after these changes: the sum of the table over all steps."""
    tables = {step.step: step.table for step in changes.steps}
    held: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for step in range(changes.next):
        for row in tables[step].to_pylist() if step in tables else ():
            held[row["k"]] += row["weight"]
        total.update(held)
    return sorted(str({"k": key, "weight": weight}) for key, weight in total.items())


def _kinds() -> set[type]:
    """Every logical node that is not abstract."""
    found, waiting = set(), [Node]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        ours = cls.__module__.startswith("dbsp.")
        found |= {cls} if ours and not getattr(cls, "__abstractmethods__", None) else set()
    return found
