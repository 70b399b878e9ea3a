"""Each rule of plain English turns red on a planted error; `test_whole_tree` applies them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools import prose

ROOT = Path(__file__).parents[2]


LONG = "The row " + "and " * 24 + "column."

PLANTED = [
    ('def f():\n    """The rows."""\n', "begin with a verb in the imperative, not with 'The'"),
    ('class A:\n    """What comes next."""\n', "name the thing; do not begin with 'What'"),
    ('def f():\n    """Return rows.\n    And more."""\n', "put an empty line after the first sentence"),
    ('def f():\n    """Return rows"""\n', "end the first line with a full stop"),
    (f'def f():\n    """Return rows.\n\n    {LONG}\n    """\n', "a sentence of 27 words"),
]


@pytest.mark.parametrize(("text", "message"), PLANTED)
def test_a_planted_docstring_is_found(text: str, message: str) -> None:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    found = list(prose.docstring_findings(node, ast.get_docstring(node) or ""))
    assert any(message in finding for finding in found)


def test_code_tables_and_names_are_not_prose() -> None:
    exempt = [
        f"    {LONG}",
        f"| {LONG} |",
        f"# {LONG}",
        f"```\n{LONG}\n```",
        f">>> {LONG}\n{LONG}",
        f"Return `{LONG}`.",
    ]
    assert list(prose.long_sentences("\n\n".join(exempt))) == []
    assert len(list(prose.long_sentences(f"{LONG}\n\n- {LONG}\n- {LONG} {LONG}"))) == 4


def test_words_that_the_glossary_bans_are_found() -> None:
    words = prose.banned_words()
    assert words["mend"] == "fix, repair"
    assert len(words) > 20
    for word in words:
        assert [*prose.word_findings(f"The {word.capitalize()} row.")] == [
            f"do not write {word.capitalize()!r}; write: {words[word]}"
        ]
        node = ast.parse(f'def f():\n    """Return rows.\n\n    The {word}.\n    """\n').body[0]
        assert isinstance(node, ast.FunctionDef)
        assert len(list(prose.docstring_findings(node, ast.get_docstring(node) or ""))) == 1
    assert len(list(prose.word_findings("| mend |\n\n# Mended\n\nThe row stands\nin a table."))) == 3


def test_code_may_have_words_that_the_glossary_bans() -> None:
    exempt = [
        "`mend`",
        "```\nmend\n```",
        ">>> mend\nmend\n",
        "  ```toml\n  mend = 1\n  ```",
        "[mend](mend.md)",
        "amends",
    ]
    assert list(prose.word_findings("\n\n".join(exempt))) == []
    assert list(prose.word_findings("\n\n".join(exempt) + "\n\nmend")) != []


def terms(text: str) -> list[str]:
    """Return the terms that the tables of a glossary define."""
    definitions, _, _ = text.partition("## Words")
    rows = re.findall(r"^\| (.+?) \| .+\. \|$", definitions, re.MULTILINE)
    return [term.strip(" `") for row in rows for term in row.split(",")]


def test_each_term_is_defined_once() -> None:
    found = terms(prose.GLOSSARY.read_text())
    assert len(found) > 90
    assert [term for term in set(found) if found.count(term) > 1] == []
    assert terms("| step, tick | A. |\n| `step` | B. |\n## Words\n| step | C. |") == ["step", "tick", "step"]
