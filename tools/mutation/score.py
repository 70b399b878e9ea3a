"""The mutation score: what became of each mutant, by folder, and whether the tests find less than they did.

A mutant that no test reaches counts as one that no test finds: deleting a test cannot raise the score.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FOUND = ("killed", "timed out")
"""Outcomes of mutants that the tests find."""
OUTCOMES = (*FOUND, "survived", "not reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of the trial of one mutant; `by` is the test that failed first."""

    key: str
    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    outcome: str
    by: str = ""

    @property
    def found(self) -> bool:
        """Return whether the tests find it."""
        return self.outcome in FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The outcomes of mutants of a sample of `wanted`, by the tests of so many files; fewer outcomes where a run was stopped."""

    seed: int
    wanted: int
    commit: str
    test_files: int
    outcomes: tuple[Outcome, ...]

    @property
    def share(self) -> float:
        """Return the share of the mutants that the tests find."""
        return sum(each.found for each in self.outcomes) / max(1, len(self.outcomes))

    def folders(self) -> dict[str, dict[str, int]]:
        """Return how often each outcome was seen, by folder."""
        counts: dict[str, dict[str, int]] = {}
        for each in sorted(self.outcomes, key=lambda each: each.file):
            counts.setdefault(folder(each.file), dict.fromkeys(OUTCOMES, 0))[each.outcome] += 1
        return counts

    def report(self) -> str:
        """Return a table by folder, and the mutants that the tests do not find."""
        lines = [f"{'folder':<28}" + "".join(f"{name:>12}" for name in OUTCOMES)]
        lines += [
            f"{name:<28}" + "".join(f"{counts[outcome]:>12}" for outcome in OUTCOMES)
            for name, counts in self.folders().items()
        ]
        lines += [
            f"{each.outcome}: {each.file}:{each.line} {each.function}: {each.before!r} -> {each.after!r}"
            for each in self.outcomes
            if not each.found
        ]
        lines.append(f"mutation score: {self.share:.3f} of {len(self.outcomes)} mutants (seed {self.seed})")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write the score and every outcome, with the names of tests but not their words, which have paths in them."""
        head = {"seed": self.seed, "wanted": self.wanted, "tried": len(self.outcomes), "commit": self.commit}
        head |= {"test_files": self.test_files, "score": round(self.share, 4), "folders": self.folders()}
        lines = ",\n".join(
            "  " + json.dumps(asdict(replace(each, by=each.by.partition(": ")[0]))) for each in self.outcomes
        )
        text = json.dumps(head, indent=1).removesuffix("\n}")
        path.write_text(f'{text},\n "outcomes": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def folder(file: str) -> str:
    """Return the folder by which mutants are counted: the first two names of a path, or one where a file stands there."""
    return "/".join(Path(file).parts[:-1][:2])


def read(path: Path) -> Score | None:
    """Return the recorded score; None where there is none."""
    if not path.exists():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    outcomes = tuple(Outcome(**each) for each in kept["outcomes"])
    head = {name: kept[name] for name in ("seed", "wanted", "commit", "test_files")}
    return Score(**head, outcomes=outcomes)


def fallen(before: Score, now: Score) -> list[str]:
    """Return why the tests find less than they did; nothing if they do not.

    Mutants of both samples are compared one by one. Mutants of edited lines were exchanged for others, so their share may fall
    by chance: by two standard errors. Of a record of a part of the sample, only the mutants that were found are compared.
    """
    was = {each.key: each for each in before.outcomes}
    both = [each for each in now.outcomes if each.key in was]
    lost = [each for each in both if was[each.key].found and not each.found]
    gained = [each for each in both if each.found and not was[each.key].found]
    whole = len(before.outcomes) == before.wanted
    wrong = []
    if len(lost) > (len(gained) if whole else 0):
        wrong += [f"no longer found: {each.file}:{each.line} {each.function} {each.after!r}" for each in lost]
    new = [each for each in now.outcomes if each.key not in was]
    if whole and wrong_share(before.share, new):
        found = sum(each.found for each in new)
        wrong.append(f"of {len(new)} mutants of edited lines the tests find {found}; before {before.share:.3f} of all")
    return wrong


def wrong_share(expected: float, new: Iterable[Outcome]) -> bool:
    """Return whether new mutants are found less often than chance explains."""
    found = [each.found for each in new]
    error = math.sqrt(expected * (1 - expected) * len(found))
    return sum(found) < expected * len(found) - 2 * error
