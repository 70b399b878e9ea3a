"""Backups: what is restored goes on as the run that was never interrupted; what cannot be is refused, and says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import lmdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import dbsp
from dbsp.coordinator.backup import making, manifests, restoring
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose, read_ledger
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.distribute.names import STRATEGIES as BY_KEY
from dbsp.errors import CircuitError, ConfigError, DataError, UnavailableError
from dbsp.io.connectors.kafka import KafkaInput
from dbsp.io.embedded_output import read_outputs
from dbsp.io.pushed import Producer
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan as make_plan
from dbsp.zset.batch import Batch
from tests.coordinator import under_traffic
from tests.coordinator.copies import pipeline, prints
from tests.coordinator.shop import CIRCUIT, ORDERS, SETTINGS, answering, rows, script, settings
from tests.laws.circuits import relations
from tests.laws.relation import Relation, canonical, p, t, u
from tests.pace import examples, in_turn, rotating

Step = list[tuple[str, bool, tuple[Any, ...]]]
"""What is pushed before one step: (table, whether it is deleted, row)."""

values = st.tuples(
    st.sampled_from(["x", "y", "a longer string than eight", None]),
    st.sampled_from([None, -3, 0, 1, 2, 5]),
    st.sampled_from([None, 0.0, 0.25, -1.5, 8.0]),
)
changes = st.one_of(
    values.map(lambda row: ("t", False, row)),
    values.map(lambda row: ("t", True, row)),
    values.map(lambda row: ("p", False, row)),
    st.tuples(st.integers(0, 3), values).map(lambda row: ("u", False, (row[0], *row[1]))),
)
histories = st.lists(st.lists(changes, min_size=1, max_size=6), min_size=2, max_size=5)


class Run:
    """A service that is fed step by step."""

    def __init__(self, config: Config, plan: Plan) -> None:
        self.config = config
        self.service = Service(config, build(config, plan=plan))
        self.service.start(timeout_s=60)

    def push(self, steps: list[Step], first: int) -> None:
        """Each table's changes of a step as one numbered push, waited for; the same push again is taken once."""
        for number, step in enumerate(steps, first):
            for table in ("t", "u", "p"):
                found = [(row, deleted) for name, deleted, row in step if name == table]
                if not found:
                    continue
                schema = self.service.table(table).schema
                batch = Batch.from_rows(schema, [(row, -1 if deleted else 1) for row, deleted in found])
                for sequence, delete in ((2 * number, False), (2 * number + 1, True)):
                    part = Batch.from_rows(schema, [(row, abs(w)) for row, w in batch.to_rows() if (w < 0) is delete])
                    if len(part):
                        position = self.service.push(
                            table, part, delete=delete, producer=Producer(id="test", sequence=sequence)
                        )
                        self.service.wait_until_processed(position, 60)

    def view(self) -> Counter[tuple[Any, ...]]:
        found = self.service.read_view("v").table
        return Counter({canonical(tuple(list(row.values())[:-1])): list(row.values())[-1] for row in found.to_pylist()})

    def outputs(self) -> list[tuple[int, int, list[Any]]]:
        """Every part that consumers can read."""
        return [
            (step, worker, [canonical(tuple(row.values())) for row in table.to_pylist()])
            for view in ("v", "t", "u", "dead_letters")
            for step, worker, table in read_outputs(self.config.data_dir, view)
        ]


def backed_up(run: Run, folder: Path, running: bool) -> Path:
    """A backup by the service, or of its files after it was stopped without a checkpoint."""
    if running:
        return Path(run.service.back_up(folder, 60)["folder"])
    run.service.stop(now=True)
    return making.make(run.config, folder, lambda *_: None)[0]


@hypothesis_settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), histories, st.data(), st.integers(1, 3), st.booleans(), st.booleans())
@pytest.mark.timeout(600)
def test_what_is_restored_goes_on_as_if_nothing_had_happened(
    relation: Relation, steps: list[Step], data: st.DataObject, workers: int, running: bool, fewer: bool
) -> None:
    """Views at the backup, views and every part of every output after the rest of the same input: all are equal."""
    plan = make_plan(dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p}))
    cut = data.draw(st.integers(1, len(steps) - 1))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = Run(pipeline(folder / "one", workers), plan)
        run.push(steps[:cut], 0)
        if fewer:  # what the workers have put out that leave is part of all changes
            run.service.rescale(1, 60)
        at_cut = run.view()
        made = backed_up(run, folder / "backups", running)
        if not running:
            run = Run(run.config, plan)
        run.push(steps[cut:], cut)
        expected, outputs = run.view(), run.outputs()
        run.service.stop()

        again = pipeline(folder / "other", workers)
        restore(made, again, plan=plan)
        assert diagnose(again).findings == ()
        run = Run(again, plan)
        try:
            assert run.view() == at_cut
            run.push(steps[:cut], 0)
            assert run.view() == at_cut, "pushes of before the backup are repeats"
            run.push(steps[cut:], cut)
            assert run.view() == expected
            assert run.outputs() == outputs
        finally:
            run.service.stop()


def test_what_workers_have_put_out_that_left_is_backed_up(folder: Path) -> None:
    """Their changes are part of all changes of a view."""
    plan = make_plan(dbsp.circuit("left", {"v": t, "t": t, "u": u}))
    run = Run(pipeline(folder / "one", 3), plan)
    run.push([[("u", False, (number, "x", 1, 0.25)) for number in range(30)]], 0)
    run.service.rescale(1, 60)
    made = backed_up(run, folder / "backups", running=True)
    outputs = run.outputs()
    assert {worker for _, worker, rows in outputs if rows} == {0, 1, 2}
    run.service.stop()
    again = pipeline(folder / "other", 3)
    restore(made, again, plan=plan)
    run = Run(again, plan)
    assert run.outputs() == outputs
    run.service.stop()


def workers_of(now: Snapshot) -> int:
    return 0 if now.layout is None else len(now.layout.workers)


def under_way(now: Snapshot) -> bool:
    """Return whether a warm-up copies, or a migration moves keys, so that the ledger has its plan."""
    return now.rescale is not None and getattr(now.rescale, "left_keys", 1) > 0


def rescaled(service: Service, strategy: str) -> None:
    with suppress(UnavailableError):  # it is taken back in the end where it would never end
        service.rescale(3, 120, strategy=strategy)


@pytest.mark.parametrize("strategy", rotating(STRATEGIES, 4))
def test_backups_under_traffic_and_amid_a_rescale(tmp_path: Path, strategy: str) -> None:
    """Each, restored, ends the rescale that was asked for; every step's outputs, before and after, are those of one worker."""
    folder = tmp_path / "one"
    folder.mkdir()
    # Eight keys of an owner in each step: a migration takes some twenty steps.
    overrides = ("checkpoint.interval_s=0.2", "layout.keys_per_step=8", "pipeline.workers=2")
    held = ("layout.acceptable_recovery_lag=0",) if strategy == "warmup" else ()
    config = under_traffic.settings(under_traffic.make_folder(folder), *overrides, *held)
    pause_s = under_traffic.WITHOUT_END_S if held else under_traffic.PAUSE_S
    with Service(config) as service, under_traffic.traffic(service, 7, pause_s):
        before = service.snapshot.version
        assert service.live_status.wait_for(lambda now: now.version > before, 60)
        scaled = threading.Thread(target=rescaled, args=(service, strategy))
        scaled.start()
        assert service.live_status.wait_for(lambda now: strategy == "cold" or under_way(now), 60)
        made = [Path(service.back_up(tmp_path / "backups", 60)["folder"]) for _ in range(2)]
        if held:
            service.cancel_rescale(60)
        scaled.join()
        step = service.snapshot.step
        assert service.live_status.wait_for(lambda now: now.step > step, 60), "steps go on"
    ledgers = [read_ledger(backup) for backup in made]
    assert any(ledger.migration_plans for ledger in ledgers) == (strategy in BY_KEY)
    assert any(ledger.rescale == 3 for ledger in ledgers) == (strategy == "warmup")
    for number, backup in enumerate(made):
        place = tmp_path / f"restored{number}"
        place.mkdir()
        again = under_traffic.settings(under_traffic.make_folder(place), *overrides)
        manifest = restore(backup, again)
        with Service(again) as service, under_traffic.traffic(service, number):
            assert service.live_status.wait_for(lambda now, step=manifest.step: now.step > step + 3, 60)
            assert service.live_status.wait_for(lambda now: now.rescale is None and workers_of(now) == 3, 60)
        assert diagnose(again).findings == ()
        under_traffic.check_golden(place, place / "replayed")


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
def test_a_service_that_cannot_be_asked_is_backed_up_all_the_same(tmp_path: Path) -> None:
    """It has no HTTP interface, so files are pinned while it moves them: what counts then as a backup is one."""
    folder = tmp_path / "one"
    folder.mkdir()
    config = under_traffic.settings(
        under_traffic.make_folder(folder), "checkpoint.interval_s=0.1", "pipeline.workers=2"
    )
    with Service(config) as service, under_traffic.traffic(service, 11):
        tried = [script("cli", "--json", "backup", "../backups", folder=folder)]
        assert service.snapshot.rollbacks == 0
    assert all(one.returncode in (0, 3, 4) for one in tried), tried
    made = [Path(json.loads(one.stdout)["folder"]) for one in tried if one.returncode == 0]
    assert made, tried
    assert len(manifests.backups_in(tmp_path / "backups", check=True)) == len(made)
    for number, backup in enumerate(made):
        place = tmp_path / f"restored{number}"
        place.mkdir()
        again = under_traffic.settings(under_traffic.make_folder(place))
        restore(backup, again)
        with Service(again) as service, under_traffic.traffic(service, number):
            pass
        under_traffic.check_golden(place, place / "replayed")


def test_files_in_and_out(folder: Path) -> None:
    """Files that were noted are known, later ones are read as new ones, results are written once."""
    more = (
        '[input]\nkind = "files"\ndirectory = "../landing"\nlook_every_s = 0.05\n'
        '[output]\nkind = "files"\ndirectory = "results"\n'
    )
    one, two = pipeline(folder / "one", more=more), pipeline(folder / "two", more=more)

    def land(number: int) -> None:
        place = folder / "landing" / "orders"
        place.mkdir(parents=True, exist_ok=True)
        ids = range(100 * number, 100 * number + 100)
        table = pa.table({"id": ids, "customer": [f"c{i % 7}" for i in ids], "amount": list(ids)})
        pq.write_table(table, place / f".{number}.parquet")
        (place / f".{number}.parquet").rename(place / f"{number}.parquet")

    def until(service: Service, count: int) -> dict[Any, Any]:
        assert service.live_status.wait_for(lambda now: sum(now.processed.values()) >= count, 60)
        return rows(service)

    def results(config: Config) -> dict[str, bytes]:
        found = sorted((config.folder / "results").glob("*/step-*"))
        return {str(path.relative_to(config.folder)): path.read_bytes() for path in found}

    land(0)
    with Service(one) as service:
        at_cut = until(service, 100)
        found = service.back_up(folder / "backups", 60)
        land(1)
        expected = until(service, 200)
    assert any("files of the input" in left for left in found["left_out"])
    with pytest.raises(ConfigError, match="data folder is not empty"):
        restore(Path(found["folder"]), one)
    shutil.rmtree(one.data_dir)
    with pytest.raises(ConfigError, match="outputs has steps of another history"):
        restore(Path(found["folder"]), one)
    restore(Path(found["folder"]), two)
    (folder / "landing" / "orders" / "1.parquet").rename(folder / "1.parquet")
    with Service(two) as service:
        assert rows(service) == at_cut
        (folder / "1.parquet").rename(folder / "landing" / "orders" / "1.parquet")
        assert until(service, 200) == expected
    again = results(two)
    assert again
    assert all(results(one)[name] == found for name, found in again.items())
    assert diagnose(two).findings == ()


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that was stopped, and a backup of it: copied for each test that asks for `made`."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS)
    with Service(settings(folder)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        service.back_up(folder / "backups", 60)
    return folder


@pytest.fixture
def made(folder: Path, original: Path) -> Path:
    shutil.copytree(original, folder, dirs_exist_ok=True)
    (backup,) = (folder / "backups").iterdir()
    return backup


def elsewhere(folder: Path, settings_: Callable[[str], str] = str, circuit: Callable[[str], str] = str) -> Config:
    """The same pipeline in another folder, with changes."""
    config = pipeline(folder / f"elsewhere-{len(list(folder.iterdir()))}")
    (config.folder / "pipeline.toml").write_text(settings_((config.folder / "pipeline.toml").read_text()))
    (config.folder / "circuit.py").write_text(circuit(CIRCUIT))
    return settings(config.folder)


def test_every_damage_of_a_backup_is_found_and_nothing_is_restored(folder: Path, made: Path) -> None:
    """One byte of any file, a file cut short or gone, the manifest too."""
    whole = prints(made)
    for name, content in whole.items():
        file = Path(name)
        half = len(content) // 2
        for harm in (content[:-1], content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :], None):
            file.unlink() if harm is None else file.write_bytes(harm)
            config = elsewhere(folder)
            with pytest.raises(DataError) as refused:
                restore(made, config)
            assert refused.value.hint
            (listed,) = manifests.backups_in(made.parent, check=True) or [None]
            assert listed is None or listed.state in ("damaged", "broken"), (name, listed)
            assert not config.data_dir.exists()
            file.write_bytes(content)
    assert [one.state for one in manifests.backups_in(made.parent, check=True)] == ["whole"]


def reseal(made: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the names in a manifest, as somebody would who knows how its checksum is made."""
    file = made / manifests.MANIFEST
    found = json.loads(file.read_text())
    change(found["backup"]["files"])
    body = json.dumps(found["backup"], sort_keys=True)
    file.write_text(json.dumps({**found, "sha256": hashlib.sha256(body.encode()).hexdigest()}))


@pytest.mark.parametrize(
    "name",
    ["../circuit.py", "/{folder}/circuit.py", "steps/../../circuit.py", "steps/./data.mdb", "steps//data.mdb", "", ".", "..",
     "steps", "steps/data.mdb/x", "control/data.mdb", "steps/\0", "steps/data.mdb/", "\u0001/../../circuit.py"],
)  # fmt: skip
def test_no_name_of_a_manifest_leads_out_of_its_folder(folder: Path, made: Path, name: str) -> None:
    """The first name is replaced by one that leads out, or stands twice, or is a folder's; nothing is read or written there."""
    name = name.replace("{folder}", str(folder).lstrip("/"))
    reseal(
        made,
        lambda files: (
            files[0].update(path=name)
            if name != "control/data.mdb"
            else files.append(dict(files[0], path=files[1]["path"]))
        ),
    )
    config = elsewhere(folder)
    before = prints(config.folder)
    with pytest.raises(DataError) as refused:
        restore(made, config)
    assert refused.value.hint == manifests.FOREIGN
    assert prints(config.folder) == before
    assert [listed.state for listed in manifests.backups_in(made.parent, check=False)] == ["broken"]


def test_no_link_in_a_backup_is_followed(folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, of a folder on its way, and one that was put there between the check and the copy."""
    steps, secret = made / "steps" / "data.mdb", folder / "secret"
    steps.rename(secret)
    steps.symlink_to(secret)
    for _ in range(2):
        config = elsewhere(folder)
        with pytest.raises(DataError, match="a file of the backup is reached through a link"):
            restore(made, config)
        assert not config.data_dir.exists()
        steps.unlink(missing_ok=True)
        if steps.parent.is_symlink():
            break
        steps.parent.rename(folder / "away")
        steps.parent.symlink_to(folder / "away")
        secret.rename(folder / "away" / "data.mdb")
    monkeypatch.setattr(restoring, "damage", lambda *_: [])
    steps.parent.unlink(missing_ok=True)
    steps.parent.mkdir()
    steps.symlink_to(folder / "circuit.py")
    config = elsewhere(folder)
    with pytest.raises(UnavailableError, match="cannot be restored"):
        restore(made, config)
    assert not config.data_dir.exists()


@pytest.mark.parametrize("change", [{"path": 7}, {"colour": "red"}, {"bytes": "many"}])
def test_a_manifest_of_another_shape_is_named(folder: Path, made: Path, change: dict[str, Any]) -> None:
    reseal(made, lambda files: files[0].update(change))
    with pytest.raises(DataError):
        restore(made, elsewhere(folder))


def test_what_is_stored_is_its_owners_alone(folder: Path) -> None:
    """Data, checkpoints, logs, a backup, what was restored; under the widest umask."""
    before = os.umask(0)
    try:
        (folder / "pipeline.toml").write_text(
            (folder / "pipeline.toml").read_text() + '[layout]\nstandbys = ["spare"]\n'
        )
        with Service(settings(folder)) as service, answering(service):
            service.wait_until_processed(service.push("orders", ORDERS), 60)
            service.checkpoint()
            service.rescale(3)
            made = Path(service.back_up(folder / "backups", 60)["folder"])
            found = list(_open_to_others(folder))
        config = elsewhere(folder)
        restore(made, config)
        found += [*_open_to_others(folder), *_open_to_others(config.folder)]
    finally:
        os.umask(before)
    assert found == []


def _open_to_others(folder: Path) -> Iterator[Path]:
    """What in the folders of a pipeline somebody else may read or write."""
    for name in ("data", "spare", "backups"):
        top = folder / name
        yield from (path for path in (top, *top.rglob("*")) if path.exists() and path.lstat().st_mode & 0o077)


def test_a_backup_that_changes_while_it_is_restored(folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check and the copy: the copy is checked too, and nothing of it stays."""
    file, config = made / "steps" / "data.mdb", elsewhere(folder)

    def changed(*_: object) -> list[str]:
        file.write_bytes(file.read_bytes()[::-1])
        return []

    monkeypatch.setattr(restoring, "damage", changed)
    with pytest.raises(DataError, match=f"changed while it was read: file={file}"):
        restore(made, config)
    assert not config.data_dir.exists()
    assert not list(config.folder.glob(".*restoring*"))


def test_a_backup_is_not_restored_where_it_does_not_belong(folder: Path, made: Path) -> None:
    before = prints(made)
    with pytest.raises(ConfigError, match="data folder is not empty"):
        restore(made, settings(folder))
    with pytest.raises(ConfigError, match="another pipeline: name"):
        restore(made, elsewhere(folder, settings_=lambda text: text.replace('"shop"', '"store"')))
    with pytest.raises(ConfigError, match=r"kind in \[output\]"):
        restore(made, elsewhere(folder, settings_=lambda text: text + '[output]\nkind = "files"\n'))
    with pytest.raises(CircuitError, match=r"amount > 500.* -> .*amount > 501"):
        restore(made, elsewhere(folder, circuit=lambda text: text.replace("500", "501")))
    with pytest.raises(DataError, match="no backup here"):
        restore(made.parent, elsewhere(folder))
    standby = elsewhere(folder, settings_=lambda text: text + '[layout]\nstandbys = ["spare"]\n')
    (standby.standbys[0] / "0000").mkdir(parents=True)
    with pytest.raises(ConfigError, match="standbys of another history"):
        restore(made, standby)
    assert not standby.data_dir.exists()
    assert prints(made) == before
    standby.data_dir.mkdir()
    shutil.rmtree(standby.standbys[0])
    restore(made, standby)
    with Service(standby) as service:
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    assert diagnose(standby).findings == ()


def test_where_no_backup_can_be_made(folder: Path) -> None:
    config = settings(folder)
    with pytest.raises(UnavailableError, match="nothing to back up"):
        making.make(config, folder / "backups", lambda *_: None)
    on_kafka = replace(config, input=KafkaInput(bootstrap="nowhere:1"))
    with pytest.raises(ConfigError, match="Kafka cannot be backed up"):
        making.make(on_kafka, folder / "backups", lambda *_: None)
    with Service(config) as service:
        with pytest.raises(ConfigError, match="inside the data folder"):
            service.back_up(config.data_dir / "backups")
        with pytest.raises(ConfigError, match="not an absolute path"):
            service.back_up(Path("backups"))
        (folder / "file").write_text("")
        with pytest.raises(UnavailableError, match="cannot be written"):
            service.back_up(folder / "file")
        assert Path(service.back_up(folder / "backups")["folder"]).is_dir()
    assert not (folder / "backups").joinpath("anything.unfinished").exists()


def test_a_broken_pipeline_is_not_backed_up(folder: Path, made: Path) -> None:
    """The copy is read as the doctor reads a pipeline; what fails is said of the pipeline's own file, and nothing is left."""
    file = settings(folder).data_dir / "workers" / "0001" / "durable" / "data.mdb"
    with lmdb.open(str(file.parent), map_size=1 << 28, lib_version=0) as env, env.begin() as txn:  # noqa: TID251 - as another program
        cursor = txn.cursor()
        assert cursor.set_range(b"c")
        chunk = cursor.value()
    content = file.read_bytes()
    assert chunk in content
    harm = chunk[:-40] + bytes(255 - byte for byte in chunk[-40:-39]) + chunk[-39:]
    file.write_bytes(content.replace(chunk, harm))
    with pytest.raises(DataError, match=f"files are damaged, so there is no backup.*{file}"):
        making.make(settings(folder), made.parent, lambda *_: None)
    assert [one.name for one in manifests.backups_in(made.parent, check=False)] == [made.name]


# --- the interfaces -------------------------------------------------------------------------------------------------


def test_over_http(folder: Path, service: Service, client: httpx.Client) -> None:
    service.wait_until_processed(service.push("orders", ORDERS), 60)
    answer = client.post("/v1/backup", json={"folder": str(folder / "backups")})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert Path(found["folder"]).is_dir()
    assert client.get("/v1/status").json()["last_backup"] == found
    assert client.get("/v1/status").json()["backup"] is None
    figures = client.get("/metrics").text
    assert f"dbsp_backup_bytes {float(found['bytes'])}" in figures
    assert 'dbsp_backups_total{result="made"} 1.0' in figures
    lines = [json.loads(line) for line in (folder / "data" / "coordinator.log").read_text().splitlines()]
    assert [line["folder"] for line in lines if line["event"] == "backup"] == [found["folder"]]
    assert client.post("/v1/backup", json={"folder": "relative"}).status_code == 400
    assert "/v1/backup" in client.get("/openapi.json").json()["paths"]


def test_by_the_command_line(folder: Path) -> None:
    """Without a service: backup, list, check, restore, and what goes wrong as exit codes."""
    with Service(settings(folder)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
    made = script("cli", "--json", "backup", "backups", folder=folder)
    assert made.returncode == 0, made.stderr
    place = json.loads(made.stdout)["folder"]
    (folder / "backups" / "20200101T000000Z-step-1.unfinished").mkdir()
    listed = script("cli", "backups", "backups", "--check", folder=folder)
    assert listed.returncode == 0
    assert "unfinished, can be deleted" in listed.stdout
    assert "whole, every checksum is right" in listed.stdout
    refused = script("cli", "restore", place, folder=folder)
    assert refused.returncode == 2
    assert "move the folder away" in refused.stderr
    shutil.rmtree(folder / "data")
    restored = script("cli", "restore", place, folder=folder)
    assert restored.returncode == 0, restored.stderr
    assert "go on with `dbsp-coordinator pipeline.toml`" in restored.stdout
    with Service(settings(folder)) as service:
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    (Path(place) / "steps" / "data.mdb").write_bytes(b"")
    broken = script("cli", "backups", "backups", "--check", folder=folder)
    assert broken.returncode == 3
    assert "steps/data.mdb" in broken.stdout
