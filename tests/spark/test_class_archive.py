"""Spark's JVM starts from an archive of its classes, which is made whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dbsp.errors import UnavailableError
from dbsp.runtime.spark import class_archive, prepare
from dbsp.runtime.spark.class_archive import UNUSED_DAYS, archive_file, forget_unused, making, using
from dbsp.runtime.spark.session import SparkSettings, configuration
from tests.pace import in_turn


def test_an_archive_is_of_one_java_and_one_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    found = [archive_file()]
    monkeypatch.setattr(class_archive, "java_command", lambda: str(java))
    found.append(archive_file())
    os.utime(java, (1, 1))
    found.append(archive_file())
    monkeypatch.setattr(class_archive.pyspark, "__version__", "0")
    found.append(archive_file())
    assert len(set(found)) == len(found)
    assert {path.parent for path in found} == {Path(class_archive.code_folder()) / "jvm"}


def test_java_is_told_of_one_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "with space" / "a.jsa"
    assert using(archive) == ""
    archive.parent.mkdir()
    archive.touch()
    os.utime(archive, (1, 1))
    assert using(archive) == f'"-XX:SharedArchiveFile={archive}"'
    assert archive.stat().st_mtime > time.time() - 3600, "it counts as used"
    conf = configuration(SparkSettings(), tmp_path, tmp_path, using(archive))
    assert conf["spark.driver.extraJavaOptions"].endswith(using(archive))
    assert conf["spark.executor.extraJavaOptions"].endswith(using(archive))
    assert (
        "SharedArchiveFile" not in configuration(SparkSettings(), tmp_path, tmp_path)["spark.executor.extraJavaOptions"]
    )


def test_archives_that_nobody_uses_go(tmp_path: Path) -> None:
    ages = {"new": 1, "old": UNUSED_DAYS + 1}
    for name, days in ages.items():
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (time.time() - days * 86_400,) * 2)
    forget_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new.jsa"]


@pytest.mark.spark
@pytest.mark.skipif(
    not in_turn(1, 3), reason="at every third commit: `make test` makes an archive before it; `make soak` runs it"
)
def test_it_is_made_and_used_by_the_next_start(tmp_path: Path) -> None:
    """As the JVM tells of where each class comes from."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    made = subprocess.run(
        [sys.executable, "-m", "dbsp.runtime.spark.prepare"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    (archive,) = (tmp_path / "cache" / "jvm").iterdir()
    assert str(archive) in made.stdout
    classes = tmp_path / "classes.txt"
    script = f"""if True:
        from dbsp.runtime.spark import session
        session._COMPILER += " -Xlog:class+load=info:file={classes}"
        session.start(session.SparkSettings(master="local[1]")).stop()
    """
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True)
    context = [line for line in classes.read_text().splitlines() if "org.apache.spark.SparkContext source:" in line]
    assert ["shared objects file (top)" in line for line in context] == [True]


def test_nothing_is_left_of_one_that_was_not_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(archive: Path) -> None:
        archive.write_bytes(b"half")
        raise UnavailableError("Java died")

    monkeypatch.setattr(prepare, "archive_file", lambda: tmp_path / "jvm" / "a.jsa")
    monkeypatch.setattr(prepare, "_write", broken)
    with pytest.raises(UnavailableError, match="Java died"):
        prepare.prepare()
    assert list((tmp_path / "jvm").iterdir()) == []


@pytest.mark.parametrize("ends", ["exit 3", "kill -9 $$"])
def test_what_a_java_writes_that_fails_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str
) -> None:
    def start(*_: object, java_option: str) -> SimpleNamespace:
        file = java_option.partition("=")[2].rstrip('"')
        process = subprocess.Popen(["bash", "-c", f"cat; echo half > '{file}'; {ends}"], stdin=subprocess.PIPE)
        return SimpleNamespace(context=SimpleNamespace(stop=lambda: None), process=process, stop=process.wait)

    monkeypatch.setattr(prepare, "archive_file", lambda: tmp_path / "jvm" / "a.jsa")
    monkeypatch.setattr(prepare, "start", start)
    monkeypatch.setattr(prepare, "_work", lambda _: None)
    with pytest.raises(UnavailableError, match="Java failed when it wrote"):
        prepare.prepare()
    assert list((tmp_path / "jvm").iterdir()) == []


def test_one_that_is_there_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.jsa").write_bytes(b"whole")
    monkeypatch.setattr(prepare, "archive_file", lambda: tmp_path / "a.jsa")
    assert prepare.prepare().read_bytes() == b"whole"
    assert making(tmp_path / "a.jsa") == f'"-XX:ArchiveClassesAtExit={tmp_path / "a.jsa"}"'
