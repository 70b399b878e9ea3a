"""Write the index of the design records, docs/design/README.md, from the tables at the records' heads.

The command `python tools/design_index.py` writes the page; `tests/tidy/test_design.py` compares the page with the
records.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "design"
FIELDS = ("status", "date", "decision", "alternatives", "consequences")
STATUS = re.compile(r"(proposed|accepted|superseded by \d{4})\b.*")
TEMPLATE = "0000-template.md"
HEAD = """# Design records

A record says what was decided, when, why, and what else was considered. A decision may be changed when a measurement shows a
better one: write a new record from the [template](0000-template.md), and set the old record's status. Numbers are not reused,
and some were never used. `python tools/design_index.py` writes this page from the heads of the records.

| record | status | date | decision |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A design record: its file, its title, and the table at its head."""

    file: str
    title: str
    head: dict[str, str]

    def wrong(self) -> Iterator[str]:
        """Yield an error for each field that the head lacks or has in a wrong form."""
        if not self.title.startswith(f"# {self.file[:4]}: "):
            yield f"{self.file}: the title must be `# {self.file[:4]}: ...`"
        for field in FIELDS:
            if not self.head.get(field):
                yield f"{self.file}: the head has no {field}"
        if not STATUS.fullmatch(self.head.get("status", "")):
            yield f"{self.file}: the status must be proposed, accepted, or superseded by NNNN"
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", self.head.get("date", "")):
            yield f"{self.file}: the date must be YYYY-MM-DD"


def design(file: str, text: str) -> Design:
    """Return the record that a file's text contains."""
    title, _, rest = text.partition("\n")
    table = rest.lstrip("\n").partition("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", table, re.MULTILINE)
    return Design(file=file, title=title, head=dict(rows))


def records() -> list[Design]:
    """Return all records, by number, without the template."""
    files = sorted(FOLDER.glob("[0-9]*.md"))
    return [design(path.name, path.read_text(encoding="utf-8")) for path in files if path.name != TEMPLATE]


def page() -> str:
    """Return the text of the index."""
    rows = (
        f"| [{each.title.removeprefix('# ')}]({each.file}) | {each.head.get('status', '')} | {each.head.get('date', '')} |"
        f" {each.head.get('decision', '')} |\n"
        for each in records()
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page(), encoding="utf-8")
    sys.stdout.write(f"written: {FOLDER / 'README.md'}\n")
