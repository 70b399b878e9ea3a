"""The three tables of Nexmark: insert-only, with the columns of the public definition.

They are declared so where the environment says `NEXMARK_APPEND_ONLY=1`, which is what `--append-only` sets.
"""

from __future__ import annotations

import os
import sys

import dbsp

SWITCH = "NEXMARK_APPEND_ONLY"
APPEND_ONLY = os.environ.get(SWITCH) == "1"

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

person = dbsp.table("person", PERSON, append_only=APPEND_ONLY)
auction = dbsp.table("auction", AUCTION, append_only=APPEND_ONLY)
bid = dbsp.table("bid", BID, append_only=APPEND_ONLY)


def declared(append_only: bool, benchmark: str) -> None:
    """Go on with the tables declared so: where they are not, the benchmark is begun again, as they are made on import."""
    if append_only != APPEND_ONLY:
        again = os.environ | {SWITCH: "1" if append_only else "0"}
        os.execve(sys.executable, [sys.executable, "-m", benchmark, *sys.argv[1:]], again)
