"""Nexmark's events, whole batches at a time: the same events for the same seed, whatever the ranges they are asked for in.

Of every 50 events the first is a person, the next 3 are auctions, the other 46 bids. Half the bids go to a hot auction, three
quarters of bids and auctions come from a hot person; the others are spread over the newest hundred auctions and thousand
persons. Prices are spread evenly over their logarithm, from 100 to 100 million. Event times are `spacing_us` apart: 10,000 for
a run that spans days (as Feldera's generator), 0.1 is the official run's (100 M events in 10 s), for which 1 is the nearest.

Made in blocks of 100,000 events, each from its own random stream, so blocks can be made in any order.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.nexmark.tables import COLUMNS

BLOCK = 100_000
PER_EPOCH, AUCTIONS = 50, 3
BIDS = PER_EPOCH - 1 - AUCTIONS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_AUCTION, HOT_PERSON, NEW_PERSONS, AHEAD = 100, 100, 1000, 10
CHANNELS = 10_000
START = dt.datetime(2015, 7, 15)
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
POOL = 4096

Integers = NDArray[np.int64]
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Pools:
    """Texts that rows take theirs from."""

    short: pa.Array
    long: pa.Array
    emails: pa.Array
    cards: pa.Array
    names: pa.Array
    channels: pa.Array
    urls: pa.Array


def _words(rng: np.random.Generator, count: int, low: int, high: int) -> list[str]:
    """Texts of random letters of random length."""
    lengths = rng.integers(low, high + 1, count)
    letters = rng.integers(97, 123, int(lengths.sum()), dtype=np.uint8).tobytes().decode()
    ends = np.cumsum(lengths)
    return [letters[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def pools(seed: int) -> Pools:
    """The texts of a seed."""
    rng = np.random.default_rng([seed, 1 << 40])
    paths = [f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1" for a, b, c in zip(
        *(_words(rng, CHANNELS + len(HOT_CHANNELS), 3, 6) for _ in range(3)), strict=True)]  # fmt: skip
    named = rng.random(CHANNELS) < 0.9
    urls = [
        f"{path}&channel_id={number}" if has else path
        for number, (path, has) in enumerate(zip(paths[:CHANNELS], named.tolist(), strict=True))
    ]
    digits = rng.integers(0, 10_000, (POOL, 4)).tolist()
    return Pools(
        short=pa.array(_words(rng, POOL, 10, 30)),
        long=pa.array(_words(rng, POOL, 60, 140)),
        emails=pa.array(
            [f"{a}@{b}.com" for a, b in zip(_words(rng, POOL, 5, 9), _words(rng, POOL, 4, 7), strict=True)]
        ),
        cards=pa.array([" ".join(f"{part:04d}" for part in parts) for parts in digits]),
        names=pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]),
        channels=pa.array([f"channel-{number}" for number in range(CHANNELS)] + HOT_CHANNELS),
        urls=pa.array(urls + paths[CHANNELS:]),
    )


@dataclass(frozen=True)
class Generator:
    """The events of one seed and spacing."""

    seed: int = 42
    spacing_us: int = 10_000

    def batches(self, events: int, step: int) -> Iterator[Tables]:
        """The first `events` events, `step` at a time; a step divides a block, or is a number of blocks."""
        if step % PER_EPOCH or (BLOCK % step and step % BLOCK):
            raise ValueError(f"a step is a part or a multiple of a block: step={step} block={BLOCK}")
        texts = pools(self.seed)
        for first in range(0, events, max(step, BLOCK)):
            last = min(first + max(step, BLOCK), events)
            blocks = [self.block(number, texts) for number in range(first // BLOCK, -(-last // BLOCK))]
            made = {name: pa.concat_tables([block[name] for block in blocks]).combine_chunks() for name in COLUMNS}
            for at in range(0, last - first, step):
                yield {name: _of_events(made[name], name, at, min(at + step, last - first)) for name in COLUMNS}

    def block(self, number: int, texts: Pools) -> Tables:
        """100,000 events."""
        rng = np.random.Generator(np.random.SFC64([self.seed, number]))
        first = number * BLOCK
        epochs = first // PER_EPOCH + np.arange(BLOCK // PER_EPOCH)
        return {
            "person": self._persons(rng, epochs, texts),
            "auction": self._auctions(rng, epochs, texts),
            "bid": self._bids(rng, epochs, texts),
        }

    def _at(self, events: Integers) -> Integers:
        start = int((START - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
        return start + events * self.spacing_us

    def _persons(self, rng: np.random.Generator, epochs: Integers, texts: Pools) -> pa.Table:
        n = len(epochs)
        return _table(
            "person",
            id=FIRST_ID + epochs,
            name=_pick(rng, texts.names, n),
            email=_pick(rng, texts.emails, n),
            card=_pick(rng, texts.cards, n),
            city=_pick(rng, pa.array(CITIES), n),
            state=_pick(rng, pa.array(STATES), n),
            ts=self._at(epochs * PER_EPOCH),
            extra=_pick(rng, texts.long, n),
        )

    def _auctions(self, rng: np.random.Generator, epochs: Integers, texts: Pools) -> pa.Table:
        ids = (epochs[:, None] * AUCTIONS + np.arange(AUCTIONS)).reshape(-1)
        events = (epochs[:, None] * PER_EPOCH + 1 + np.arange(AUCTIONS)).reshape(-1)
        n, at = len(ids), self._at(events)
        initial = _prices(rng, n)
        lasting = 2 * self.spacing_us * 100 * PER_EPOCH // AUCTIONS
        return _table(
            "auction",
            id=FIRST_ID + ids,
            item=_pick(rng, texts.short, n),
            description=_pick(rng, texts.long, n),
            initial=initial,
            reserve=initial + _prices(rng, n),
            ts=at,
            expires=at + 1000 + (rng.random(n) * lasting).astype(np.int64),
            seller=_person(rng, np.repeat(epochs, AUCTIONS), hot_share=0.75, hot_offset=0),
            category=FIRST_CATEGORY + rng.integers(0, CATEGORIES, n),
            extra=_pick(rng, texts.long, n),
        )

    def _bids(self, rng: np.random.Generator, epochs: Integers, texts: Pools) -> pa.Table:
        events = (epochs[:, None] * PER_EPOCH + 1 + AUCTIONS + np.arange(BIDS)).reshape(-1)
        epoch_of = np.repeat(epochs, BIDS)
        n, last = len(events), epoch_of * AUCTIONS + AUCTIONS - 1
        oldest = np.maximum(last - HOT_AUCTION, 0)
        other = oldest + (rng.random(n) * (last - oldest + 1 + AHEAD)).astype(np.int64)
        hot = rng.random(n) < 0.5
        channel = np.where(
            rng.random(n) < 0.5, CHANNELS + rng.integers(0, len(HOT_CHANNELS), n), rng.integers(0, CHANNELS, n)
        )
        return _table(
            "bid",
            auction=FIRST_ID + np.where(hot, last // HOT_AUCTION * HOT_AUCTION, other),
            bidder=_person(rng, epoch_of, hot_share=0.75, hot_offset=1),
            price=_prices(rng, n),
            channel=texts.channels.take(pa.array(channel)),
            url=texts.urls.take(pa.array(channel)),
            ts=self._at(events),
            extra=_pick(rng, texts.short, n),
        )


def _of_events(table: pa.Table, name: str, first: int, last: int) -> pa.Table:
    """The rows of a range of events of whole epochs."""
    per_epoch = {"person": 1, "auction": AUCTIONS, "bid": BIDS}[name]
    return table.slice(first // PER_EPOCH * per_epoch, (last - first) // PER_EPOCH * per_epoch)


def _person(rng: np.random.Generator, last: Integers, hot_share: float, hot_offset: int) -> Integers:
    """The hot person, or one of the newest thousand (or of ten who are not there yet)."""
    oldest = np.maximum(last - NEW_PERSONS, 0)
    other = oldest + (rng.random(len(last)) * (last - oldest + 1 + AHEAD)).astype(np.int64)
    hot = rng.random(len(last)) < hot_share
    return np.asarray(FIRST_ID + np.where(hot, last // HOT_PERSON * HOT_PERSON + hot_offset, other))


def _prices(rng: np.random.Generator, n: int) -> Integers:
    return np.rint(100.0 * np.exp(rng.random(n) * math.log(1e6))).astype(np.int64)


def _pick(rng: np.random.Generator, texts: pa.Array, n: int) -> pa.Array:
    return texts.take(pa.array(rng.integers(0, len(texts), n)))


def _table(name: str, /, **columns: Any) -> pa.Table:
    types = COLUMNS[name]
    arrays = [
        columns[column] if isinstance(columns[column], pa.Array) else pa.array(columns[column]).cast(type_)
        for column, type_ in types.items()
    ]
    return pa.table(arrays, schema=pa.schema(list(types.items())))
