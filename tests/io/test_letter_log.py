"""The letter log against a model: each step's letters once, however often it runs, within the limits, after any reopening."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import DataError
from dbsp.io import letter_log
from dbsp.io.examine import examine_letters
from dbsp.io.letter_log import A_DAY_US, LetterLimits, LetterLog
from dbsp.logs import DeadLetter
from tests.pace import examples

STEPS = 6
ROWS_MAX = 8
LETTERS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 1, 2])), max_size=5)
KEEP = st.tuples(st.just("keep"), st.integers(0, STEPS - 1), LETTERS)
REPLAY = st.tuples(st.just("replay"), st.integers(1, STEPS), LETTERS)
ACTIONS = st.lists(
    st.one_of(KEEP, REPLAY, st.tuples(st.just("drop"), st.integers(0, STEPS), st.none()), st.just(("reopen", 0, None))),
    max_size=12,
)


def letters(step: int, found: list[tuple[int, int]]) -> list[DeadLetter]:
    return [
        DeadLetter(step=step, origin="t", partition=0, offset=offset, reason="bad", payload="{}", weight=weight)
        for offset, weight in found
    ]


def content(log: LetterLog) -> dict[int, dict[int, int]]:
    return {
        step: dict(zip(table["offset"].to_pylist(), table["weight"].to_pylist(), strict=True))
        for step, table in log.read()
    }


def check(folder: Path, actions: list[tuple[str, int, list[tuple[int, int]] | None]]) -> None:
    """Compare the log with a model of it, which keeps the newest steps of at most `ROWS_MAX` letters, and their notes."""
    log, model, kept_from = LetterLog(folder, LetterLimits(rows_max=ROWS_MAX)), dict[int, dict[int, int]](), 0
    notes: dict[tuple[int, int], int] = {}
    for kind, step, found in actions:
        if kind in ("keep", "replay"):
            assert found is not None
            taken = [(offset, abs(weight)) for offset, weight in found if offset < step] if kind == "replay" else []
            added = [] if kind == "replay" else found
            fresh = {at: step for at in taken if at[0] in model}
            notes = {at: number for at, number in notes.items() if step not in (at[0], number)} | fresh
            log.keep(step, 0, letters(step, added), 0, taken)
            sums: Counter[int] = Counter()
            for offset, weight in added:
                sums[offset] += weight
            model[step] = {offset: weight for offset, weight in sums.items() if weight}
            model = {number: each for number, each in sorted(model.items()) if each}
            while sum(map(len, model.values())) > ROWS_MAX:
                kept_from = max(kept_from, min(model) + 1)
                del model[min(model)]
        elif kind == "drop":
            log.drop_from(step)
            model = {number: each for number, each in model.items() if number < step}
            notes = {at: number for at, number in notes.items() if number < step}
        else:
            log.close()
            log = LetterLog(folder, LetterLimits(rows_max=ROWS_MAX))
        assert content(log) == model
        notes = {at: number for at, number in notes.items() if at[0] in model}
        places = [(number, each) for number in range(STEPS + 1) for each in range(3)]
        assert log.replayed(places) == [notes.get(at) for at in places]
        assert log.kept_from == kept_from
        assert {number: each.rows for number, each in log.steps.items()} == {n: len(each) for n, each in model.items()}
    log.close()
    if (folder / "letters").exists():
        assert not examine_letters(folder).findings


@settings(max_examples=examples(64), deadline=None)
@given(ACTIONS)
def test_a_step_that_runs_again_stores_its_letters_once(
    actions: list[tuple[str, int, list[tuple[int, int]] | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), actions)


def test_a_log_that_does_not_replace_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the letters of the first run stay when the step runs again."""
    monkeypatch.setattr(letter_log, "_delete", lambda _txn, _env, _step: None)
    with pytest.raises((AssertionError, KeyError)):
        check(tmp_path, [("keep", 1, [(0, 1)]), ("keep", 1, []), ("reopen", 0, None)])


def test_a_log_that_forgets_notes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: notes are in memory alone, or stay when the step that replayed the letter is not logged any more."""
    note = [("keep", 1, [(0, 1)]), ("replay", 3, [(1, 1)])]
    check(tmp_path / "right", [*note, ("reopen", 0, None), ("drop", 3, None), ("reopen", 0, None)])
    with monkeypatch.context() as changed:
        changed.setattr(LetterLog, "drop_from", lambda _self, _step: None)
        with pytest.raises(AssertionError):
            check(tmp_path / "kept", [*note, ("drop", 3, None)])
    monkeypatch.setattr(letter_log, "replay_step", lambda _key, _value, _where: 0)
    with pytest.raises(AssertionError):
        check(tmp_path / "lost", [*note, ("reopen", 0, None)])


def test_limits_of_time_and_size(tmp_path: Path) -> None:
    """The oldest steps go, also in a step without letters; of one step that is too large the first letters stay."""
    log = LetterLog(tmp_path, LetterLimits(rows_max=3, days_max=2))
    log.keep(1, 0, letters(1, [(0, 1)]))
    log.keep(2, A_DAY_US, letters(2, [(0, 1)]))
    log.keep(3, int(2.5 * A_DAY_US), [])
    assert list(log.steps) == [2]
    log.keep(4, int(2.6 * A_DAY_US), letters(4, [(offset, 1) for offset in range(5)]), left_out=7)
    assert content(log) == {4: {0: 1, 1: 1, 2: 1}}
    assert (log.steps[4].left_out, log.kept_from) == (9, 3)
    log.keep(9, 9 * A_DAY_US, [])
    assert not log.steps
    log.close()


def test_no_file_without_letters_and_damage_is_named(tmp_path: Path) -> None:
    log = LetterLog(tmp_path)
    log.keep(1, 0, [])
    log.drop_from(0)
    assert not (tmp_path / "letters").exists()
    log.keep(2, 0, letters(2, [(7, 1)]))
    env = log._env
    assert env is not None

    def spoil(txn: object) -> None:
        cursor = txn.cursor(db=env.db("letters"))  # type: ignore[attr-defined]
        cursor.first()
        value = bytearray(cursor.value())
        value[-1] ^= 1
        cursor.put(cursor.key(), bytes(value))

    env.write(spoil)
    with pytest.raises(DataError, match=r"a record of dead letters is damaged.*step=2"):
        content(log)
    assert any("is damaged" in finding.what for finding in examine_letters(tmp_path).findings)
    log.close()
