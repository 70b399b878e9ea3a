"""Backups that are broken off: a process killed at any point, a service that stops, a full disk. The pipeline is as it was."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.backup import making, manifests, restoring
from dbsp.coordinator.backup.process import Backups
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DbspError, UnavailableError
from tests import plain_http
from tests.coordinator.copies import pipeline, prints
from tests.coordinator.shop import ORDERS, killable, rows, script, settings
from tests.forked import Forked
from tests.pace import rotating

# --- processes that end ---------------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
from dbsp.coordinator.backup import child, making, manifests
def ended(owner, name, when, count):
    real, calls = getattr(owner, name), []
    def call(*args, **kwargs):
        calls.append(1)
        if when == "before" and len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*args, **kwargs)
        if when == "after" and len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, call)
owner, name, when, count = sys.argv[1:]
ended({"making": making, "manifests": manifests, "child": child}[owner], name, when, int(count))
child.main()
"""
READERS = """
import sys, os, lmdb
for file in sys.argv[1:]:
    with lmdb.open(os.path.dirname(file), readonly=True, create=False, lib_version=0) as env:
        if env.reader_check():
            print(file)
"""
"""Names the files whose pages a process holds that is no more."""
POINTS = [
    ("making", "begin", "before", 1), ("making", "begin", "after", 1), ("making", "copy", "after", 1),
    *(("making", "sync_path", "before", count) for count in (1, 4, 8)), ("making", "diagnose", "after", 1),
    ("manifests", "checksum", "before", 3), ("manifests", "write_manifest", "before", 1),
    ("manifests", "write_manifest", "after", 1), ("child", "put", "before", 1), ("child", "put", "before", 2),
    ("child", "put", "before", 3), ("child", "put", "before", 4),
]  # fmt: skip
WHAT_IS_LEFT = {
    ("making", "begin", "after", 1): {"unfinished"},  # its name was not told yet
    ("child", "put", "before", 2): {"unfinished"},
    ("child", "put", "before", 4): {"whole"},  # only the answer is lost
}


@pytest.mark.crash
@pytest.mark.parametrize("point", rotating(POINTS, 6), ids=lambda point: "-".join(map(str, point)))
def test_killed_anywhere_it_leaves_the_pipeline_as_it_was(
    folder: Path, point: tuple[str, str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error, no folder that counts, no pages held; the next backup is whole."""
    config = settings(folder)
    with Service(config) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        command = [sys.executable, "-c", CHILD, *map(str, point)]
        monkeypatch.setattr(service._backups, "_command", command)
        with pytest.raises(UnavailableError, match="interrupted: its process ended: exit=-9"):
            service.back_up(folder / "backups", 60)
        assert service.status()["backup"] is None
        if (folder / "backups").exists():
            assert {one.state for one in manifests.backups_in(folder / "backups", check=True)} <= WHAT_IS_LEFT.get(
                point, set()
            )
        monkeypatch.undo()
        readers = [sys.executable, "-c", READERS, *map(str, (folder / "data").rglob("data.mdb"))]
        assert subprocess.run(readers, capture_output=True, text=True, check=True).stdout == ""
        service.wait_until_processed(
            service.push("orders", pa.table({"id": [9], "customer": ["z"], "amount": [1]})), 60
        )
        made = service.back_up(folder / "backups", 60)
        assert service.metrics.text(service.snapshot).count(b'dbsp_backups_total{result="failed"} 1.0') == 1
    other = pipeline(folder / "other")
    restore(Path(made["folder"]), other)
    with Service(other) as service:
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1), "z": (1, 1, 1)}
    assert diagnose(config).findings == ()


def restored_until(point: int, made: Path, folder: Path) -> None:
    """In a child: a restore that is killed before or behind the change of files of this number."""
    calls = itertools.count(1)

    def reached() -> None:
        if next(calls) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def ending(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            reached()
            found = real(*args, **kwargs)
            reached()
            return found

        setattr(owner, name, call)

    ending(Path, "rename")
    ending(shutil, "rmtree")
    ending(shutil, "copytree")
    restoring.restore(made, settings(folder))


@pytest.fixture
def with_files(folder: Path) -> tuple[Path, Config]:
    """A backup of a pipeline whose results are files in a folder of their own, and the settings it goes to."""
    more = '[output]\nkind = "files"\ndirectory = "results"\n'
    with Service(pipeline(folder / "one", more=more)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        made = Path(service.back_up(folder / "backups", 60)["folder"])
    return made, pipeline(folder / "other", more=more)


def start_anew(config: Config) -> None:
    with Service(config) as service:
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    assert diagnose(config).findings == ()
    assert sorted(path.name for path in (config.folder / "results" / ".progress").iterdir()) == ["0", "1"]
    shutil.rmtree(config.data_dir)
    shutil.rmtree(config.folder / "results")


@pytest.mark.crash
def test_a_restore_killed_anywhere_is_given_again(with_files: tuple[Path, Config], tmp_path: Path) -> None:
    made, config = with_files
    for point in itertools.count(1):
        ended = Forked(tmp_path / "said.txt", restored_until, point, made, config.folder).wait(120)
        assert ended in (0, -signal.SIGKILL), (tmp_path / "said.txt").read_text()
        if ended and not config.data_dir.exists():
            restore(made, config)
        assert config.data_dir.exists()
        if ended == 0 or point % 3 == 0:
            start_anew(config)
        else:
            shutil.rmtree(config.data_dir)
            shutil.rmtree(config.folder / "results")
        if ended == 0:
            break
    assert point > 10


def test_what_a_restore_that_fails_has_moved_is_taken_back(
    with_files: tuple[Path, Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, config = with_files
    for failing, number in (("rename", 1), ("rename", 2), ("sync_path", 1 << 30)):
        calls = itertools.count(1)
        owner = Path if failing == "rename" else restoring
        real = getattr(owner, failing)

        def call(*args: Any, number: int = number, calls: Any = calls, real: Any = real) -> Any:
            placed = config.data_dir.exists() and any(config.data_dir.iterdir())
            if next(calls) == number or (number > 2 and placed):
                raise OSError(errno.EIO, "Input/output error")
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, failing, call)
            with pytest.raises(UnavailableError, match="give the same command again"):
                restore(made, config)
        assert not config.data_dir.exists()
        assert not list((config.folder / "results").glob(".*"))
    restore(made, config)
    start_anew(config)


def test_one_at_a_time_and_a_stop_breaks_it_off(folder: Path) -> None:
    """A child that never answers its pins' question would hold no step: it is asked only between two of them, and killed late."""
    config, begun = settings(folder), threading.Event()
    found: list[BaseException] = []
    made = Backups(config, lambda *_: None)

    def checkpoint() -> None:
        begun.set()
        over.wait(60)

    def first() -> None:
        try:
            made.make(folder / "backups", checkpoint, lambda action: action())
        except DbspError as error:
            found.append(error)

    over, thread = threading.Event(), threading.Thread(target=first)
    thread.start()
    begun.wait(60)
    assert made.progress is not None
    assert made.progress.phase == "checkpoint"
    with pytest.raises(UnavailableError, match="a backup is under way"):
        made.make(folder / "backups", lambda: None, lambda action: action())
    made.close()
    over.set()
    thread.join(60)
    assert [type(error) for error in found] == [UnavailableError]
    assert made.progress is None


def _kill_amid(folder: Path, backups: str, moment: str) -> list[httpx.Response]:
    """Kill the service when it has come so far with a backup; what it had answered."""
    answered: list[httpx.Response] = []
    with killable(folder) as process:
        url = read_address(folder / "data")["url"]

        def ask() -> None:
            with suppress(httpx.HTTPError):
                answered.append(plain_http.post(f"{url}/v1/backup", json={"folder": str(folder / backups)}))

        asked = threading.Thread(target=ask)
        asked.start()
        while not any((folder / backups).glob(moment)) and asked.is_alive():
            pass
        process.kill()
        asked.join()
    return answered


def _states(folder: Path, backups: str) -> list[str]:
    listed = script("cli", "--json", "backups", backups, "--check", folder=folder)
    return sorted(one["state"] for one in json.loads(listed.stdout)["backups"])


@pytest.mark.crash
@pytest.mark.parametrize(
    "moment", rotating(["*.unfinished", "*.unfinished/workers/0001", "*.unfinished/input/data.mdb"], 3)
)
def test_the_service_is_killed_amid_a_backup(folder: Path, moment: str) -> None:
    """Its child ends with it; what is left is named as unfinished; the pipeline goes on, and its next backup is whole."""
    pushes = [
        pa.table(
            {"id": range(n, n + 50_000), "customer": [f"c{i % 5000}" for i in range(50_000)], "amount": [1] * 50_000}
        )
        for n in range(0, 250_000, 50_000)
    ]
    with killable(folder):
        url = read_address(folder / "data")["url"]
        for push in pushes:
            body = b"".join(json.dumps(row).encode() + b"\n" for row in push.to_pylist())
            assert plain_http.post(f"{url}/v1/tables/orders/rows?wait=true", content=body).is_success
    for number in range(10):
        backups = f"backups{number}"
        answered = _kill_amid(folder, backups, moment)
        with killable(folder):
            if _states(folder, backups) == ["whole"]:
                continue  # it came to its end before the kill: another one is begun
            assert answered == [], "the fault struck before the answer"
            again = script("cli", "--json", "backup", backups, folder=folder)
            assert again.returncode == 0, again.stderr
            break
    assert _states(folder, backups) == ["unfinished", "whole"]
    other = pipeline(folder / "other")
    restore(Path(json.loads(again.stdout)["folder"]), other)
    with Service(other) as service:
        assert rows(service) == {f"c{n}": (50, 50, 1) for n in range(5000)}


def test_a_service_that_stops_amid_a_backup(folder: Path) -> None:
    """Whoever asked is told so, nothing of it stays, and the same command makes it of the stopped pipeline."""
    found: list[DbspError] = []
    with Service(settings(folder)) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)

        def ask() -> None:
            try:
                service.back_up(folder / "backups")
            except DbspError as error:
                found.append(error)

        asked = threading.Thread(target=ask)
        asked.start()
        while not any((folder / "backups").glob("*.unfinished")) and asked.is_alive():
            pass
    asked.join(60)
    assert [error.message for error in found] == ["the backup was interrupted: the service has ended"]
    assert manifests.backups_in(folder / "backups", check=False) == []
    made, manifest = making.make(settings(folder), folder / "backups", lambda *_: None)
    assert manifest.step == 1
    assert [one.name for one in manifests.backups_in(folder / "backups", check=True)] == [made.name]


# --- full disks -----------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_is_one_error_and_nothing_is_lost(folder: Path) -> None:
    """Of the backup, and of what is restored: no file may become larger than the first worker's database."""
    config = settings(folder)
    with Service(config) as service:
        rows_ = pa.table({"id": range(20_000), "customer": ["c"] * 20_000, "amount": [1] * 20_000})
        service.wait_until_processed(service.push("orders", rows_), 60)
    made, _ = making.make(config, folder / "backups", lambda *_: None)
    before = prints(config.data_dir)

    def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        code += "sys.argv = ['coordinator', *sys.argv[1:]]; from dbsp.coordinator.commands import cli; cli.main()"
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    full = limited("backup", "full")
    assert full.returncode == 4
    assert re.fullmatch(
        r"error: the backup cannot be written: .* error=.*\nhint: .*nothing of the pipeline was changed\n", full.stderr
    )
    assert list((folder / "full").iterdir()) == []
    assert prints(config.data_dir) == before
    shutil.rmtree(config.data_dir)
    full = limited("restore", str(made))
    assert full.returncode == 4
    assert re.fullmatch(r"error: the backup cannot be restored: .*\nhint: .*the backup is as it was\n", full.stderr)
    assert not config.data_dir.exists()
    assert not list(folder.glob(".*restoring*"))
    assert [one.state for one in manifests.backups_in(made.parent, check=True)] == ["whole"]
    restore(made, config)
    with Service(config) as service:
        assert rows(service) == {"c": (20_000, 20_000, 1)}
