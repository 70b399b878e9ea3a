"""Every example in a docstring runs; modules are found by their import names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import doctests

ROOT = Path(__file__).parents[2]


PACKAGES: dict[str, list[str]] = {}
for module in doctests.module_names(ROOT):
    PACKAGES.setdefault(module.rpartition(".")[0] or module, []).append(module)
"""Modules by package: most have few examples, and a test for each would cost more than they do."""


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_run(package: str) -> None:
    assert not [name for name in PACKAGES[package] if doctests.run(name).failed]


def test_all_four_folders_are_found() -> None:
    names = set(doctests.module_names(ROOT))
    assert {"dbsp", "dbsp.storage", "dbsp.io", "dbsp.io.formats", "dbsp.coordinator"} <= names


def test_a_wrong_example_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planted_example.py").write_text('"""Says:\n\n>>> 1 + 1\n3\n"""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctests.run("planted_example").failed == 1
    assert "Expected" in capsys.readouterr().out
    sys.modules.pop("planted_example")
