"""What KIP-441 asks of any assignment, and the tests that hold ours to it.

| property | here | test |
| --- | --- | --- |
| 1 active tasks go to the most caught up | a new owner takes over when it lacks little | `tests/coordinator/test_machine_warmup.py::test_a_lag_that_is_not_accepted_means_another_round` |
| 1 | and what it lacks is copied first | `tests/sim/plants.py::take_over_early` |
| 2 at least so many standbys of each task | each folder of `standbys` holds every version before it is told | `tests/storage/test_standby.py` |
| 2 | a lost owner goes on from one | `tests/coordinator/test_standbys.py::test_a_lost_database_is_made_again_after_every_kind_of_rescale` |
| 3 warm-ups beside them, so many at once | `max_warmup_replicas` owners copy at a time | `tests/layout/test_kip_441.py::test_no_more_owners_warm_up_at_once_than_may` |
| 5 convergence: what is balanced stays | the same count again changes nothing | `tests/layout/test_layout.py::test_going_on_to_the_same_count_changes_nothing` |
| 6 stability | same input, same layout | `tests/layout/test_layout.py::test_same_input_same_layout_and_no_change_moves_nothing` |
| 6 | no more moves than must | `tests/layout/test_layout.py::test_nothing_moves_that_need_not` |
| balance: counts differ by one at most | shards of workers | `tests/layout/test_layout.py::test_balance_within_one_shard` |
| probing until all is balanced | rounds, each ends with a decision | `tests/coordinator/test_machine_warmup.py::test_rounds_follow_checkpoints_until_little_is_missing` |

4, tasks without state, and subtopologies do not exist here: a worker runs the whole circuit.
"""

# ruff: noqa: E501 - the lines of a table

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dbsp.errors import UnavailableError
from dbsp.runtime.copying import Copier, WarmRound
from dbsp.runtime.runtime import WarmProgress
from dbsp.trace.redistribute import WarmReport

ROOT = Path(__file__).parents[2]


def copied(workers: int, at_once: int | None, pieces: int = 3) -> list[tuple[int, ...]]:
    """Which workers copied together; each needs some pieces."""
    left, together = dict.fromkeys(range(workers), pieces), list[tuple[int, ...]]()

    def piece(some: tuple[int, ...]) -> dict[int, str | None]:
        together.append(some)
        for worker in some:
            left[worker] -= 1
        return {worker: None if left[worker] else f"copied {worker}" for worker in some}

    found = Copier().start(tuple(range(workers)), piece, at_once).result(60)
    assert found == {worker: f"copied {worker}" for worker in range(workers)}
    return together


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_no_more_owners_warm_up_at_once_than_may(at_once: int) -> None:
    together = copied(5, at_once)
    assert max(map(len, together)) == min(at_once, 5)
    assert {worker for some in copied(5, None) for worker in some} == set(range(5))


def test_a_round_that_is_ended_copies_no_further_piece() -> None:
    copier, seen = Copier(), list[tuple[int, ...]]()

    def piece(some: tuple[int, ...]) -> dict[int, str | None]:
        seen.append(some)
        copier._copy.ended.set()  # type: ignore[union-attr]
        return dict.fromkeys(some)

    with pytest.raises(UnavailableError, match="the copying was stopped"):
        copier.start((0, 1), piece, 1).result(60)
    assert seen == [(0,)]


def test_the_table_names_what_exists() -> None:
    assert __doc__ is not None
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", __doc__)
    assert len(named) >= 10
    for file, name in named:
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"


def test_a_rounds_progress_is_the_sum_of_what_its_owners_said_last() -> None:
    said: list[WarmProgress] = []
    sums = WarmRound(said.append)
    assert sums.take({1: WarmReport(copied_bytes=4, missing_bytes=6, slices_bytes=10)}) == {1: None}
    rest = WarmReport(copied_bytes=6, missing_bytes=0, slices_bytes=10)
    done = WarmProgress(copied_bytes=10, missing_bytes=0, slices_bytes=10)
    assert sums.take({1: rest, 2: replace(rest, missing_bytes=1)}) == {1: done, 2: None}
    assert [(each.copied_bytes, each.missing_bytes, each.slices_bytes) for each in said] == [(4, 6, 10), (16, 1, 20)]
