"""The released version 0.1.0, out of the history of the repository, and stories that it and this version run in turn.

The tree of the release is unpacked once, below `build/`. A process is of that version if the folder `imported` there is on its
`PYTHONPATH`. What is installed beside is that of the tests.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx

from dbsp.version import VERSION
from tests import plain_http
from tests.coordinator import dying
from tests.forked import ROOT, Forked, Forks
from tests.spark.waiting import until

RELEASED = "0.1.0"
COMMIT = "1aae4094accc4fd130b8b9dea3cb1ec497c5bcee"
"""The last commit of version 0.1.0."""
MAPPED = ("storage", "io", "coordinator")
SITE = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if "Editable" not in getattr(each, "__name__", "")]
"""
"""Modules that the release does not have must not be found in the installation of this tree."""

TABLES = """
create table orders (id bigint, customer varchar, amount bigint, primary key (id));
create table customers (name varchar, country varchar, primary key (name));
create table clicks (k bigint, ts timestamp, page varchar) with (watermark = 'ts 1 minute');
"""
VIEWS = {
    "per_customer": "select customer, count(*) as n, sum(amount) as s, min(amount) as least from orders group by customer",
    "large": "select id, customer, amount from orders where amount > 500",
    "per_country": "select country, count(*) as n, sum(amount) as s from orders left join customers on customer = name"
    " group by country",
    "pages": "select page, count(*) as n, count(distinct k) as ks from clicks group by page",
    "best": "select id, customer, amount from orders"
    " qualify row_number() over (partition by customer order by amount desc, id) <= 2",
}
PASSED = "select k, page from clicks where k > 0"
"""A view whose rows are put out by the workers that read them."""
CIRCUIT = (
    TABLES
    + "".join(f"create materialized view {name} as {query};\n" for name, query in VIEWS.items())
    + f"create view passed as {PASSED};\n"
)
PARTITIONS = 5
"""No multiple of the numbers of workers: readers that are even over all tables are others than p mod W."""
SETTINGS = """
[pipeline]
name = "shop"
circuit = "shop.sql"
runtime = "local"
workers = 2
[http]
port = 0
[step]
max_step_delay_ms = 100
[input]
kind = "embedded"
partitions = 5
[checkpoint]
interval_s = 3600
"""


def missing() -> str | None:
    """Return why there is no release to run; None if there is one."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, check=False
    )
    return None if found.returncode == 0 else f"the history has no commit {COMMIT[:8]}, of version {RELEASED}"


@functools.cache
def tree() -> Path:
    """Return the folder for `PYTHONPATH`; unpack the release if that was not done before."""
    place = ROOT / "build" / f"released-{RELEASED}"
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".released-", dir=place.parent))
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=zip", COMMIT, "dbsp", *MAPPED],
            capture_output=True,
            check=True,
        )
        with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
            files.extractall(aside)
        imported = aside / "imported"
        (imported / "dbsp").mkdir(parents=True)
        for each in (*(aside / "dbsp").iterdir(), *(aside / name for name in MAPPED)):
            (imported / "dbsp" / each.name).symlink_to(Path("../..") / each.relative_to(aside))
        (imported / "sitecustomize.py").write_text(SITE)
        try:
            aside.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    return place / "imported"


def path() -> str:
    """Return the `PYTHONPATH` of the release."""
    return os.pathsep.join([str(tree()), *sys.path])


@functools.cache
def forks(version: str) -> Forks:
    """Return processes that have loaded a version; the folder in which they are started is no place to import from."""
    return Forks({"PYTHONPATH": path(), "PYTHONSAFEPATH": "1"} if version == RELEASED else {})


def python(folder: Path) -> Path:
    """Return an interpreter of the release, made in a folder."""
    script = folder / "python-released"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(path())} exec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script


class DiedError(Exception):
    """The service has died before it answered."""


class Pipeline:
    """A pipeline in a folder; the versions that run it change. Its rows are also in DuckDB, to compare the views."""

    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "shop.sql").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(settings)
        self.folder, self.rounds = folder, 0
        self._process: Forked | None = None

    def copy(self, folder: Path) -> Pipeline:
        """Return the same in another folder; no service may run."""
        shutil.copytree(self.folder, folder)
        found = Pipeline(folder, (self.folder / "pipeline.toml").read_text())
        found.rounds = self.rounds
        return found

    @property
    def process(self) -> Forked:
        assert self._process is not None
        return self._process

    def start(self, version: str, *options: str, dies_at: int | None = None) -> None:
        """Start the service of a version, which runs again what the other one has logged; wait until it takes rows."""
        other = VERSION if version == RELEASED else RELEASED
        arguments = ("--accept-engine", other, *options)
        (self.folder / "data" / "coordinator.json").unlink(missing_ok=True)
        said = self.folder / "said.txt"
        self._process = Forked(said, dying.serve, self.folder, arguments, dies_at, by=forks(version))
        until(lambda: self.process.poll() is not None or self._state() == "Running", "the service takes rows")
        self._refuse_dead()

    def _state(self) -> str | None:
        with suppress(OSError, ValueError, KeyError, httpx.HTTPError):
            return str(self.ask("GET", "/v1/status").json()["state"])
        return None

    def _refuse_dead(self) -> None:
        code = self.process.poll()
        if code is not None:
            if code != -signal.SIGKILL:
                raise AssertionError(
                    f"it ended by itself: code={code}\n{(self.folder / 'said.txt').read_text()[-3000:]}"
                )
            raise DiedError

    def ask(self, method: str, place: str, **options: Any) -> httpx.Response:
        url = json.loads((self.folder / "data" / "coordinator.json").read_text())["url"]
        return plain_http.ask(method, f"{url}{place}", **options)

    def want(self, method: str, place: str, **options: Any) -> Any:
        """Ask, and return the JSON of the answer; `DiedError` if the service dies meanwhile."""
        try:
            found = self.ask(method, place, **options)
        except (OSError, httpx.HTTPError):
            self.process.wait(30)
            self._refuse_dead()
            raise
        assert found.is_success, f"{place}: {found.text}\n{(self.folder / 'said.txt').read_text()[-3000:]}"
        return found.json()

    def push(self) -> None:
        """Push the next round: once, also if the push is repeated after a crash. Few steps take it, as nothing waits at first."""
        for options in ("", "&wait=true"):
            for number, (table, partition, rows) in enumerate(pushes(self.rounds)):
                headers = {"Dbsp-Producer": "story", "Dbsp-Sequence": str(100 * self.rounds + number)}
                self.want("POST", f"/v1/tables/{table}/rows?partition={partition}{options}", json=rows, headers=headers)
        self.rounds += 1

    def checkpoint(self) -> None:
        self.want("POST", "/v1/checkpoint")

    def rescale(self, workers: int) -> None:
        self.want("POST", "/v1/rescale", json={"workers": workers})
        until(
            lambda: self.want("GET", "/v1/status")["workers"] == workers and self._state() == "Running",
            "the rescale is over",
        )

    def check(self) -> None:
        """Compare all views, and the sums of all their changes, with DuckDB's answers over all rows that were pushed."""
        expected = answers(self.rounds)
        for view in (*VIEWS, "passed"):
            assert self._added_up(view) == expected[view], f"changes of {view}"
        for view in VIEWS:
            rows = self.want("GET", f"/v1/views/{view}")["rows"]
            assert sorted(json.dumps(list(row.values())) for row in rows) == expected[view], view

    def _added_up(self, view: str) -> list[str]:
        """Return the rows of a view as the sum of its changes in all steps, as texts in order."""
        page = self.want("GET", f"/v1/views/{view}/changes?rows_max=1000000")
        found = Counter[str]()
        for step in page["changes"]:
            for row, weight in zip(step["rows"], step["weights"], strict=True):
                found[json.dumps(list(row.values()))] += weight
        assert not -found, f"rows were taken away that were not there: view={view}"
        return sorted(found.elements())

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGTERM)
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    @contextmanager
    def served(self, version: str, *options: str) -> Iterator[None]:
        """Start a version, and kill it at the end."""
        self.start(version, *options)
        try:
            yield
        finally:
            self.kill()


def pushes(number: int) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """Yield what a round pushes: table, partition and rows."""
    for partition in range(PARTITIONS):
        key = number * PARTITIONS + partition
        yield "orders", partition, [{"id": key, "customer": "abcde"[key % 5], "amount": key * 131 % 900}]
        yield "clicks", partition, [{"k": key, "ts": f"2024-01-01T00:{number:02d}:00", "page": f"/{key % 3}"}]
    yield "customers", 0, [{"name": "abcde"[number % 5], "country": ("de", "fr", "grüße")[number % 3]}]


@functools.cache
def answers(rounds: int) -> dict[str, Sequence[str]]:
    """Return DuckDB's rows of each view after so many rounds, as texts in order."""
    with duckdb.connect() as base:
        for statement in filter(str.strip, TABLES.split(";")):
            base.execute(statement.partition(" with ")[0])
        for number in range(rounds):
            for table, _, rows in pushes(number):
                for row in rows:
                    replaced = "" if table == "clicks" else "or replace "
                    places = ", ".join("?" * len(row))
                    base.execute(f"insert {replaced}into {table} values ({places})", list(row.values()))
        return {
            view: sorted(json.dumps(list(row)) for row in base.execute(query).fetchall())
            for view, query in {**VIEWS, "passed": PASSED}.items()
        }
