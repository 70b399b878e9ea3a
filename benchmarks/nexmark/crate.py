"""The queries that have a program for the Rust `dbsp` crate, each on the columns that it needs, and its answers compared.

Left out are the queries that the crate does not compute in full or that have no program here: q5 to q8, q10 to q14.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.nexmark.generator import Tables
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.tables import AUCTION, BID
from benchmarks.peers import crate, duck

Columns = dict[str, tuple[str, ...]]
PLAIN: Columns = {"bid": ("auction", "bidder", "price", "ts", "extra")}
VISITS: Columns = {"bid": ("auction", "bidder", "price", "channel", "url")}
STAMPED: Columns = {"bid": ("auction", "bidder", "price", "ts")}
NEEDED: dict[str, Columns] = {
    "q0": PLAIN,
    "q1": PLAIN,
    "q2": {"bid": ("auction", "price")},
    "q3": {"auction": ("id", "seller", "category"), "person": ("id", "name", "city", "state")},
    "q4": {"auction": ("id", "category", "ts", "expires"), "bid": ("auction", "price", "ts")},
    "q9": {"auction": tuple(AUCTION), "bid": tuple(BID)},
    "q15": STAMPED,
    "q16": {"bid": (*STAMPED["bid"], "channel")},
    "q17": {"bid": ("auction", "price", "ts")},
    "q18": {"bid": tuple(BID)},
    "q19": {"bid": tuple(BID)},
    "q20": {"auction": tuple(AUCTION), "bid": tuple(BID)},
    "q21": VISITS,
    "q22": VISITS,
}


def begun(name: str, steps: list[Tables], command: list[str], folder: Path) -> crate.Crate:
    """A process that can play these steps."""
    crate.write(
        {table: [step[table].select(list(columns)) for step in steps] for table, columns in NEEDED[name].items()},
        folder,
    )
    return crate.Crate(command, name, folder)


def compare(name: str, steps: list[Tables], whole: Tables, command: list[str], box: Path) -> None:
    """Stop where the crate's answer to all of these steps is not DuckDB's."""
    _, expected = duck.recomputed([whole], QUERIES[name].sql, 1)
    names = [str(at) for at in range(expected.num_columns)]
    with tempfile.TemporaryDirectory(dir=box) as place, begun(name, steps, command, Path(place)) as there:
        duck.check(f"{name} on the crate", there.answer(names), crate.comparable(expected.rename_columns(names)))
