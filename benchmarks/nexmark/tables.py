"""The three tables of Nexmark: insert-only, with the columns of the public definition."""

from __future__ import annotations

import dbsp

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

person = dbsp.table("person", PERSON)
auction = dbsp.table("auction", AUCTION)
bid = dbsp.table("bid", BID)
