"""The tree keeps the house rules, is in plain English and has no import cycle: one process parses its files once."""

from __future__ import annotations

from pathlib import Path

from tools import import_cycles, prose, tidy

ROOT = Path(__file__).parents[2]


def test_the_tree_keeps_the_house_rules() -> None:
    assert tidy.findings(ROOT) == []


def test_the_tree_is_in_plain_english() -> None:
    assert list(prose.findings(prose.plain_paths(ROOT))) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = import_cycles.sources(ROOT)
    assert {
        "dbsp.steps.segment",
        "dbsp.storage.worker",
        "dbsp.io.formats",
        "dbsp.coordinator.commands.cli",
    } <= modules.keys()
    assert import_cycles.cycles(import_cycles.graph(modules)) == []
