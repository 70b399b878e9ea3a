"""A missing tool is one line on standard error that names the package to install."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def need(box: Path, *things: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask `tools/need` on a machine that has only what lies in the box."""
    env = {"PATH": str(box), **environment}
    command = ["/bin/sh", str(ROOT / "tools" / "need"), *things]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def program(box: Path, name: str, text: str) -> None:
    """Put a shell script into the box."""
    path = box / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("thing", "package"),
    [
        ("python", "apt install python3 python3-venv"),
        ("java", "apt install openjdk-17-jre-headless"),
        ("strace", "apt install strace"),
        ("gcc", "apt install gcc"),
    ],
)
def test_a_missing_thing_names_its_package(tmp_path: Path, thing: str, package: str) -> None:
    done = need(tmp_path, thing)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert package in done.stderr
    program(tmp_path, "apt-get", "exit 0")
    assert f"sudo {package}" in need(tmp_path, thing).stderr


@pytest.mark.parametrize(
    ("says", "missing"),
    [
        ('openjdk version "1.8.0_432"', "is 1"),
        ('openjdk version "11.0.25" 2024-10-15', "is 11"),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", "does not run"),
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
    ],
)
def test_java_must_be_17(tmp_path: Path, says: str, missing: str | None) -> None:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    program(tmp_path / "home" / "bin", "java", f"echo '{says}' >&2".replace("couldn't", "could not"))
    done = need(tmp_path, "java", JAVA_HOME=str(tmp_path / "home"))
    assert done.returncode == (0 if missing is None else 1)
    assert done.stderr == "" if missing is None else missing in done.stderr


def test_an_old_python_is_named(tmp_path: Path) -> None:
    program(tmp_path, "python3", 'case "$2" in *print*) echo 3.9 ;; *) exit 1 ;; esac')
    assert "(found 3.9)" in need(tmp_path, "python").stderr


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    program(tmp_path, "python3", 'case "$2" in *print*) echo 3.12 ;; *ensurepip*) exit 1 ;; *) exit 0 ;; esac')
    assert "apt install python3.12-venv" in need(tmp_path, "python").stderr


def test_a_newer_python_beside_an_old_one_is_taken(tmp_path: Path) -> None:
    program(tmp_path, "python3", 'case "$2" in *print*) echo 3.9 ;; *) exit 1 ;; esac')
    program(tmp_path, "python3.12", 'case "$2" in *print*) echo 3.12 ;; *) exit 0 ;; esac')
    assert need(tmp_path, "python").stdout == "python3.12\n"


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="tells what the machine is")
def test_linux_is_linux(tmp_path: Path) -> None:
    program(tmp_path, "uname", "echo Darwin")
    done = need(tmp_path, "linux")
    assert done.returncode == 1
    assert "need Linux (this is Darwin)" in done.stderr
