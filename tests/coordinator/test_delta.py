"""Views as Delta tables: every version of a table is the view as of the step that it says, whoever is killed meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.build import load_plan
from dbsp.coordinator.running.delta_notes import MARK_FILE, DeltaNotes
from dbsp.coordinator.running.delta_tables import DeltaTables
from dbsp.coordinator.running.notices import DeltaFailed, Notice
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.answers import StepChanges, ViewChanges, ViewRows
from dbsp.coordinator.settings.config import Config
from dbsp.errors import CircuitError, ConfigError, PositionError
from dbsp.io.delta_table import DeltaTable
from dbsp.zset.schema import INT64, STRING
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, killable, settings, settings_text
from tests.pace import rotating

Row = tuple[Any, ...]
VIEWS = CIRCUIT.replace(
    'pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "large": large})',
    'largest = orders.top_k(2, by=dbsp.desc("amount"), partition_by="customer", rank="place")\n'
    'pipeline = dbsp.circuit("shop", {"per_customer": per_customer, "large": large, "largest": largest})',
)
KEYS = {"per_customer": ("customer",), "largest": ("customer", "place")}
DELTA = """
[delta]
directory = "lake"
interval_s = 0.05
keys = { per_customer = "customer", largest = "customer, place" }
"""


def written(folder: Path, more: str = DELTA, circuit: str = VIEWS) -> Config:
    (folder / "circuit.py").write_text(circuit)
    (folder / "pipeline.toml").write_text(settings_text(more))
    return settings(folder)


class Traffic:
    """Orders that come, change and go."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)

    def push(self, service: Service, count: int = 1) -> None:
        """So many pushes, the last of them processed."""
        for _ in range(count):
            size = self._chance.randrange(1, 7)
            orders = {
                "id": [self._chance.randrange(25) for _ in range(size)],
                "customer": [self._chance.choice(["a", "b", None, 'it\'s "c"']) for _ in range(size)],
                "amount": [self._chance.randrange(900) for _ in range(size)],
            }
            position = service.push("orders", pa.table(orders), delete=self._chance.random() < 0.3)
        service.wait_until_processed(position, 60)


def rows_of(table: pa.Table, without: int = 0) -> Counter[Row]:
    return Counter(tuple(row.values())[: table.num_columns - without] for row in table.to_pylist())


def net(table: pa.Table, last: int = 1) -> dict[Row, int]:
    """Changes added up; the weight is the first of the `last` columns."""
    found: Counter[Row] = Counter()
    for row in map(tuple, (each.values() for each in table.to_pylist())):
        found[row[:-last]] += row[-last]
    return {row: weight for row, weight in found.items() if weight}


def as_of(service: Service, view: str) -> list[dict[Row, int]]:
    """The view as of every step."""
    found: Counter[Row] = Counter()
    steps = {each.step: net(each.table) for each in service.changes(view, rows_max=10**9).steps}
    history = [dict[Row, int]()]
    for step in range(service.snapshot.step):
        found.update(steps.get(step, {}))
        history.append({row: weight for row, weight in found.items() if weight})
    return history


def versions(folder: Path, view: str, seen: set[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
    """(step, rows) of every version of a view's table: what its log says, as the protocol has it; not of those seen before."""
    for file in sorted((folder / "lake" / view / "_delta_log").glob("*.json")):
        if seen is not None:
            if file.name in seen:
                continue
            seen.add(file.name)
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for mark in (action["txn"] for action in actions if "txn" in action):
            table = deltalake.DeltaTable(str(folder / "lake" / view), version=int(file.stem))
            yield mark["version"], table.to_pyarrow_table()


def check(service: Service, folder: Path) -> int:
    """Every version of every table against the changes that the service tells of; how many versions there were."""
    count = 0
    for view in service.views():
        history, seen = as_of(service, view), set[int]()
        for step, table in versions(folder, view):
            assert step not in seen, "a step is the end of one commit"
            seen.add(step)
            held = dict(rows_of(table)) if view in KEYS else net(table, 2)
            assert held == history[step], (view, step)
            count += 1
    return count


def test_every_version_is_the_view_as_of_its_step(tmp_path: Path) -> None:
    """Through restarts and rescales; when the service stops, the tables hold all steps."""
    config, traffic = written(tmp_path), Traffic()
    for workers in (3, 1):
        with Service(config) as service:
            traffic.push(service, 25)
            service.rescale(workers)
            traffic.push(service, 25)
            check(service, tmp_path)
        with Service(config) as service:
            newest = {view: max(step for step, _ in versions(tmp_path, view)) for view in service.views()}
            assert newest == dict.fromkeys(service.views(), service.snapshot.step)
            assert check(service, tmp_path) > 6
            assert all(shown["error"] is None for shown in service.status()["delta"])


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """The process that writes is killed in the midst of its work, five times."""
    config, traffic = written(tmp_path, DELTA + "\n[checkpoint]\ninterval_s = 0.2\n"), Traffic(2)
    chance = random.Random(3)
    for _ in range(5):
        with killable(tmp_path) as process:
            url = read_address(tmp_path / "data")["url"]
            for number in range(chance.randrange(4, 12)):
                row = {"id": number, "customer": str(number % 3), "amount": chance.randrange(900)}
                plain_http.post(f"{url}/v1/tables/orders/rows?wait=true", json=[row]).raise_for_status()
            process.kill()
            process.wait(60)
    with Service(config) as service:
        traffic.push(service)
    with Service(config) as service:
        assert check(service, tmp_path) > 9


# --- one table, its writer stopped anywhere -----------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818 - no error of the product
    """The process ends here."""


class Told:
    """A pipeline whose steps are given: view `v` of (k, x), each step's changes as ((k, x), weight)."""

    CIRCUIT = """
import dbsp
t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.STRING})
pipeline = dbsp.circuit("told", {"v": t.group_by("k").aggregate(x=dbsp.max("x"))})
"""

    def __init__(self, folder: Path, keys: str, more: str = "", circuit: str = CIRCUIT) -> None:
        self.folder = folder
        keyed = f'keys = {{ v = "{keys}" }}' if keys else ""
        self.config = written(folder, f'[delta]\ndirectory = "lake"\n{keyed}\n{more}', circuit)
        folder.joinpath("data").mkdir(exist_ok=True)
        self.plan = load_plan(self.config)
        self.steps: list[list[tuple[tuple[int | None, str], int]]] = []
        self.dropped = 0
        self.page = 1 << 30
        self.heard: list[str] = []

    def take(self, chance: random.Random) -> None:
        """One more step: some keys get another row, or none."""
        held, changes = dict(self.content()), []
        for key in chance.sample([None, *range(6)], chance.randrange(4)):
            if key in held:
                changes.append(((key, held[key]), -1))
            if chance.random() < 0.7:
                changes.append(((key, f"{len(self.steps)}"), 1))
        self.steps.append(changes)

    def content(self, step: int | None = None) -> list[tuple[int | None, str]]:
        total: Counter[tuple[int | None, str]] = Counter()
        for changes in self.steps[:step]:
            for row, weight in changes:
                total[row] += weight
        return [row for row, weight in total.items() if weight]

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(state="Running", step=len(self.steps))

    def kept_from(self) -> int:
        return self.dropped

    def read(self, view: str, first: int, now: Snapshot, rows_max: int, *, anew: bool = False) -> ViewChanges:
        assert rows_max > 0
        if first < self.dropped:
            raise PositionError("dropped")
        next_ = min(now.step, first + self.page)
        found = [(step, self.table(self.steps[step])) for step in range(first, next_)]
        return ViewChanges(
            view=view, first=first, next=next_, schema=self.table([]).schema,
            steps=tuple(StepChanges(step=step, table=table) for step, table in found if len(table)),
        )  # fmt: skip

    def table(self, changes: list[tuple[tuple[int | None, str], int]]) -> pa.Table:
        columns = {
            "k": pa.array([row[0] for row, _ in changes], INT64),
            "x": pa.array([row[1] for row, _ in changes], STRING),
            "weight": pa.array([weight for _, weight in changes], INT64),
        }
        return pa.table(columns)

    def read_view(self, view: str) -> ViewRows:
        return ViewRows(view=view, step=len(self.steps), table=self.table([(row, 1) for row in self.content()]))

    def tables(self) -> DeltaTables:
        """A writer that knows nothing yet."""
        return DeltaTables(
            self.config,
            self.plan,
            self,
            self,
            lambda notice: self.heard.append(f"{notice.EVENT} {notice.fields().get('error')}"),
        )

    def round(self, tables: DeltaTables | None = None, *, final: bool = False) -> DeltaTables:
        """All that there is, by a writer that starts, unless one is given."""
        if tables is None:
            tables = self.tables()
            tables.open()
        tables.round(final=final)
        return tables

    def check(self, keyed: bool, seen: set[str] | None = None) -> None:
        """Every version of the table, but those seen before."""
        for step, table in versions(self.folder, "v", seen):
            held = rows_of(table) if keyed else net(table, 2)
            assert held == Counter(self.content(step)), step

    def newest(self) -> int:
        return max(step for step, _ in versions(self.folder, "v"))


@pytest.mark.parametrize("keys", ["k", ""])
@pytest.mark.parametrize("seed", rotating(range(4), 2))
def test_a_writer_that_ends_anywhere_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, seed: int
) -> None:
    """Before and after each kind of commit; several steps, or one, in a commit."""
    told, chance = Told(tmp_path, keys), random.Random(seed)
    ended, seen = 0, set[str]()
    for _ in range(15):
        for _ in range(chance.randrange(1, 4)):
            told.take(chance)
        told.page = chance.choice([1, 2, 1 << 30])
        with monkeypatch.context() as patched:
            kind = chance.choice(["create", "add", *(["merge", "merge", "replace"] if keys else ["add"]), "none"])
            after = chance.random() < 0.5
            if kind != "none":
                real = getattr(DeltaTable, kind)

                def stop(self: DeltaTable, *given: Any, real: Any = real, after: bool = after) -> None:
                    if after:
                        real(self, *given)
                    raise Stopped

                patched.setattr(DeltaTable, kind, stop)
            told.round()
            ended += bool(told.heard)
            told.heard.clear()
        if (tmp_path / "lake" / "v").exists():
            told.check(bool(keys), seen)
    told.round(final=True)
    assert told.heard == []
    told.check(bool(keys))
    assert told.newest() == len(told.steps)
    assert ended


@pytest.mark.parametrize("keys", ["k", ""])
def test_of_two_writers_at_one_position_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    """A coordinator that was replaced and does not know it writes what its successor has written: not twice."""
    told = Told(tmp_path, keys)
    old = told.round()
    told.steps.append([((1, "a"), 1)])
    new = told.tables()
    new.open()
    kind = "merge" if keys else "add"
    real = getattr(DeltaTable, kind)

    def first_the_other(self: DeltaTable, *given: Any) -> None:
        monkeypatch.undo()
        told.round(new)
        real(self, *given)

    monkeypatch.setattr(DeltaTable, kind, first_the_other)
    told.round(old)
    assert any("cannot be written" in heard for heard in told.heard), told.heard
    told.check(bool(keys))
    told.steps.append([((2, "b"), 1)])
    told.round(old)
    told.round(old)
    assert [heard.partition(" ")[0] for heard in told.heard] == ["delta-failed", "delta-written"]
    told.check(bool(keys))
    assert told.newest() == len(told.steps)


def test_steps_that_were_dropped(tmp_path: Path) -> None:
    """A table of rows is made anew from the view; one of changes would lack some, and says so."""
    chance = random.Random(5)
    for keys in ("k", ""):
        (tmp_path / f"of{keys}").mkdir()
        told = Told(tmp_path / f"of{keys}", keys)
        told.steps.append([((1, "a"), 1)])
        told.round()
        for _ in range(5):
            told.take(chance)
        told.dropped = 4
        told.round()
        if keys:
            told.check(keyed=True)
            assert told.newest() == len(told.steps)
        else:
            assert "dropped" in told.heard[0]
            assert "delete the table, and it is made anew of what is left" in told.heard[0]
            assert told.newest() == 1


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("keys", ["k", ""])
def test_a_table_that_another_past_has_written_is_refused(tmp_path: Path, keys: str, noted: bool) -> None:
    """The data folder is put back from a copy: also when the pipeline has come as far as the table, and after a restart."""
    told = Told(tmp_path, keys)
    told.steps.append([((1, "a"), 1)])
    if noted:
        told.round()
    else:
        DeltaNotes(told.config.data_dir).mark()
    shutil.copytree(told.config.data_dir, tmp_path / "copy")
    running = told.tables()
    running.open()
    told.steps += [[((2, "b"), 1)], [((3, "c"), 1)]]
    told.round(running)
    assert told.newest() == 3
    shutil.rmtree(told.config.data_dir)
    (tmp_path / "copy").rename(told.config.data_dir)
    told.steps[1:] = [[((4, "d"), 1)], [((5, "e"), 1)], [((6, "f"), 1)]]
    with pytest.raises(ConfigError, match=rf"put back from a copy: .* step={int(noted)} table_step=3"):
        told.round()
    told.round(running)
    assert "put back from a copy" in told.heard[-1]
    told.config = replace(told.config, delta=replace(told.config.delta, directory="elsewhere"))
    told.round()
    told.config = replace(told.config, delta=replace(told.config.delta, directory="lake"))
    with pytest.raises(ConfigError, match="put back from a copy"):
        told.round()
    shutil.rmtree(tmp_path / "lake")
    told.round()
    told.check(bool(keys))
    assert told.newest() == len(told.steps)


def test_a_new_table_of_changes_begins_with_the_oldest_that_are_left(tmp_path: Path) -> None:
    """Steps are dropped on while it is made; and the next start goes on there."""
    told = Told(tmp_path, "")
    told.steps += [[((number, "a"), 1)] for number in range(6)]
    told.dropped = 2
    read = told.read

    def dropping(*given: Any, **named: Any) -> ViewChanges:
        told.dropped += told.dropped < 4
        return read(*given, **named)

    told.read = dropping  # type: ignore[method-assign]
    told.round()
    assert told.heard == []
    (last,) = [table for step, table in versions(tmp_path, "v") if step == 6]
    assert net(last, 2) == {(4, "a"): 1, (5, "a"): 1}
    told.steps.append([((7, "a"), 1)])
    told.round()
    assert (told.heard, told.newest()) == ([], 7)


def test_a_table_of_rows_that_are_not_kept_cannot_be_made_of_the_rest(tmp_path: Path) -> None:
    told = Told(tmp_path, "k", circuit=Told.CIRCUIT.replace(")})\n", ")}, materialize=False)\n"))
    told.steps += [[((number, "a"), 1)] for number in range(6)]
    told.dropped = 2
    told.round()
    assert "because steps were dropped: view=v first=2" in told.heard[0]
    assert "`materialize`" in told.heard[0]
    assert not (tmp_path / "lake" / "v").exists()
    told.dropped = 0
    told.round()
    told.check(keyed=True)
    assert told.newest() == 6
    told.take(random.Random(1))
    told.dropped = 7
    told.take(random.Random(2))
    told.round()
    assert "dropped" in told.heard[-1]
    assert "`materialize`" in told.heard[-1]


@pytest.mark.parametrize("keys", ["k", ""])
def test_a_table_that_was_deleted_is_made_anew(tmp_path: Path, keys: str) -> None:
    """Also while its writer runs: of rows from the view, of changes from the first step that is kept."""
    told = Told(tmp_path, keys)
    told.steps += [[((1, "a"), 1)], [((2, "b"), 1)]]
    tables = told.round()
    for _ in range(2):
        shutil.rmtree(tmp_path / "lake")
        told.steps.append([((len(told.steps) + 1, "c"), 1)])
        told.round(tables)
        assert told.newest() == len(told.steps)
        told.check(bool(keys))
    assert told.heard == []


def test_a_quiet_table_says_now_and_then_how_far_it_is(tmp_path: Path) -> None:
    """So that a start later on does not take steps for missing that changed nothing."""
    told = Told(tmp_path, "", "[output]\nretention_steps = 6\n")
    told.steps.append([((1, "a"), 1)])
    tables = told.round()
    for _ in range(7):
        told.steps.append([])
        told.dropped = max(0, len(told.steps) - 6)
        told.round(tables)
    told.steps.append([((2, "b"), 1)])
    told.round()
    assert told.heard == []
    told.check(keyed=False)
    assert told.newest() == len(told.steps)


def test_rows_that_share_a_key_are_no_table(tmp_path: Path) -> None:
    """What the plan rules out would be named, not written."""
    told = Told(tmp_path, "k")
    told.round()
    told.steps.append([((1, "a"), 1), ((1, "b"), 1)])
    told.round()
    assert "two rows of one key" in told.heard[0]
    assert told.newest() == 0


# --- what is in the way -----------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_written_is_told_of_and_tried_again(tmp_path: Path) -> None:
    config, traffic = written(tmp_path), Traffic(4)
    (tmp_path / "lake").write_text("a file where the tables' folder should be")
    failing, failed = threading.Event(), set[str]()

    class Heard:
        def stepped(self, *_given: Any, **_more: Any) -> None:
            """Nothing to hear."""

        def noted(self, notice: Notice) -> None:
            if isinstance(notice, DeltaFailed):
                assert str(tmp_path / "lake") in notice.error
                failed.add(notice.view)
                if len(failed) == 3:
                    failing.set()

    service = Service(config)
    service.tell(Heard())
    with service:
        traffic.push(service, 3)
        assert failing.wait(60)
        errors = {shown["view"]: shown["error"] for shown in service.status()["delta"]}
        assert any("cannot be written" in (error or "") for error in errors.values()), errors
        text = service.metrics.text(service.snapshot, service.delta.status).decode()
        assert 'dbsp_delta_failing{view="large"} 1.0' in text
        (tmp_path / "lake").unlink()
        traffic.push(service, 3)
    with Service(config) as service:
        check(service, tmp_path)
        assert {max(step for step, _ in versions(tmp_path, view)) for view in service.views()} == {
            service.snapshot.step
        }


def test_tables_of_others_are_refused_at_the_start(tmp_path: Path) -> None:
    """Also this pipeline's own of before it was restored: a backup has no mark."""
    config = written(tmp_path)
    with Service(config) as service:
        Traffic().push(service)
    (config.data_dir / MARK_FILE).unlink()
    before = deltalake.DeltaTable(str(tmp_path / "lake" / "large")).version()
    with pytest.raises(ConfigError, match="belongs to another pipeline, or to this one before it was restored"):
        Service(config).__enter__()
    assert deltalake.DeltaTable(str(tmp_path / "lake" / "large")).version() == before


def test_a_table_with_other_columns_is_refused_at_the_start(tmp_path: Path) -> None:
    with Service(written(tmp_path)) as service:
        Traffic().push(service)
    other = written(tmp_path, DELTA.replace('per_customer = "customer", ', ""))
    with pytest.raises(ConfigError, match="per_customer columns=step, weight"):
        Service(other).__enter__()


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ('[delta]\ndirectory = "l"\nviews = ["larg"]', ConfigError, "no such view: delta names larg"),
        (
            '[delta]\ndirectory = "l"\nkeys = { large = "customer" }',
            CircuitError,
            "two rows of the view may have one key",
        ),
        (
            '[delta]\ndirectory = "l"\nkeys = { large = "nobody" }',
            CircuitError,
            "no such column: view=large column=nobody",
        ),
        ('[delta]\ndirectory = "l"\n[output]\nkind = "files"', ConfigError, "output.kind=files"),
        ('[delta]\ndirectory = "l"\nviews = ["large"]\nkeys = { largest = "customer" }', ConfigError, "view=largest"),
        ('[delta]\ndirectory = "l"\ninterval_s = 0', ConfigError, "delta.interval_s"),
        ('[delta]\ndirectory = "l"\nkeep_hours = 0', ConfigError, "too small: delta.keep_hours=0 least=1"),
        ('[delta]\ndirectory = "l"\nkeep_hours = 0.9', ConfigError, "keep_hours"),
        ('[delta]\ndirectory = "l"\ninterval_s = inf', ConfigError, "not a finite number: delta.interval_s=inf"),
        ('[delta]\ndirectory = "l"\nkeys = { dead_letters = "reason" }', ConfigError, "delta names dead_letters"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, more: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_plan(written(tmp_path, more))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ('"d": dbsp.DURATION', "no such type: view=v column=d type=duration"),
        ('"a b": dbsp.INT64', "a Delta table cannot have a column of this name: view=v column='a b'"),
        ('"a`b": dbsp.INT64', "a Delta table cannot have a column of this name: view=v column='a`b'"),
        ('"A": dbsp.INT64, "a": dbsp.INT64', "differ in case only: view=v columns='A' 'a'"),
        (
            '"k": dbsp.INT64, "s": dbsp.struct_of({"x": dbsp.INT64, "X": dbsp.INT64})',
            "differ in case only: view=v columns='x' 'X'",
        ),
        ('"f": dbsp.FLOAT64', "not a key of a Delta table: view=v column=f"),
    ],
)
def test_columns_that_delta_has_not(tmp_path: Path, column: str, message: str) -> None:
    name = column.split('"')[1]
    circuit = (
        f'import dbsp\nt = dbsp.table("t", {{{column}}}, primary_key=["{name}"])\n'
        'pipeline = dbsp.circuit("x", {"v": t})\n'
    )
    with pytest.raises(ConfigError, match=message):
        load_plan(written(tmp_path, f'[delta]\ndirectory = "l"\nkeys = {{ v = "{name}" }}', circuit))


def test_a_column_that_is_the_tables_own_in_another_case(tmp_path: Path) -> None:
    circuit = 'import dbsp\npipeline = dbsp.circuit("x", {"v": dbsp.table("t", {"Weight": dbsp.INT64})})\n'
    with pytest.raises(ConfigError, match="differ in case only: view=v columns='Weight' 'weight'"):
        load_plan(written(tmp_path, '[delta]\ndirectory = "l"', circuit))


def test_dead_letters_are_a_table_if_they_are_named(tmp_path: Path) -> None:
    config = written(tmp_path, '[delta]\ndirectory = "lake"\nviews = ["dead_letters"]')
    with Service(config) as service:
        (tmp_path / "rows").mkdir()
        from dbsp.io.formats import decode_json  # noqa: PLC0415

        bad = decode_json(b'{"id": 1, "customer": "a", "amount": 3}\n{"id": "x"}', service.table("orders"))
        service.wait_until_processed(service.push("orders", bad), 60)
    table = deltalake.DeltaTable(str(tmp_path / "lake" / "dead_letters")).to_pyarrow_table()
    assert table.column("reason").to_pylist() == ["column id: expected int64, found a string"]


def test_nothing_is_asked_of_it_without_a_directory(tmp_path: Path) -> None:
    with Service(written(tmp_path, "")) as service:
        assert service.status()["delta"] == []
    assert not (tmp_path / "data" / MARK_FILE).exists()


def test_an_address_is_the_object_stores(tmp_path: Path) -> None:
    config = written(tmp_path, '[delta]\ndirectory = "s3://bucket/shop/"')
    assert config.delta_uri("large") == "s3://bucket/shop/large"
