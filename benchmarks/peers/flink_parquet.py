"""Nexmark in Flink SQL, from Parquet to Parquet: the texts of the queries, and how `flink_parquet_job.py` is asked to run one.

Times are columns, not event time. `Text.free` are columns of an answer that the query leaves open: Flink's own q19 does not say
which of two equal bids comes first.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.queries import BANDS_SQL
from benchmarks.nexmark.tables import COLUMNS
from benchmarks.peers import install

TIMEOUT_S = 1800
WEIGHT = "case when op in ('INSERT', 'UPDATE_AFTER') then 1 else -1 end"
LAST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A query; whether rows of its answer change; which columns are left open."""

    sql: str
    changes: bool = True
    free: tuple[str, ...] = ()


def _bands(*columns: str) -> str:
    """Counts, and distinct counts of columns, in total and per band of prices."""
    found = ["count(*) as total"]
    found += [f"count(*) filter (where {inside}) as {band}" for band, inside in BANDS_SQL.items()]
    for column in columns:
        found.append(f"count(distinct {column}) as {column}s")
        for band, inside in BANDS_SQL.items():
            found.append(f"count(distinct {column}) filter (where {inside}) as {column}s_{band}")
    return ", ".join(found)


def _columns(table: str, alias: str, *, but: tuple[str, ...] = (), prefix: str = "") -> str:
    """Columns with other names in front; in backticks, as `initial` is a word of SQL's."""
    return ", ".join(f"{alias}.`{name}` as `{prefix}{name}`" for name in COLUMNS[table] if name not in but)


DAY = "date_format(ts, 'yyyy-MM-dd')"
BID = ", ".join(COLUMNS["bid"])
IN_TIME = "auction a join bid b on a.id = b.auction where b.ts between a.ts and a.expires"
BEST = f"select a.id, a.category, max(b.price) as final from {IN_TIME} group by a.id, a.category"
TEXTS = {
    "q3": Text(
        sql="select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id"
        " where a.category = 10 and p.state in ('OR', 'ID', 'CA')",
        changes=False,
    ),
    "best": Text(sql=BEST),
    "q4": Text(sql=f"select category, sum(final) / count(*) as average from ({BEST}) group by category"),
    "q9": Text(
        sql=f"select {_columns('auction', 'found')}, bidder, price, channel, url, ts_bid, extra_bid from (select"
        f" {_columns('auction', 'a')}, b.bidder, b.price, b.channel, b.url, b.ts as ts_bid, b.extra as extra_bid,"
        f" row_number() over (partition by a.id order by b.price desc, b.ts) as place from {IN_TIME}) as found where place = 1"
    ),
    "q15": Text(sql=f"select {DAY} as `day`, {_bands('bidder', 'auction')} from bid group by {DAY}"),
    "q16": Text(
        sql=f"select channel, {DAY} as `day`, max(date_format(ts, 'HH:mm')) as `minute`, {_bands('bidder', 'auction')}"
        f" from bid group by channel, {DAY}"
    ),
    "q17": Text(
        sql=f"select auction, {DAY} as `day`, {_bands()}, min(price) as lowest, max(price) as highest,"
        f" sum(price) as spent, sum(price) / count(*) as average from bid group by auction, {DAY}"
    ),
    "q18": Text(
        sql=f"select {BID} from (select *, row_number() over (partition by bidder, auction order by ts desc) as place"
        " from bid) where place = 1"
    ),
    "q19": Text(
        sql=f"select {BID}, place from (select *, row_number() over (partition by auction order by price desc) as place"
        " from bid) where place <= 10",
        free=("bidder", "channel", "url", "ts", "extra"),
    ),
    "q20": Text(
        sql=f"select {_columns('bid', 'b')}, {_columns('auction', 'a', but=('id',), prefix='a_')} from bid b"
        " join auction a on b.auction = a.id where a.category = 10",
        changes=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Ran:
    """Seconds by the clock, and of the processors, without start-up and the first files; the answer."""

    seconds: float
    cpu_seconds: float
    answer: pa.Table


def run(name: str, folder: Path, box: Path, workers: int, checkpoint_s: int) -> Ran | str:
    """Run a query over the files of `folder`, which has a folder for each table; or why it cannot be."""
    program = install.with_jars("flink")
    if isinstance(program, str):
        return program
    first, out = box / "first", box / "out"
    for table in COLUMNS:
        (first / table).mkdir(parents=True)
        (first / table / "00000.parquet").hardlink_to(folder / table / "00000.parquet")
    request = {
        "query": TEXTS[name].sql, "changes": TEXTS[name].changes, "tables": list(COLUMNS), "parallelism": workers,
        "checkpoint_s": checkpoint_s, "first": str(first), "whole": str(folder), "box": str(box), "out": str(out),
    }  # fmt: skip
    (box / "request.json").write_text(json.dumps(request))
    job = str(Path(__file__).parent / "flink_parquet_job.py")
    try:
        done = subprocess.run(
            [program[0], job, str(box / "request.json")], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT_S} s"
    if done.returncode:
        return f"failed: {' '.join(done.stderr.strip().splitlines()[-LAST_LINES:])[-500:]}"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Ran(found["seconds"], found["cpu_seconds"], _written(out))


def _written(out: Path) -> pa.Table:
    """The files that the job has made visible; a hidden one is unfinished."""
    files = [file for file in sorted(out.rglob("*")) if file.is_file() and not file.name.startswith((".", "_"))]
    return pa.concat_tables([pq.read_table(file) for file in files])
