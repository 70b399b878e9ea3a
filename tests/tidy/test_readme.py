"""Links of pages lead somewhere; the pipeline and the commands that the README names are right (tests/docs runs its blocks)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dbsp.coordinator.build import load_plan
from dbsp.coordinator.commands import cli
from dbsp.coordinator.settings.config import load_config

ROOT = Path(__file__).parents[2]
PAGES = [str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
MADE = {"index.md", "dsl.md", "sql-functions.md", "settings.md", "cli.md", "http.md", "metrics.md", "errors.md"}
"""Pages below `docs/reference`, which are made when the site is built; a strict build checks links to them."""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        found = (ROOT / page).parent.joinpath(target).resolve()
        made = found.parent == ROOT / "docs" / "reference" and found.name in MADE
        assert target.startswith("https://") or made or found.exists(), target


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings as GitHub spells them, and explicit ones."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings} | set(
        re.findall(r'<a id="([^"]+)"', prose)
    )


def test_anchors_are_there() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
    links = [
        (path, (path.parent / target).resolve() if target else path, anchor)
        for path, text in texts.items()
        for target, anchor in re.findall(r"\]\((?!https:)([^)#]*)#([^)]+)\)", text)
    ]
    assert len(links) > 40
    assert [link for link in links if link[1] in texts and link[2] not in anchors(texts[link[1]])] == []


def test_anchors_are_spelled_as_github_spells_them() -> None:
    page = '# Changes of a database (Debezium)\n\n```\n# no heading\n```\n\n<a id="old-name"></a>\n'
    assert anchors(page) == {"changes-of-a-database-debezium", "old-name"}


def test_the_targets_named_are_targets() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z]+)|^make ([a-z]+)", text, re.MULTILINE))
    for pair in named:
        assert re.search(rf"^{''.join(pair)}:", makefile, re.MULTILINE), pair


@pytest.mark.parametrize("page", ["README.md", "docs/pipeline.md"])
def test_the_pipeline_is_valid(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (settings,) = re.findall(r"```toml[^\n]*\n(.*?)```", text, re.DOTALL)
    (program,) = (
        block
        for block in re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)
        if ">>>" not in block and "dbsp.circuit(" in block
    )
    (tmp_path / "shop.py").write_text(program)
    (tmp_path / "pipeline.toml").write_text(settings)
    plan = load_plan(load_config(tmp_path / "pipeline.toml", environment={}))
    assert [view.name for view in plan.views] == ["sales"]


@pytest.mark.parametrize(("page", "count"), [("README.md", 6), ("docs/pipeline.md", 16)])
def test_the_commands_named_are_commands(page: str, count: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"^coordinator ([a-z]+)", text, re.MULTILINE))
    assert len(named) == count
    assert named <= set(cli.command.commands)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
