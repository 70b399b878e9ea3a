"""Every design record has its head, the index is that of the heads, and nobody cites a document that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from tools import design_index

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(
    r"source design|fault matrix|components\.md|readability\.md|house[ -]style"
    r"|\bdesign,? sections?\b|sections? [\d, and]+ of the design|invariants?:? [\d, and]+ of the design"
    r"|(?:names|passage|section) of the design|the design names|in the design\b"
    r"|\(of the design\)|the seeds?['`]"
    r"|\bthe seed `",
)
"""How documents were cited that are not in the repository, in lower case."""
WORDS = ("design", "seed", "fault matrix", "house", "components.md", "readability.md")
"""A line without any of these cites none: the expression alone, over all files, takes half a minute."""


def test_every_record_has_its_head() -> None:
    records = design_index.records()
    assert len(records) > 30
    assert [wrong for each in records for wrong in each.wrong()] == []


def test_a_head_that_lacks_something_is_noticed() -> None:
    rows = "| status | done |\n| date | 2026-01-02 |\n| decision | d |\n| alternatives | a |\n"
    text = f"# 0007: X\n\n| | |\n| --- | --- |\n{rows}\nx\n"
    assert list(design_index.design("0007-x.md", text).wrong()) == [
        "0007-x.md: the head has no consequences",
        "0007-x.md: the status must be proposed, accepted, or superseded by NNNN",
    ]


def test_the_index_is_that_of_the_heads() -> None:
    """After a change of a head: `python tools/design_index.py`."""
    assert (design_index.FOLDER / "README.md").read_text(encoding="utf-8") == design_index.page()


def test_what_supersedes_a_record_is_there() -> None:
    numbers = {each.file[:4] for each in design_index.records()}
    named = {number for each in design_index.records() for number in re.findall(r"\d{4}", each.head["status"])}
    assert named
    assert named <= numbers


def cited(folders: tuple[str, ...] = ("dbsp", "storage", "io", "coordinator", "tests", "docs", "tools")) -> list[str]:
    """Return the places that cite a document that is not in the repository."""
    files = [path for folder in folders for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    return [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in sorted({*files, *ROOT.glob("*.md")})
        if path.name != "test_design.py" and "node_modules" not in path.parts
        for line in path.read_text(encoding="utf-8").lower().splitlines()
        if any(word in line for word in WORDS)
        for found in ELSEWHERE.finditer(line)
    ]


def test_no_document_is_cited_that_is_not_there() -> None:
    assert cited() == []


def test_a_citation_is_found() -> None:
    """In the words that were used."""
    for line in ("source: design section 9", "invariant 1 of the design", "(fault matrix, row 3)", "the seed's rule 3"):
        assert any(word in line for word in WORDS)
        assert ELSEWHERE.search(line), line
    assert not ELSEWHERE.search("a design record, a random seed, the design of the page")


def test_records_that_are_cited_are_there() -> None:
    numbers = {each.file[:4] for each in design_index.records()}
    found = {
        number
        for folder in ("dbsp", "storage", "io", "coordinator")
        for path in (ROOT / folder).rglob("*.py")
        for number in re.findall(r"(?:design records? |docs/design/)(\d{4})", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 10
    assert found <= numbers
