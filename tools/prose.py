"""Rules of plain English that a program can check: the beginning of docstrings, and the length of sentences.

A docstring of a function begins with a verb in the imperative, out of `tools/verbs.txt`. No docstring begins with a
word that refers to something which the reader has not seen ("What", "Those", "Its"). A sentence has 25 words at most. A
name in backticks counts as one word; code, examples, tables and headings are exempt. The words in backticks of the last
table of `docs/glossary.md` are not used outside code. The command `python -m tools.prose [PATH ...]` prints the findings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.syntax import parsed, statements

ROOT = Path(__file__).parents[1]
WORDS_MAX = 25
GLOSSARY = ROOT / "docs" / "glossary.md"
CODE = ("dbsp", "storage", "io", "coordinator", "tools")
VERBS = frozenset((ROOT / "tools" / "verbs.txt").read_text().split())

STANDS_FOR_SOMETHING = {
    "What",
    "Who",
    "Whom",
    "Whose",
    "Those",
    "That",
    "These",
    "This",
    "It",
    "Its",
    "One",
    "Nothing",
    "Nobody",
}
STANDS_FOR_SOMETHING |= {"Whether", "Where", "How", "Which", "As", "Of", "So", "Both"}
QUOTED = re.compile(r"``.+?``|`[^`]*`|\[[^\]]*\]\([^)]*\)|https?://\S+")
ENDS = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*`A-Z0-9])")
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^ *>>>.*?(?:^ *$|\Z)", re.MULTILINE | re.DOTALL)
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of running text; leave out code, doctests, tables and headings."""
    for paragraph in _paragraphs(text):
        yield from (sentence for sentence in ENDS.split(QUOTED.sub("Name", paragraph)) if sentence.strip())


def _paragraphs(text: str) -> Iterator[str]:
    """Yield each paragraph, and each item of a list, as one line."""
    lines: list[str] = []
    fenced = False
    example = False
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        example = bare.startswith(">>>") or (example and bool(bare))
        fence = bare.startswith(("```", "~~~"))
        fenced ^= fence
        item = LIST_ITEM.match(line)
        exempt = fence or fenced or example or not bare or line.startswith("    ") or bare.startswith(("|", "#", "<"))
        if (exempt or item) and lines:
            yield " ".join(lines)
            lines = []
        if not exempt or (item and not fenced):
            lines.append(LIST_ITEM.sub("", bare))


def long_sentences(text: str) -> Iterator[str]:
    """Yield a finding for each sentence of more than `WORDS_MAX` words."""
    for sentence in sentences(text):
        count = len(sentence.split())
        if count > WORDS_MAX:
            yield f"a sentence of {count} words; at most {WORDS_MAX}: {sentence[:60]}…"


@cache
def banned_words() -> dict[str, str]:
    """Return the words that the glossary bans, in lower case, with the words to write instead."""
    _, _, table = GLOSSARY.read_text().partition("| do not write |")
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", table, re.MULTILINE)
    return {word: instead for words, instead in rows for word in re.findall(r"`([^`]+)`", words)}


@cache
def _banned() -> re.Pattern[str]:
    """Return the pattern of the banned words, in upper or lower case."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, banned_words()))})\b", re.IGNORECASE)


def word_findings(text: str) -> Iterator[str]:
    """Yield a finding for each banned word of a text outside code and examples; tables and headings count."""
    bare = QUOTED.sub("name", EXAMPLE.sub("", FENCED.sub("", text)))
    for found in _banned().finditer(" ".join(bare.split())):
        yield f"do not write {found.group()!r}; write: {banned_words()[found.group().lower()]}"


def docstring_findings(node: ast.AST, text: str) -> Iterator[str]:
    """Yield the findings of a docstring: its first word, its first line, its sentences."""
    first = text.split("\n", 1)[0].strip()
    word = re.split(r"[\s,.:;]", first, maxsplit=1)[0]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and word not in VERBS:
        yield f"begin with a verb in the imperative, not with {word!r}"
    elif word in STANDS_FOR_SOMETHING:
        yield f"name the thing; do not begin with {word!r}"
    if not isinstance(node, ast.Module) and "\n" in text and text.split("\n")[1].strip():
        yield "put an empty line after the first sentence"
    if first[-1:] not in ".:!?" and not isinstance(node, ast.Module):
        yield "end the first line with a full stop"
    yield from long_sentences(text)
    yield from word_findings(text)


def python_findings(path: Path) -> Iterator[str]:
    """Yield the findings of all docstrings in a Python file, as `file:line: message`."""
    for node in statements(parsed(path)[1]):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                line = node.body[0].lineno
                yield from (f"{path}:{line}: {message}" for message in docstring_findings(node, text))


def findings(paths: list[Path]) -> Iterator[str]:
    """Yield the findings of files, and of all Python and Markdown files in folders."""
    for top in paths:
        for path in sorted([top] if top.is_file() else [*top.rglob("*.py"), *top.rglob("*.md")]):
            if path.suffix == ".py":
                yield from python_findings(path)
            else:
                text = path.read_text()
                yield from (f"{path}: {message}" for message in (*long_sentences(text), *word_findings(text)))


def plain_paths(root: Path) -> list[Path]:
    """Return the files that have to keep the rules."""
    found = (path for folder in (*CODE, "docs") for path in (root / folder).rglob("*"))
    files = [path for path in found if path.suffix in {".py", ".md"} and "node_modules" not in path.parts]
    files += root.glob("*.md")
    return sorted(files)


if __name__ == "__main__":
    found = list(findings([Path(name) for name in sys.argv[1:]] or plain_paths(ROOT)))
    print("\n".join(found))
    sys.exit(bool(found))
