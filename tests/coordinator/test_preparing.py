"""What is done once after an installation is done before the first start, said if it takes a while, and tried once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dbsp.coordinator import preparing
from dbsp.coordinator.settings.config import Config
from dbsp.zset.kernels.compile import are_compiled, compile_all
from dbsp.zset.kernels.kernel import code_folder
from tests.coordinator.shop import settings


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(preparing, "say", lines.append)
    return lines


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(preparing, "compile_all", lambda: None)
    monkeypatch.setattr(preparing, "archive_of_spark", lambda: tmp_path / "a.jsa")
    return tmp_path / "a.jsa"


def asked(monkeypatch: pytest.MonkeyPatch, code: int = 0, words: str = "") -> list[list[str]]:
    """The commands that are run from now on; each ends with this code and these words."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, code, "", words)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def on(folder: Path, runtime: str) -> Config:
    return settings(folder, f"pipeline.runtime={runtime}")


def test_kernels_are_compiled_before_steps_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, said: list[str], folder: Path
) -> None:
    slow, done = threading.Event(), threading.Event()

    def compile_all() -> None:
        slow.wait(60)
        done.set()

    def say(text: str) -> None:
        said.append(text)
        slow.set()

    monkeypatch.setattr(preparing, "compile_all", compile_all)
    monkeypatch.setattr(preparing, "say", say)
    for compiled, words in ((False, "compiling kernels"), (True, "loading kernels")):
        slow.clear()
        done.clear()
        monkeypatch.setattr(preparing, "are_compiled", lambda compiled=compiled: compiled)
        preparing.prepare(on(folder, "local"), patience_s=0.01)
        assert done.is_set()
        assert words in said.pop()


def test_kernels_that_were_compiled_are_known_to_be(tmp_path: Path) -> None:
    """Also those of a checkout that is newer than the cache, as its content and not its age decides; none in an empty cache."""
    compile_all()
    for index in Path(code_folder()).rglob("*.nbi"):
        os.utime(index, (0, 0))
    assert are_compiled()
    program = "from dbsp.zset.kernels.compile import are_compiled; print(are_compiled())"
    empty = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=empty, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"


def test_an_archive_is_made_by_a_process_of_its_own_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch, said: list[str], folder: Path, archive: Path
) -> None:
    commands = asked(monkeypatch)
    preparing.prepare(on(folder, "local"))
    assert commands == []
    preparing.prepare(on(folder, "spark"))
    assert commands == [[sys.executable, "-m", "dbsp.runtime.spark.prepare"]]
    archive.touch()
    preparing.prepare(on(folder, "spark"))
    assert len(commands) == 1
    assert said == []


def test_an_archive_that_cannot_be_made_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, said: list[str], folder: Path, archive: Path
) -> None:
    commands = asked(monkeypatch, 1, "no room\n")
    for _ in range(2):
        preparing.prepare(on(folder, "spark"))
    assert len(commands) == 1
    assert said == ["Spark starts without an archive of its classes, which takes a little longer: no room"]
    assert preparing.refusal_of(archive).read_text() == "no room"
