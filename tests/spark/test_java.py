"""Missing or old Java is one clear error before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.errors import ConfigError
from dbsp.runtime.spark.java import require_java


def _java(folder: Path, prints: str, code: int = 0) -> dict[str, str]:
    binary = folder / "bin" / "java"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho '{prints}' >&2\nexit {code}\n")
    binary.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": "/nowhere"}


def test_no_java_at_all() -> None:
    with pytest.raises(ConfigError, match=r"no `java` on the PATH.*apt install openjdk-17.*brew.*conda.*JAVA_HOME"):
        require_java({"PATH": "/nowhere"})


def test_java_home_without_a_java(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be run: java=.*bin/java"):
        require_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})


def test_old_java(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"newer Java: java=.* version=8 version_min=17"):
        require_java(_java(tmp_path, 'java version "1.8.0_402"'))


def test_the_stub_of_macos(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not tell its version"):
        require_java(_java(tmp_path, "Unable to locate a Java Runtime.", 1))


def test_new_java(tmp_path: Path) -> None:
    assert require_java(_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')) == 21
