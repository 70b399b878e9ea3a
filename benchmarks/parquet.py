"""Nexmark from Parquet to Parquet, exactly once, checkpoints on: ours on Spark beside Structured Streaming, Flink SQL, DuckDB.

`python -m benchmarks.parquet [--events 1000000] [--step 100000] [--queries q3 best q17 q20] [--workers 2] [--peers
structured_streaming flink stateless] [--checkpoint-s 2] [--keys [auction person]]`. All read a Parquet file per table and
batch, into tables that are only appended to, keep their state durable, and write the changed rows as Parquet files; all with
parallelism two (Spark on `local[2]` with two shuffle partitions, Flink with two slots), ours first, in sessions of their own.
Events a second by the clock, without start-up and without the first batch. Afterwards every output is folded to the last
answer and compared with DuckDB's. Events per processor second, of all processes together, stand beside: they say more where
the machine is busy (Structured Streaming's are from its second batch's output on).

Ours is the coordinator's service as a user runs it, without its HTTP interface: it finds the files, logs every step before it
runs, cuts the next one meanwhile, and takes a checkpoint beside the steps every `--checkpoint-s` seconds; two batches lie ready
at a time, and the clock stops when the last one has a checkpoint. Structured Streaming commits its state store (RocksDB) after
every batch. It can say q3 and q20 (joins of streams, whose state is never dropped), q17, and the first half of q4 (`best`:
highest bid in time per auction); it refuses q4, q15 and q16, and q9, q18 and q19 have no equal there.

Flink SQL (`python -m benchmarks.peers.install flink`) runs in streaming mode with RocksDB and can say them all; how stands in
`benchmarks/peers/flink_parquet_job.py`. It finds all files at once and knows no batches; its output is seen at its checkpoints,
every `--checkpoint-s` seconds, ours after every step. `--keys` tells
ours alone that tables have a primary key, which it checks. What a job over the first batch takes in the same JVM is taken off.

`stateless` is no rival but a yardstick: DuckDB, in one process, asks each query of each batch alone and writes the answer as
Parquet. It knows no earlier rows, keeps nothing, logs nothing, syncs nothing and takes back no old rows. Where ten times a peer
would be more than that, reading, grouping and writing the rows at all is most of what stands in the way.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

import dbsp
from benchmarks import report
from benchmarks.fed import FedPipeline, batch_name
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.queries import QUERIES, bids_in_time
from benchmarks.nexmark.tables import COLUMNS, KEYS, add_keys, declared
from benchmarks.peers import duck, flink_parquet, spark_sql

WANTED = {"structured_streaming": 10.0, "flink": 10.0}
"""The wanted speed of dbsp as a multiple of each peer's. DuckDB keeps no state, so it is measured but not in this list."""
BANDS = ((None, 10_000), (10_000, 1_000_000), (1_000_000, None))
Streams = dict[str, DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query in ours, DuckDB's and Spark's words; Flink's stand in `flink_parquet`.

    `keys` are the columns by which later rows of Spark's output replace earlier ones.
    """

    ours: Callable[[], dbsp.Stream]
    sql: str
    spark: Callable[[Streams], DataFrame] | None = None
    keys: tuple[str, ...] = ()


def _q3(of: Streams) -> DataFrame:
    local = of["person"].where(sql.col("state").isin("OR", "ID", "CA")).select("id", "name", "city", "state")
    sold = of["auction"].where("category = 10").select(sql.col("id").alias("auction"), "seller")
    return sold.join(local, sold["seller"] == local["id"]).select(
        "name", "city", "state", sql.col("auction").alias("id")
    )


def _best(of: Streams) -> DataFrame:
    auction = of["auction"].select("id", "category", sql.col("ts").alias("begins"), "expires")
    bid = of["bid"].select("auction", "price", "ts")
    joined = auction.join(bid, auction["id"] == bid["auction"]).where("ts between begins and expires")
    return joined.groupBy("id", "category").agg(sql.max("price").alias("final"))


def _q17(of: Streams) -> DataFrame:
    price = sql.col("price")
    low, middle, high = price < 10_000, (price >= 10_000) & (price < 1_000_000), price >= 1_000_000
    day = sql.date_format("ts", "yyyy-MM-dd").alias("day")
    counts = [sql.count(sql.when(band, 1)) for band in (low, middle, high)]
    found = (sql.count("*"), *counts, sql.min(price), sql.max(price), sql.sum(price))
    return of["bid"].groupBy("auction", day).agg(*found, sql.expr("sum(price) div count(*)"))


def _q20(of: Streams) -> DataFrame:
    auction = of["auction"].where("category = 10")
    renamed = auction.select(*(sql.col(name).alias(f"a_{name}") for name in COLUMNS["auction"]))
    rest = [f"a_{name}" for name in COLUMNS["auction"] if name != "id"]
    return of["bid"].join(renamed, sql.col("auction") == sql.col("a_id")).select(*COLUMNS["bid"], *rest)


ALL = {
    "q3": Query(ours=QUERIES["q3"].build, sql=QUERIES["q3"].sql, spark=_q3),
    "best": Query(
        ours=lambda: bids_in_time().group_by("id", "category").aggregate(final=dbsp.max("price")),
        sql="select id, category, max(price) from auction a join bid b on a.id = b.auction where b.ts between a.ts and"
        " a.expires group by id, category",
        spark=_best,
        keys=("id", "category"),
    ),
    "q17": Query(ours=QUERIES["q17"].build, sql=QUERIES["q17"].sql, spark=_q17, keys=("auction", "day")),
    "q20": Query(ours=QUERIES["q20"].build, sql=QUERIES["q20"].sql, spark=_q20),
    **{
        name: Query(ours=QUERIES[name].build, sql=QUERIES[name].sql)
        for name in ("q4", "q9", "q15", "q16", "q18", "q19")
    },
}


def write(steps: list[Tables], folder: Path) -> None:
    """A file per table and batch."""
    for name in COLUMNS:
        (folder / name).mkdir(parents=True)
        for number, step in enumerate(steps):
            pq.write_table(step[name], folder / name / batch_name(number), coerce_timestamps="us")


@dataclass(frozen=True, slots=True)
class Speed:
    """Events per second of the clock, and of the processors: of this process, the JVM and Spark's workers together."""

    per_s: float
    per_cpu_s: float

    @classmethod
    def since(cls, start: report.Moment, events: int) -> Speed:
        """Of so many events since then."""
        now = report.Moment.now()
        return cls(events / (now.at - start.at), events / (now.own_s - start.own_s))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the input is, and what both sides are given."""

    box: Path
    steps: list[Tables]
    workers: int
    checkpoint_s: int

    @property
    def events(self) -> int:
        """Events of all batches but the first."""
        return sum(table.num_rows for step in self.steps[1:] for table in step.values())

    def ours(self, name: str) -> Speed:
        """Ours; the answer is checked."""
        box = self.box / f"ours-{name}"
        circuit = dbsp.circuit(name, {"v": ALL[name].ours()}, materialize=False)
        pipeline = FedPipeline(box, circuit, self.workers, self.checkpoint_s, self.box / "in", len(self.steps))
        with pipeline:
            pipeline.first()
            started = report.Moment.now()
            pipeline.rest()
            speed = Speed.since(started, self.events)
        changes = pa.concat_tables([pq.read_table(file) for file in sorted(pipeline.out.glob("v/*.parquet"))])
        duck.check(f"ours, {name}", folded(changes, "weight", ("weight", "step")), self.expected(name))
        return speed

    def structured_streaming(self, name: str) -> Speed | str:
        """Structured Streaming, or why there is none; the answer is checked."""
        query = ALL[name]
        if query.spark is None:
            return "refused, or without an equal there"
        spark = spark_sql.session(self.workers)  # the same for all queries
        out = self.box / f"theirs-{name}-out"
        of = {}
        for table in COLUMNS:
            path = str(self.box / "in" / table)
            schema = spark.read.parquet(path).schema
            of[table] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
        writer = query.spark(of).writeStream.outputMode("update" if query.keys else "append")

        begun: list[report.Moment] = []

        def store(batch: DataFrame, number: int) -> None:
            if number == 1:
                begun.append(report.Moment.now())
            batch.write.mode("overwrite").parquet(str(out / f"batch-{number:05d}"))

        options = {"checkpointLocation": str(self.box / f"theirs-{name}.checkpoint")}
        running = writer.foreachBatch(store).options(**options).trigger(availableNow=True).start()
        running.awaitTermination()
        ended = report.Moment.now()
        progress: list[Any] = [each for each in running.recentProgress if each["numInputRows"]]
        parts = []
        for number, folder in enumerate(sorted(out.glob("batch-*"))):
            rows = pq.read_table(folder)
            parts.append(rows.append_column("batch", pa.array([number] * rows.num_rows, pa.int64())))
        last = "select * exclude (batch) from parts"
        if query.keys:
            last += f" qualify row_number() over (partition by {', '.join(query.keys)} order by batch desc) = 1"
        _, found = duck.asked([{"parts": pa.concat_tables(parts)}], last, 1)
        duck.check(f"Structured Streaming, {name}", plain(found), self.expected(name))
        seconds = sum(each["durationMs"]["triggerExecution"] for each in progress[1:]) / 1000
        return Speed(self.events / seconds, self.events / (ended.own_s - begun[0].own_s))

    def flink(self, name: str) -> Speed | str:
        """Flink SQL, or why there is none; the answer is checked but for what the query leaves open."""
        box = self.box / f"flink-{name}"
        box.mkdir()
        ran = flink_parquet.run(name, self.box / "in", box, self.workers, self.checkpoint_s)
        if isinstance(ran, str):
            return ran
        if min(ran.seconds, ran.cpu_seconds) <= 0:
            return "too few events: all took no longer than the start that is taken off"
        text, rows, expected = flink_parquet.TEXTS[name], ran.answer, self.expected(name)
        if text.changes:
            rows = folded(rows, flink_parquet.WEIGHT, ("op",))
        kept = [at for at, column in enumerate(rows.column_names) if column not in text.free]
        duck.check(f"Flink SQL, {name}", plain(rows.select(kept)), expected.select(kept))
        return Speed(self.events / ran.seconds, self.events / ran.cpu_seconds)

    def stateless(self, name: str) -> Speed:
        """DuckDB's answers to the batches one by one, as if each were all there is; each is checked."""
        box = self.box / f"stateless-{name}"
        box.mkdir()
        with closing(duck.connect(self.workers)) as connection:

            def ask(number: int) -> None:
                for table in COLUMNS:
                    file = self.box / "in" / table / batch_name(number)
                    connection.execute(f"create or replace view {table} as select * from '{file}'")
                connection.execute(f"copy ({ALL[name].sql}) to '{box / batch_name(number)}' (format parquet)")

            ask(0)
            started = report.Moment.now()
            for number in range(1, len(self.steps)):
                ask(number)
            speed = Speed.since(started, self.events)
        for number, step in enumerate(self.steps):
            again = plain(duck.recomputed([step], ALL[name].sql, 1)[1])
            duck.check(f"DuckDB, {name}, batch {number}", plain(pq.read_table(box / batch_name(number))), again)
        return speed

    def expected(self, name: str) -> pa.Table:
        """DuckDB's answer."""
        return plain(duck.recomputed([_whole(self.steps)], ALL[name].sql, 1)[1])


def folded(changes: pa.Table, weight: str, but: tuple[str, ...]) -> pa.Table:
    """The rows that are left when all changes are added up; `but` are columns that are not theirs."""
    names = ", ".join(f'"{column}"' for column in changes.column_names if column not in but)
    again = f"select {names}, sum({weight}) from changes group by all having sum({weight}) <> 0"
    _, rows = duck.asked([{"changes": changes}], again, 1)
    return rows.select(range(rows.num_columns - 1))


def _whole(steps: list[Tables]) -> Tables:
    return {table: pa.concat_tables([step[table] for step in steps]) for table in COLUMNS}


def plain(rows: pa.Table) -> pa.Table:
    """Times without zones: Spark's are of UTC."""
    types = [pa.timestamp("us") if pa.types.is_timestamp(type_) else type_ for type_ in rows.schema.types]
    return rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True))))


PEERS = {"structured_streaming": Bench.structured_streaming, "flink": Bench.flink, "stateless": Bench.stateless}


@dataclass(frozen=True, slots=True)
class Measured:
    """What is kept, and what it should be."""

    figures: dict[str, object]
    targets: dict[str, report.Target]

    def ours(self, name: str, speed: Speed) -> None:
        """Keep and print ours."""
        self._add(name, "ours", speed, "")

    def peer(self, name: str, peer: str, ours: Speed, theirs: Speed | str) -> None:
        """Keep and print a peer's, and ours by it."""
        if isinstance(theirs, str):
            report.skipped("parquet", f"{name} on {peer}", theirs)
            return
        self._add(name, peer, theirs, f"{peer}_")
        for kind, ratio in (("s", ours.per_s / theirs.per_s), ("cpu_s", ours.per_cpu_s / theirs.per_cpu_s)):
            key = f"{name}_ratio_to_{peer}_per_{kind}"
            self.figures[key] = ratio
            if peer in WANTED:
                self.targets[key] = report.at_least(WANTED[peer])

    def _add(self, name: str, side: str, speed: Speed, prefix: str) -> None:
        self.figures[f"{name}_{prefix}events_per_s"] = round(speed.per_s)
        self.figures[f"{name}_{prefix}events_per_cpu_s"] = round(speed.per_cpu_s)
        per_s, per_cpu_s = f"{speed.per_s:>12,.0f} events a second", f"{speed.per_cpu_s:>12,.0f} a processor second"
        print(f"{name:>5}  {side:<22} {per_s} {per_cpu_s}", flush=True)


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--queries", nargs="+", choices=list(ALL), default=["q3", "best", "q17", "q20"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--checkpoint-s", type=int, default=2, help="how often ours and Flink take a checkpoint")
    add_keys(parser)
    arguments = parser.parse_args()
    declared(True, "benchmarks.parquet", arguments.keys)  # as Structured Streaming's streams are
    measured = Measured({"events": arguments.events, "step": arguments.step, "keys": list(KEYS)}, {})
    box = Path(tempfile.mkdtemp(prefix="parquet-"))
    try:
        steps = list(Generator().batches(arguments.events, arguments.step))
        write(steps, box / "in")
        bench = Bench(box, steps, arguments.workers, arguments.checkpoint_s)
        speeds = {}
        for name in arguments.queries:
            speeds[name] = bench.ours(name)
            measured.ours(name, speeds[name])
        for peer in arguments.peers:  # after all of ours: Structured Streaming's JVM stays
            for name, mine in speeds.items():
                measured.peer(name, peer, mine, PEERS[peer](bench, name))
    finally:
        shutil.rmtree(box, ignore_errors=True)
    report.keep("parquet", measured.figures, measured.targets)


if __name__ == "__main__":
    main()
