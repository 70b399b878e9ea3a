"""The blocks of code of a Markdown page: language, title and text, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPENING = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^`\n]*)$")
TITLE = re.compile(r'title="([^"]*)"')
START = re.compile(r"Start with \[[^\]]*\]\(([\w-]+\.md)\)")
"""How a page names the page whose blocks come before its own."""
NOT_RUN = "not run: "
"""How the title of a block begins that is not run; the reason follows, and readers of the site see it."""
SHOWN = frozenset({"text", "json", "mermaid", "diff"})
"""Languages of blocks that show something and run nothing."""
RUN = frozenset({"python", "console", "toml", "sql", "jsonl", "csv"})
"""Languages of blocks that are played, written or checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: the page's line at which it begins, its language, its title, its text without the indent."""

    line: int
    language: str
    title: str
    text: str

    @property
    def runs(self) -> bool:
        """Return whether something is done with the block: it is run, checked, or written to the file that its title names."""
        return self.reason is None and (bool(self.title) or self.language not in SHOWN)

    @property
    def programs(self) -> list[str]:
        """Return the programs that a console block needs and that a machine may lack."""
        return [name for name in ("psql", "curl", "openssl") if self.language == "console" and f"{name} " in self.text]

    @property
    def reason(self) -> str | None:
        """Return why the block is not run; None if it is."""
        return self.title.removeprefix(NOT_RUN) if self.title.startswith(NOT_RUN) else None


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opened = OPENING.match(line)
        if opened is None:
            continue
        inside: list[str] = []
        for _, each in lines:
            if each.strip() == opened["fence"]:
                break
            inside.append(each.removeprefix(opened["indent"]))
        info = opened["info"].strip()
        title = TITLE.search(info)
        yield Block(
            line=number,
            language=re.split(r"[\s{]", info, maxsplit=1)[0],
            title=title[1] if title else "",
            text="\n".join(inside) + "\n",
        )


def played(page: Path) -> list[Block]:
    """Return the blocks of a page with which something is done; first those of the pages that it says to start with."""
    text = page.read_text(encoding="utf-8")
    before = [block for name in START.findall(text) for block in played(page.parent / name)]
    return [*before, *(block for block in blocks_of(text) if block.runs)]


def pages(root: Path) -> list[Path]:
    """Return all pages of the documentation and of the root."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("tools/deploy/*.md")])
