"""The real service, killed at named points and at random moments, then started again: nothing twice, nothing missing.

Golden run: the step log of the faulted run, replayed from step 0 by one worker in memory, gives the same outputs,
summed over workers, for every step; and the views are those of the rows that were acknowledged, each once.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.address import read_address
from dbsp.coordinator.backup.making import make
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.build import load_plan
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.distribute.names import STRATEGIES as BY_KEY
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.io.output_part import with_dead_letters
from dbsp.layout import initial
from dbsp.plan.plan import Plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.session import MemoryResources
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from tests import plain_http
from tests.coordinator.shop import settings_text
from tests.coordinator.under_traffic import without_moves
from tests.crash.coordinator_child import Child
from tests.pace import rotating

pytestmark = pytest.mark.crash

CIRCUIT = """
import dbsp
from dbsp import col, count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
names = dbsp.table("names", {"customer": dbsp.STRING, "name": dbsp.STRING}, primary_key=["customer"])
per_customer = (
    orders.group_by("customer").aggregate(orders=count(), amount=total("amount")).join(names, on="customer")
)
large = orders.filter(col("amount") > 500)
shares = orders.filter(col("amount") < 5).select(col("id"), share=100 // col("amount"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "large": large, "shares": shares})
"""
SETTINGS = settings_text("[checkpoint]\ninterval_s = 0.3\nretention_s = 100000\n", step="max_rows_per_step = 400") + (
    "[layout]\nkeys_per_step = 10\n"
)
POINTS = [
    *(f"steps.claim:{when}:1" for when in ("before", "after")),
    "runtime.create:after:1",
    *(f"runtime.fence:{when}:1" for when in ("before", "after")),
    *(f"runtime.open:{when}:1" for when in ("before", "after")),
    *(f"steps.append:{when}:3" for when in ("before", "after")),
    *(f"runtime.run_step:{when}:4" for when in ("before", "after")),
    *(f"runtime.pin:{when}:2" for when in ("before", "after")),
    *(f"runtime.copy:{when}:2" for when in ("before", "after")),
    *(f"control.change:after:{count}" for count in (4, 5, 6, 7, 8)),
    *(f"inputs.append_many:{when}:4" for when in ("before", "after")),
    "inputs.ends:before:40",
]
RESCALE_POINTS = [
    *(f"runtime.redistribute:{when}:1" for when in ("before", "after")),
    *(f"runtime.open:{when}:2" for when in ("before", "after")),
    *(f"runtime.discard:{when}:1" for when in ("before", "after")),
    *(f"steps.claim:{when}:2" for when in ("before", "after")),
]


WARM_POINTS = [
    *(f"runtime.warm:{when}:{count}" for count in (1, 2) for when in ("before", "after")),
    "runtime.pin:after:2",
    "runtime.run_step:after:6",
    *(f"runtime.redistribute:{when}:1" for when in ("before", "after")),
    *(f"control.change:after:{count}" for count in (9, 12, 15)),
    *(f"runtime.open:{when}:2" for when in ("before", "after")),
    "runtime.discard:after:1",
    "steps.claim:before:2",
]


KEY_POINTS = [
    *(f"runtime.redistribute:{when}:1" for when in ("before", "after")),
    *(f"control.change:after:{count}" for count in (5, 6, 7, 8, 9)),
    *(f"runtime.open:{when}:2" for when in ("before", "after")),
    *(f"runtime.run_step:{when}:{count}" for count in (4, 6, 8, 12) for when in ("before", "after")),
    "steps.append:before:5",
    "runtime.pin:after:2",
    "runtime.copy:before:2",
    *(f"runtime.discard:{when}:2" for when in ("before", "after")),
]


REACHED_S = 150.0


class Pipeline:
    """A pipeline's folder, its process, and what its producer has had acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        (folder / "circuit.py").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(SETTINGS)
        self.process: Child | None = None
        self.sequence = 0
        self.orders: dict[int, tuple[str, int]] = {}
        self.names: dict[str, str] = {}

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, point: str = "") -> None:
        self.process = Child(self.folder / "pipeline.toml", point, self.folder / "out")

    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def wait_dead(self, timeout_s: float = 60) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return (self.folder / "out").read_text()[-3000:]

    def story(self) -> str:
        """For a test that fails: what it said, and the end of its log."""
        return self.said() + (self.data / "coordinator.log").read_text()[-6000:]

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """A request to the living process; `httpx.HTTPError` when it dies."""
        found = read_address(self.data)
        if self.process is None or found.get("pid") != self.process.pid:
            raise httpx.ConnectError("not yet")
        answer = plain_http.ask(method, found["url"] + path, **options)
        if answer.status_code == 503:
            raise httpx.ConnectError(answer.text)
        assert answer.is_success, answer.text
        return answer.json()

    def until(self, action: Any, timeout_s: float = 60) -> Any:
        """Repeat a request until it is answered; None if the process dies first."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            try:
                return action()
            except httpx.HTTPError:
                if self.dead():
                    return None
                time.sleep(0.02)  # polling a process that has no other way to say that it listens
        raise AssertionError(
            f"no answer: address={read_address(self.data)} child={self.process and self.process.pid} {self.said()}"
        )

    def push(self, rows_max: int = 200) -> bool:
        """Push a batch, the same one again until it is acknowledged; False if the process died meanwhile."""
        table, body, effect = self._batch(self.random.randint(1, rows_max))
        headers = {"Dbsp-Producer": "test", "Dbsp-Sequence": str(self.sequence)}
        answer = self.until(lambda: self.ask("POST", f"/v1/tables/{table}/rows", content=body, headers=headers))
        if answer is None:
            self.pending = (table, body, effect)
            return False
        self._done(effect)
        return True

    pending: tuple[str, bytes, Any] | None = None

    def _done(self, effect: Any) -> None:
        effect()
        self.sequence += 1
        self.pending = None

    def _batch(self, count: int) -> tuple[str, bytes, Any]:
        if self.pending is not None:
            return self.pending
        if self.random.random() < 0.2:
            chosen = {f"c{self.random.randint(0, 20)}": f"n{self.random.randint(0, 99)}" for _ in range(5)}
            rows = [{"customer": customer, "name": name} for customer, name in chosen.items()]
            return "names", json.dumps(rows).encode(), lambda: self.names.update(chosen)
        lines: list[str] = []
        changes: list[tuple[int, tuple[str, int] | None]] = []
        for _ in range(count):
            key = self.random.randint(0, 3000)
            if self.random.random() < 0.05 and 2 * len(changes) > len(lines) + 1:  # a push of bad rows alone is refused
                lines.append(json.dumps({"insert": {"id": key, "amount": "many"}}))
            elif self.random.random() < 0.2:
                changes.append((key, None))
                lines.append(json.dumps({"delete": {"id": key}}))
            else:
                value = (f"c{self.random.randint(0, 30)}", self.random.choice([0, *range(1, 1000, 47)]))
                changes.append((key, value))
                lines.append(json.dumps({"insert": {"id": key, "customer": value[0], "amount": value[1]}}))

        def effect() -> None:
            for key, value in changes:
                if value is None:
                    self.orders.pop(key, None)
                else:
                    self.orders[key] = value

        return "orders", "\n".join(lines).encode(), effect

    def expected(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """The views, from what was acknowledged."""
        groups: dict[str, list[int]] = {}
        for customer, amount in self.orders.values():
            groups.setdefault(customer, []).append(amount)
        return {
            "large": Counter((key, c, amount) for key, (c, amount) in self.orders.items() if amount > 500),
            "per_customer": Counter(
                (customer, len(found), sum(found), self.names[customer])
                for customer, found in groups.items()
                if customer in self.names
            ),
        }


@contextmanager
def pipeline(folder: Path, seed: int) -> Iterator[Pipeline]:
    made = Pipeline(folder, seed)
    try:
        yield made
    finally:
        if not made.dead():
            made.kill()


def finish(run: Pipeline) -> set[str]:
    """Start once more without faults, wait for everything, compare, stop; where the dead letters are from."""
    if run.dead():
        run.start()
    while run.pending is not None:
        assert run.push(), run.said()
    assert run.push()

    def settled() -> Any:
        status = run.ask("GET", "/v1/status")
        if status["state"] != "Running" or status["lag_rows"]:
            raise httpx.ConnectError("not yet")
        waiting = run.ask("POST", "/v1/checkpoint")
        after = run.ask("GET", "/v1/status")
        if after["step"] != waiting["step"]:
            raise httpx.ConnectError("not yet")
        return after

    last = run.ask("POST", "/v1/tables/names/rows", content=b"", params={"wait": "true"})
    assert last["first"] == last["last"]
    expected = run.expected()
    limit = time.monotonic() + 60
    while True:
        run.until(settled)
        found = {
            view: Counter(
                {tuple(row.values()): weight for row, weight in zip(answer["rows"], answer["weights"], strict=True)}
            )
            for view in expected
            for answer in [run.ask("GET", f"/v1/views/{view}")]
        }
        if found == expected or time.monotonic() > limit:
            break
    assert {view: sorted(rows) for view, rows in found.items()} == {v: sorted(rows) for v, rows in expected.items()}
    assert found == expected
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait_dead() == 0, run.said()
    compare_with_backup(run, expected)
    return compare_with_golden(run)


def is_sound(run: Pipeline) -> bool:
    """What `coordinator doctor` says of the files as they are; a kill before the first claim leaves none."""
    if not (run.data / "steps").exists():
        return True
    found = diagnose(load_config(run.folder / "pipeline.toml", environment={}))
    assert not found.findings, f"{found.as_text()} {run.story()}"
    return True


def compare_with_backup(run: Pipeline, expected: dict[str, Counter[tuple[Any, ...]]]) -> None:
    """The doctor says sound, and a backup restores to equal answers."""
    assert is_sound(run)
    named, _ = make(load_config(run.folder / "pipeline.toml", environment={}), run.folder / "backups", lambda *_: None)
    home = run.folder / "restored"
    home.mkdir()
    for name in ("circuit.py", "pipeline.toml"):
        shutil.copy(run.folder / name, home / name)
    config = load_config(home / "pipeline.toml", environment={})
    restore(named, config)
    with Service(config) as service:
        assert {view: counted(service.read_view(view).table) for view in expected} == expected


def compare_with_golden(run: Pipeline) -> set[str]:
    """Replay the step log on one worker in memory and compare every step's outputs; where its dead letters are from."""
    config = load_config(run.folder / "pipeline.toml", environment={})
    plan = load_plan(config)
    steps = EmbeddedStepLog(run.data)
    records = steps.read(0)
    inputs = EmbeddedInputLog(run.data, plan.tables)
    try:
        golden = replay(plan, inputs, records)
        assert len(golden) == len(records) > 0
        for view in (*(spec.name for spec in plan.views), DEAD_LETTERS):
            found: dict[int, Counter[tuple[Any, ...]]] = {}
            for step, _, table in read_outputs(run.data, view):
                found.setdefault(step, Counter()).update(counted(table))
            found = {step: rows for step, rows in ((s, nonzero(r)) for s, r in found.items()) if rows}
            assert found == {step: rows for step, views in golden.items() if (rows := views.get(view))}, view
        return {row[1] for views in golden.values() for row in views.get(DEAD_LETTERS, ())}
    finally:
        inputs.close()
        steps.close()


def replay(plan: Plan, inputs: EmbeddedInputLog, records: Any) -> dict[int, dict[str, Counter[tuple[Any, ...]]]]:
    """Outputs per step and view, dead letters among them."""
    resources = MemoryResources(inputs)  # type: ignore[arg-type]
    runtime = InProcessRuntime(Work(resources=resources, plan=plan, run="golden"), encode_parcels=False)
    layout = initial(1)
    empty = CheckpointId(run="golden", epoch=1, step=0, layout_version=0, fingerprint=plan.fingerprint)
    runtime.create(layout.workers, empty)
    runtime.fence(1, layout.workers)
    runtime.open(0, 1, layout)
    for record in records:
        runtime.run_step(without_moves(record), layout)
    (log,) = resources.outputs.values()
    full = {step: with_dead_letters(parts, log.dead[step]) for step, parts in log.parts.items()}
    return {
        step: {view: rows for view, batch in parts.items() if (rows := nonzero(counted(batch.to_arrow("weight"))))}
        for step, parts in full.items()
    }


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    weights = table.column(table.num_columns - 1).to_pylist()
    rows = table.remove_column(table.num_columns - 1).to_pylist()
    found: Counter[tuple[Any, ...]] = Counter()
    for row, weight in zip(rows, weights, strict=True):
        found[tuple(row.values())] += weight
    return found


def nonzero(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter({row: weight for row, weight in rows.items() if weight})


def test_killed_at_every_named_point(tmp_path: Path) -> None:
    with pipeline(tmp_path, seed=1) as run:
        for point in rotating(POINTS, 5):
            run.start(point)
            for _ in range(60):
                if not run.push():
                    break
            else:
                run.kill()
                raise AssertionError(f"the point was never reached: {point} {run.said()}")
            assert run.wait_dead() == -signal.SIGKILL, f"{point}: {run.said()}"
        assert len(finish(run)) > 1, "rows that cannot be read, and rows that a node cannot use"


def test_killed_at_every_point_of_a_rescale(tmp_path: Path) -> None:
    with pipeline(tmp_path, seed=2) as run:
        for number, point in enumerate(rotating(RESCALE_POINTS, 2)):
            workers = (3, 1, 4, 2)[number % 4]
            run.start(point)
            for _ in range(3):
                if not run.push():
                    break
            run.until(lambda workers=workers: run.ask("POST", "/v1/rescale", json={"workers": workers}))
            if not run.dead() and "discard" not in point:
                raise AssertionError(f"the point was never reached: {point} {run.said()}")
            if not run.dead():
                run.kill()
            assert run.wait_dead() == -signal.SIGKILL, f"{point}: {run.said()}"
            assert is_sound(run)
        finish(run)


def test_killed_at_every_point_of_a_warm_up(tmp_path: Path) -> None:
    """Rows come all the time; whatever was copied ahead when it died, the next start finds the old or the new layout."""
    with pipeline(tmp_path, seed=3) as run:
        for number, point in rotating(tuple(enumerate(WARM_POINTS)), 3):
            _killed_at(run, point, (3, 1, 4, 2)[number % 4], "warmup")
        finish(run)


def test_killed_at_every_point_while_keys_move(tmp_path: Path) -> None:
    """The next start finds the old layout, or goes on with the keys that have moved, or finds the new one."""
    with pipeline(tmp_path, seed=4) as run:
        for number, point in rotating(tuple(enumerate(KEY_POINTS)), 5):
            _killed_at(run, point, (3, 1, 4, 2)[number % 4], BY_KEY[number % 2])
        finish(run)


def _killed_at(run: Pipeline, point: str, workers: int, strategy: str) -> None:
    """Start it, push rows and ask for rescales until the point kills it."""
    run.start(point)
    if run.push():
        thread = threading.Thread(target=_keep_asking, args=(run, workers, strategy))
        thread.start()
        until = time.monotonic() + REACHED_S
        while run.push(40):
            if time.monotonic() > until:
                run.kill()
                raise AssertionError(f"the point was never reached: {point} {run.story()}")
        thread.join()
    assert run.wait_dead() == -signal.SIGKILL, f"{point}: {run.said()}"


def _keep_asking(run: Pipeline, workers: int, strategy: str) -> None:
    """One after the other until it dies, so that each point is reached."""
    url = read_address(run.data)["url"]
    with suppress(httpx.HTTPError):
        for count in itertools.cycle((workers, workers % 4 + 1)):
            plain_http.post(f"{url}/v1/rescale", json={"workers": count, "strategy": strategy})


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 32))])
def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    with pipeline(tmp_path, seed) as run:
        for _ in range(6):
            run.start()
            for _ in range(run.random.randint(1, 25)):
                if not run.push():
                    break
            if run.random.random() < 0.4:
                _ask_in_vain(run, run.random.randint(1, 4), run.random.choice(STRATEGIES))
            time.sleep(run.random.random() * 0.3)  # the moment of the kill, not a synchronisation
            if not run.dead():
                run.kill()
            assert is_sound(run)
        finish(run)


def _ask_in_vain(run: Pipeline, workers: int, strategy: str) -> None:
    """Ask for a rescale and do not wait for the answer."""
    found, body = read_address(run.data), {"workers": workers, "strategy": strategy}
    try:
        plain_http.post(f"{found['url']}/v1/rescale", json=body, timeout_s=run.random.random() * 0.3)
    except (httpx.HTTPError, KeyError):
        return


def test_the_second_coordinator_fences_the_first(tmp_path: Path) -> None:
    with pipeline(tmp_path, seed=5) as run:
        run.start()
        assert run.push()
        first = run.process
        assert first is not None
        os.kill(first.pid, signal.SIGSTOP)
        run.start()
        assert run.push()
        with suppress(ProcessLookupError):  # the one that took over has ended it
            os.kill(first.pid, signal.SIGCONT)
        code = first.wait(60)
        assert code in (6, -signal.SIGKILL), run.said()  # it stopped by itself, or was ended by the one that took over
        finish(run)


def test_another_circuit_is_refused(tmp_path: Path) -> None:
    with pipeline(tmp_path, seed=6) as run:
        run.start()
        assert run.push()
        run.kill()
        (tmp_path / "circuit.py").write_text(CIRCUIT.replace("> 500", "> 600"))
        run.start()
        assert run.wait_dead() == 2
        assert "500" in run.said()
        assert "600" in run.said()
