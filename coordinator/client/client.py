"""`dbsp.Client` and `dbsp.AsyncClient`: talk to a running service from a Python program; the command line uses the same methods.

The client needs httpx and pyarrow alone. It loads no engine.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from dbsp.coordinator.client.bodies import Pushed, body_of, dicts_of, json_of, unlike
from dbsp.coordinator.client.connection import Connection
from dbsp.coordinator.client.file_parts import text_kind
from dbsp.coordinator.client.file_push import FileOptions, PushedFile, push_file
from dbsp.coordinator.http.kinds import ARROW, JSON, kind_of
from dbsp.errors import ConfigError, DbspError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

STEP_HEADER = "Dbsp-Step"
FOLLOW_WAIT_S = 60.0
"""Seconds that a request for changes waits for the next change."""
AGAIN_S = 0.5
"""Seconds between two requests of a follower whose service does not respond."""
LETTERS_A_PAGE = 1_000
LOOK_S = 0.5
"""Seconds between two reads of a rescale's progress."""

Strategy = Literal["cold", "warmup", "icadd", "redistribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedTogether:
    """The result of a transaction: the rows of each table, which are durable together and which one step takes together."""

    tables: tuple[Pushed, ...]
    processed: bool | None = None
    answer: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows of a query or of a view, as of the end of one step.

    Iterating gives dicts. Rows of a view have a column `weight`, the number of times that the row is there.
    """

    step: int
    table: pa.Table = field(repr=False)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts; of columns of one name, the later ones are called `name_1` and so on."""
        return iter(self.table.rename_columns(unlike(self.table.column_names)).to_pylist())

    def to_arrow(self) -> pa.Table:
        """Return the rows as a `pyarrow.Table`."""
        return self.table

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a Polars data frame. **Errors** `ConfigError` where Polars is not installed."""
        try:
            return import_module("polars").from_arrow(self.table)
        except ModuleNotFoundError:
            raise ConfigError("polars is not installed", "pip install polars") from None

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows to a library that reads Arrow's C stream interface (Polars, DuckDB, pandas)."""
        return self.table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The rows that one step changed in a view; a negative weight means that a row was removed.

    `next` is the position after this step. A reader stores `next` in one transaction with the results of the rows, and starts
    again with `first=next`. So it uses each change exactly once. With `anew` the view was edited, or made again, in this step:
    these rows are the whole view. Values are those of JSON: decimals, dates and times are texts (docs/values.md).
    """

    step: int
    rows: tuple[dict[str, Any], ...]
    weights: tuple[int, ...]
    next: int
    anew: bool = False

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield each row with its weight."""
        return iter(zip(self.rows, self.weights, strict=True))


class Client:
    """A client of a running service; each method returns when the service has carried out the request.

    The service is that of the settings `pipeline`, or the one that answers at `url`. `token` and `ca` (a file of certificates in
    PEM) are taken from the settings where they are not given.
    **Errors** `UnavailableError` if the service does not run or falls silent; the service's own errors, with their hints.

    **Example** (`pipeline.toml` of examples/shop, started with `dbsp-coordinator`)

        client = dbsp.Client("pipeline.toml")
        client.push("sales", [{"id": 1, "amount": 5}], wait_s=10)
        client.query("SELECT * FROM totals").to_pandas()
        for change in client.changes("totals", follow=True):
            print(change.step, list(change))
    """

    def __init__(
        self,
        pipeline: str | Path | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        ca: str | None = None,
    ) -> None:
        """Keep the address of the service; send no request yet."""
        if pipeline is not None and url is not None:
            raise ConfigError("a client connects to one service", "give the pipeline's settings or its url, not both")
        self.connection = Connection(pipeline=Path(pipeline or "pipeline.toml"), url=url, token=token, ca=ca)

    def __repr__(self) -> str:
        """Return where the service is; a token is not shown."""
        return f"Client({self.connection.url or str(self.connection.pipeline)!r})"

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request of the HTTP interface (docs/operations.md), and return its response as JSON."""
        return self.connection.ask(method, path, **options)

    def _dict(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request whose response is an object."""
        found: dict[str, Any] = self.ask(method, path, **options)
        return found

    # --- rows in --------------------------------------------------------------------------------------------------

    def push(
        self,
        table: str,
        rows: Any,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        wait_s: float | None = None,
        content_type: str | None = None,
    ) -> Pushed:
        """Push rows to a table; they are durable when this returns.

        `rows` are dicts, an Arrow table or anything with `__arrow_c_stream__` (pandas, Polars, DuckDB), or the bytes of a text
        or a file: JSON, an Arrow IPC stream or file, Parquet; CSV with `content_type="text/csv"`. With `producer` and a growing
        `sequence` a repeated push adds nothing. With `wait_s` it also waits, at most so long, until a step has taken the rows.
        **Errors** `DataError` if all or too many rows are bad; `CapacityError` if too many rows wait.
        """
        body = body_of(rows)
        headers = _pushing(producer, sequence) | {"Content-Type": content_type or kind_of(body)}
        found = self.ask(
            "POST", f"/v1/tables/{table}/rows", content=body, headers=headers, params=_waiting(wait_s)
        )  # fmt: skip
        return _pushed(table, found, found)

    def push_file(
        self,
        table: str,
        file: str | Path | BinaryIO,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        wait_s: float | None = None,
        content_type: str | None = None,
        strict: bool = False,
    ) -> PushedFile:
        """Push a file of any size, packed or not: JSON, CSV, TSV, Arrow or Parquet; gzip, zstd, bz2, xz or lz4.

        A file of more than 32 MiB, unpacked, is pushed in parts that are durable one after the other, in bounded memory. They
        have the numbers `sequence`, `sequence` + 1, …, so a repeat with the same producer adds nothing twice. With `strict` no
        part is pushed after one with bad rows. CSV and TSV are known by the file's name, or by `content_type`.
        **Errors** those of `push`; they name the part, and what is durable.
        """
        refuse_half(producer, sequence)
        if isinstance(file, (str, Path)):
            content_type = content_type or text_kind(str(file))
            with Path(file).open("rb") as opened:
                return self.push_file(
                    table, opened, producer=producer, sequence=sequence, wait_s=wait_s, content_type=content_type,
                    strict=strict,
                )  # fmt: skip
        options = FileOptions(
            content_type=content_type, producer=producer, sequence=sequence, wait_s=wait_s, strict=strict
        )
        return push_file(self.push, table, file, options)

    def transaction(
        self,
        tables: Mapping[str, Any] | bytes,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        wait_s: float | None = None,
    ) -> PushedTogether:
        """Push rows to several tables, of which one step takes all or none; see `push`."""
        body = tables if isinstance(tables, bytes) else json_of({name: dicts_of(rows) for name, rows in tables.items()})
        headers = _pushing(producer, sequence) | {"Content-Type": JSON}
        found = self.ask("POST", "/v1/transactions", content=body, headers=headers, params=_waiting(wait_s))
        pushed = tuple(_pushed(each["table"], each, found) for each in found["tables"])
        return PushedTogether(tables=pushed, processed=found.get("processed"), answer=found)

    # --- rows out -------------------------------------------------------------------------------------------------

    def query(self, sql: str) -> Result:
        """Run one SELECT over the views, all as of the same step."""
        return _result(self.connection.response("POST", "/v1/query", json={"sql": sql}, headers={"Accept": ARROW}))

    def view(self, name: str, *, limit: int | None = None, key: Mapping[str, Any] | None = None) -> Result:
        """Read the rows of a view with their weights, as of one step: all, or those with the values of `key`."""
        params: dict[str, Any] = {} if limit is None else {"limit": limit}
        if key is not None:
            params["key"] = json.dumps(key)
        answer = self.connection.response("GET", f"/v1/views/{name}", params=params, headers={"Accept": ARROW})
        return _result(answer)

    def views(self) -> list[str]:
        """Return the names of the views."""
        return list(self.ask("GET", "/v1/views")["views"])

    def changes(
        self, view: str, *, first: int = 0, follow: bool = False, wait_s: float = FOLLOW_WAIT_S
    ) -> Iterator[Change]:
        """Yield what each step from `first` on changed in a view (or in `dead_letters`), each step once.

        Without `follow` it ends at the step that the service had reached when it began. With `follow` it goes on for ever, also
        while the service restarts; each request waits `wait_s` for a change. A change with `anew` is the first of a view that was
        edited, or dropped and made again. Forget the rows so far before you add its rows, which are the whole view.
        **Errors** `DataError` if the steps were dropped or do not exist: read the view, and go on from its step.
        """
        for page in self.pages(view, first=first, follow=follow, wait_s=wait_s):
            began = page.get("anew")
            if began is not None and began not in [change["step"] for change in page["changes"]]:
                yield Change(step=began, rows=(), weights=(), next=began + 1, anew=True)
            for change, after in zip(page["changes"], _positions(page), strict=True):
                yield Change(
                    step=change["step"], rows=tuple(change["rows"]), weights=tuple(change["weights"]), next=after,
                    anew=change["step"] == began,
                )  # fmt: skip

    def pages(
        self,
        view: str,
        *,
        first: int = 0,
        follow: bool = False,
        wait_s: float = FOLLOW_WAIT_S,
        waiting: Callable[[UnavailableError], object] = lambda _error: None,
        ask: Callable[..., Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the service's responses for `changes`, asked for by `ask`; call `waiting` when a followed service is away."""
        until = None if follow else self.status()["step"]
        while True:
            params = {"first": first, "wait_s": wait_s if follow else 0, "anew": True}
            page = partial(ask or self.ask, "GET", f"/v1/views/{view}/changes", params=params)
            found = self._page(page, waiting if follow else None)
            yield found
            if until is not None and (found["next"] >= until or not found["changes"]):
                return
            first = found["next"]

    def _page(self, page: Callable[[], Any], waiting: Callable[[UnavailableError], object] | None) -> Any:
        """Request one page; with `waiting`, repeat until the service responds: a restart may change its address."""
        said = False
        while True:
            try:
                return page()
            except UnavailableError as error:
                if waiting is None:
                    raise
                if not said:
                    said = True
                    waiting(error)
                time.sleep(AGAIN_S)  # polling a service that is away

    # --- dead letters ---------------------------------------------------------------------------------------------

    def dead_letters(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows that could not be used, in order: `position`, `code`, `table_name`, `reason`, `text` ….

        `wanted` chooses letters: `table`, `code`, `reason` (a part of it), `first` and `last` (steps, or positions: "7-2").
        A letter without an offset says why in `unplaced`. `replayed` is where its row was pushed again, or the `step` that took
        it. `client.query` reads letters as the relation `dead_letters`, and `client.changes("dead_letters", follow=True)`
        follows them.
        """
        cursor: dict[str, Any] = {}
        while True:
            found = self._dict("GET", "/v1/dead-letters", params={**wanted, "limit": LETTERS_A_PAGE, **cursor})
            yield from found["letters"]
            if found["next"] is None:
                return
            cursor = {"cursor": found["next"]}

    def replay_dead_letters(
        self, *, dry_run: bool = False, wait_s: float | None = None, **wanted: Any
    ) -> dict[str, Any]:
        """Use the rows of dead letters as new input, each letter at most once; return the counts of used and refused rows.

        Rows that were pushed are pushed again, at `positions`; those of topics and files are taken by `steps` of their own.
        `wanted` chooses letters as for `dead_letters`. With `dry_run` nothing is done; `wait_s` is as for `push`.
        **Errors** `UnavailableError` while no step can run.
        """
        body = {**wanted, "dry_run": dry_run}
        return self._dict("POST", "/v1/dead-letters/replay", json=body, params=_waiting(wait_s))

    # --- figures and decisions --------------------------------------------------------------------------------------

    def status(self, **options: Any) -> dict[str, Any]:
        """Return the state, step, checkpoint, lag and figures of the service."""
        return self._dict("GET", "/v1/status", **options)

    def explain(self) -> str:
        """Return the plan with what every node did: rows, time, state, busiest worker."""
        return str(self.ask("GET", "/v1/explain")["plan"])

    def layout(self) -> dict[str, Any]:
        """Return which worker owns which shards and partitions, and its host."""
        return self._dict("GET", "/v1/layout")

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self.connection.response("GET", "/metrics").text

    def checkpoint(self) -> dict[str, Any]:
        """Take a checkpoint; return its `version` and `step` when it is published."""
        return self._dict("POST", "/v1/checkpoint")

    def pause(self) -> dict[str, Any]:
        """Pause the pipeline; return the state and the next `step`. Rows that are pushed meanwhile wait."""
        return self._dict("POST", "/v1/pause")

    def resume(self) -> dict[str, Any]:
        """Resume a paused pipeline; return the state and the next `step`."""
        return self._dict("POST", "/v1/resume")

    def rescale(
        self,
        workers: int,
        *,
        strategy: Strategy | str | None = None,
        hosts: Mapping[str, float] | None = None,
        dry_run: bool = False,
        progress: Callable[[dict[str, Any]], object] | None = None,
        at_rest: str | None = None,
    ) -> dict[str, Any]:
        """Change the number of workers; return what was moved, when the rescale is done.

        `hosts` maps the hosts on which the workers are to be to their weights; all other hosts are left. Without it the
        hosts stay as they are. `progress` is called with the service's status twice a second, in a thread. If
        this program ends meanwhile, the service still carries the rescale out.
        """
        body = {
            "workers": workers,
            "dry_run": dry_run,
            "strategy": strategy,
            "hosts": None if hosts is None else {**hosts},
        }
        with nullcontext() if progress is None else looking(lambda: progress(self.status())):
            return self._dict("POST", "/v1/rescale", json=body, at_rest=at_rest)

    def cancel_rescale(self) -> dict[str, Any]:
        """Cancel a rescale that has not switched yet; return the number of `workers` that stay."""
        return self._dict("DELETE", "/v1/rescale")

    def skip(self, step: int | None = None) -> dict[str, Any]:
        """Continue without the rows that halt the pipeline; they become dead letters."""
        return self._dict("POST", "/v1/skip", json={"step": step})

    def accept_output(self, step: int | None = None) -> dict[str, Any]:
        """Accept that a replayed step gives another output than before; the next new step emits the difference."""
        return self._dict("POST", "/v1/accept-output", json={"step": step})

    def backup(self, folder: str | Path) -> dict[str, Any]:
        """Make a backup of the pipeline as of now in a new folder in `folder`, on the service's host."""
        return self._dict("POST", "/v1/backup", json={"folder": str(folder)})

    def keep_version(self) -> dict[str, Any]:
        """Keep a new checkpoint among the copies of checkpoints until a command deletes it."""
        return self._dict("POST", "/v1/keep")

    def stop(self, *, now: bool = False) -> dict[str, Any]:
        """Take a last checkpoint, unless `now`, and end the service."""
        return self._dict("POST", "/v1/stop", json={"now": now})


class AsyncClient:
    """The methods of `Client` for asyncio: each request waits in a thread, so that the event loop is not blocked."""

    def __init__(
        self,
        pipeline: str | Path | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        ca: str | None = None,
    ) -> None:
        """Keep the address of the service; send no request yet."""
        self.client = Client(pipeline, url=url, token=token, ca=ca)

    async def push(self, table: str, rows: Any, **options: Any) -> Pushed:
        """Push rows to a table; see `Client.push`."""
        return await asyncio.to_thread(self.client.push, table, rows, **options)

    async def push_file(self, table: str, file: str | Path | BinaryIO, **options: Any) -> PushedFile:
        """Push a file of any size; see `Client.push_file`."""
        return await asyncio.to_thread(self.client.push_file, table, file, **options)

    async def transaction(self, tables: Mapping[str, Any], **options: Any) -> PushedTogether:
        """Push rows to several tables in one transaction; see `Client.transaction`."""
        return await asyncio.to_thread(self.client.transaction, tables, **options)

    async def query(self, sql: str) -> Result:
        """Run one SELECT over the views; see `Client.query`."""
        return await asyncio.to_thread(self.client.query, sql)

    async def view(self, name: str, *, limit: int | None = None, key: Mapping[str, Any] | None = None) -> Result:
        """Read the rows of a view; see `Client.view`."""
        return await asyncio.to_thread(self.client.view, name, limit=limit, key=key)

    async def changes(self, view: str, **options: Any) -> AsyncIterator[Change]:
        """Yield what each step changed in a view; see `Client.changes`."""
        found = self.client.changes(view, **options)
        while (change := await asyncio.to_thread(next, found, None)) is not None:
            yield change

    async def dead_letters(self, **wanted: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows that could not be used; see `Client.dead_letters`."""
        found = self.client.dead_letters(**wanted)
        while (letter := await asyncio.to_thread(next, found, None)) is not None:
            yield letter

    async def replay_dead_letters(self, **options: Any) -> dict[str, Any]:
        """Push the rows of dead letters again; see `Client.replay_dead_letters`."""
        return await asyncio.to_thread(self.client.replay_dead_letters, **options)

    async def views(self) -> list[str]:
        """Return the names of the views."""
        return await asyncio.to_thread(self.client.views)

    async def status(self) -> dict[str, Any]:
        """Return the state and figures of the service; see `Client.status`."""
        return await asyncio.to_thread(self.client.status)

    async def explain(self) -> str:
        """Return the plan with what every node did; see `Client.explain`."""
        return await asyncio.to_thread(self.client.explain)

    async def layout(self) -> dict[str, Any]:
        """Return which worker owns what; see `Client.layout`."""
        return await asyncio.to_thread(self.client.layout)

    async def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return await asyncio.to_thread(self.client.metrics)

    async def checkpoint(self) -> dict[str, Any]:
        """Take a checkpoint; see `Client.checkpoint`."""
        return await asyncio.to_thread(self.client.checkpoint)

    async def pause(self) -> dict[str, Any]:
        """Pause the pipeline; see `Client.pause`."""
        return await asyncio.to_thread(self.client.pause)

    async def resume(self) -> dict[str, Any]:
        """Resume a paused pipeline; see `Client.resume`."""
        return await asyncio.to_thread(self.client.resume)

    async def rescale(self, workers: int, **options: Any) -> dict[str, Any]:
        """Change the number of workers; see `Client.rescale`."""
        return await asyncio.to_thread(self.client.rescale, workers, **options)

    async def cancel_rescale(self) -> dict[str, Any]:
        """Cancel a rescale that has not switched yet; see `Client.cancel_rescale`."""
        return await asyncio.to_thread(self.client.cancel_rescale)

    async def skip(self, step: int | None = None) -> dict[str, Any]:
        """Continue without the rows that halt the pipeline; see `Client.skip`."""
        return await asyncio.to_thread(self.client.skip, step)

    async def accept_output(self, step: int | None = None) -> dict[str, Any]:
        """Accept another output of a replayed step; see `Client.accept_output`."""
        return await asyncio.to_thread(self.client.accept_output, step)

    async def backup(self, folder: str | Path) -> dict[str, Any]:
        """Make a backup; see `Client.backup`."""
        return await asyncio.to_thread(self.client.backup, folder)

    async def keep_version(self) -> dict[str, Any]:
        """Keep a checkpoint among the copies; see `Client.keep_version`."""
        return await asyncio.to_thread(self.client.keep_version)

    async def stop(self, *, now: bool = False) -> dict[str, Any]:
        """End the service; see `Client.stop`."""
        return await asyncio.to_thread(self.client.stop, now=now)


@contextmanager
def looking(look: Callable[[], object], every_s: float = LOOK_S) -> Iterator[None]:
    """Call `look` at an interval, in a thread, while the block runs; ignore its errors, as the block raises its own."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            with suppress(DbspError, OSError):
                look()

    threading.Thread(target=watch, name="dbsp-looking", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def refuse_half(producer: str | None, sequence: int | None, names: str = "producer and sequence") -> None:
    """Refuse one of the two values by which a repeated push is recognised, without the other."""
    if (producer is None) != (sequence is None):
        raise ConfigError(
            "a push needs both of a producer and its number, or neither", f"give {names} together, or neither"
        )


def _pushing(producer: str | None, sequence: int | None) -> dict[str, str]:
    """Return the headers that let the service recognise a repeated push."""
    refuse_half(producer, sequence)
    return {} if producer is None else {"Dbsp-Producer": producer, "Dbsp-Sequence": str(sequence)}


def _waiting(wait_s: float | None) -> dict[str, Any]:
    """Return the parameters of a push that waits for its step."""
    return {} if wait_s is None else {"wait": "true", "timeout_s": wait_s}


def _pushed(table: str, found: Mapping[str, Any], answer: Mapping[str, Any]) -> Pushed:
    """Return the result of a push, from the service's response."""
    return Pushed(
        table=table, first=found["first"], end=found["last"], repeated=found["repeated"],
        bad_rows=found.get("bad_rows", 0), bad=tuple(found.get("bad", ())), processed=answer.get("processed"),
        answer=answer,
    )  # fmt: skip


def _result(answer: Any) -> Result:
    """Return the rows of a response in Arrow's stream format, with the step that its header names."""
    import pyarrow as pa  # noqa: PLC0415 - programs that read nothing do without it

    return Result(step=int(answer.headers[STEP_HEADER]), table=pa.ipc.open_stream(answer.content).read_all())


def _positions(page: Mapping[str, Any]) -> list[int]:
    """Return the position after each change of a page: the following step, and for the last change the page's `next`."""
    steps = [change["step"] for change in page["changes"]]
    return [*(step + 1 for step in steps[:-1]), page["next"]][: len(steps)]
