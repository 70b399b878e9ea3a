"""What contributors are told is true of the tree: files, commands, hooks, versions, the form of the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dbsp.version import VERSION

ROOT = Path(__file__).parents[2]
PAGES = ["CONTRIBUTING.md", "SECURITY.md", "docs/contributing/recipes.md", "docs/contributing/release.md"]
EXAMPLES = {
    "dbsp/operators/first_seen.py",
    "dbsp/algebra/first_seen.py",
    "io/connectors/sqlite.py",
    "tests/io/test_sqlite_output.py",
}
"""Files that a recipe makes."""
FILE = re.compile(
    r"(?<![\w/.<-])((?:\.venv/bin|\.github|dbsp|storage|io|coordinator|tests|tools|docs|examples|benchmarks)/[\w/.-]*\w/?)"
)
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Upgrade notes"]


def missing(text: str) -> list[str]:
    """Return the files and folders that a page names and the tree does not have."""
    named = {name.removesuffix(".").rstrip("/") for name in FILE.findall(text)}
    return sorted(name for name in named - EXAMPLES if not (ROOT / name).exists() and not name.startswith(".venv/"))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(FILE.findall(text)) > 3
    assert missing(text) == []


def test_a_file_that_is_not_there_is_noticed() -> None:
    assert missing("touch `dbsp/nowhere.py` and `dbsp/steps/segment.py`") == ["dbsp/nowhere.py"]


def test_a_recipe_makes_no_file_that_is_there() -> None:
    """Otherwise the example would have to be another one."""
    assert not [name for name in EXAMPLES if (ROOT / name).exists()]


def test_targets_that_contributors_are_told_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {
        name for page in PAGES for name in re.findall(r"`make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"))
    }
    assert named >= {"install", "check", "quick", "test", "soak"}
    assert not [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)]


def test_hooks_run_tools_that_exist() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    tools = re.findall(r"entry: \.venv/bin/python (?:-m ([\w.]+)|(\S+))", text)
    assert len(tools) == 4
    files = [path or f"{module.replace('.', '/')}.py" for module, path in tools if module != "ruff"]
    assert all((ROOT / file).is_file() for file in files)


def headings(changelog: str) -> list[str]:
    """Return what is wrong with the headings of a changelog."""
    wrong: list[str] = []
    for line in changelog.splitlines():
        if line.startswith("## ") and not re.fullmatch(r"## \[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d\d-\d\d)?", line):
            wrong.append(line)
        if line.startswith("### ") and line[4:] not in KINDS:
            wrong.append(line)
    return wrong


def test_the_changelog_has_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert VERSION in versions or VERSION.endswith(".dev0"), "only a version under development has no heading"
    assert headings(text) == []
    assert headings("## 0.2\n\n### Mended\n") == ["## 0.2", "### Mended"]


def test_there_is_one_version() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["version"] == VERSION
