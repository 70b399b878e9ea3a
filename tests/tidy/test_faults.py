"""`docs/faults.md` names tests that exist, and has a row for every fault that a pipeline must survive."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "faults.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`(?: \((long)\))?")
MUST = {3, 4, 5, 6, 7, 8, 11, 13, 14, 15, 28, 29, 30}


def test_every_named_test_exists() -> None:
    found = NAMED.findall(TABLE)
    assert len(found) > 60
    for file, name, long in found:
        path = ROOT / file
        assert path.is_file(), file
        if not name:
            continue
        text = path.read_text()
        place = re.search(rf"^(?:    )?def {name}\(", text, re.MULTILINE)
        assert place is not None, f"{file}::{name}"
        if long:
            assert "mark.soak" in text[: place.start()], f"{file}::{name} is not among the long runs"


def test_every_row_has_a_test() -> None:
    rows = {int(line.split("|")[1]): line for line in TABLE.splitlines() if re.match(r"\| \d+ \|", line)}
    assert set(rows) >= MUST
    assert all(NAMED.search(line) for line in rows.values())


def test_a_name_that_is_wrong_is_noticed() -> None:
    assert NAMED.findall("`tests/sim/test_x.py::test_y` (long)") == [("tests/sim/test_x.py", "test_y", "long")]
