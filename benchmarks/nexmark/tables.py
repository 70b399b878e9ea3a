"""The three tables of Nexmark: insert-only, with the columns of the public definition.

They are declared so where the environment says `NEXMARK_APPEND_ONLY=1`, which is what `--append-only` sets. `--keys` sets
`NEXMARK_KEYS=auction,person`, or one of the two: these are declared with the primary key `id`, too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection

import dbsp

SWITCH = "NEXMARK_APPEND_ONLY"
KEYS_SWITCH = "NEXMARK_KEYS"
KEYED = ("auction", "person")
KEYS = tuple(name for name in KEYED if name in os.environ.get(KEYS_SWITCH, "").split(","))
APPEND_ONLY = bool(KEYS) or os.environ.get(SWITCH) == "1"

PERSON = {
    "id": dbsp.INT64,
    "name": dbsp.STRING,
    "email": dbsp.STRING,
    "card": dbsp.STRING,
    "city": dbsp.STRING,
    "state": dbsp.STRING,
    "ts": dbsp.TIMESTAMP,
    "extra": dbsp.STRING,
}
AUCTION = {
    "id": dbsp.INT64,
    "item": dbsp.STRING,
    "description": dbsp.STRING,
    "initial": dbsp.INT64,
    "reserve": dbsp.INT64,
    "ts": dbsp.TIMESTAMP,
    "expires": dbsp.TIMESTAMP,
    "seller": dbsp.INT64,
    "category": dbsp.INT64,
    "extra": dbsp.STRING,
}
BID = {
    "auction": dbsp.INT64,
    "bidder": dbsp.INT64,
    "price": dbsp.INT64,
    "channel": dbsp.STRING,
    "url": dbsp.STRING,
    "ts": dbsp.TIMESTAMP,
    "extra": dbsp.STRING,
}
COLUMNS = {"person": PERSON, "auction": AUCTION, "bid": BID}


def _table(name: str) -> dbsp.Stream:
    """A table as it is declared."""
    return dbsp.table(name, COLUMNS[name], primary_key="id" if name in KEYS else None, append_only=APPEND_ONLY)


person, auction, bid = _table("person"), _table("auction"), _table("bid")


def declared(append_only: bool, benchmark: str, keys: Collection[str] | None = None) -> None:
    """Go on with the tables declared so: where they are not, the benchmark is begun again, as they are made on import."""
    keys = () if keys is None else tuple(name for name in KEYED if name in (keys or KEYED))
    if (append_only or bool(keys), keys) != (APPEND_ONLY, KEYS):
        again = os.environ | {SWITCH: "1" if append_only or keys else "0", KEYS_SWITCH: ",".join(keys)}
        os.execve(sys.executable, [sys.executable, "-m", benchmark, *sys.argv[1:]], again)


def add_keys(parser: argparse.ArgumentParser) -> None:
    """The argument that declares keys; alone it means all."""
    says = "declare these tables append-only with their primary key, which is checked: a second row of a key is a dead letter"
    parser.add_argument("--keys", nargs="*", choices=KEYED, help=f"{says} (both if none is named)")
