"""The README's examples on other Pythons, and steps on Spark with other Javas, where the machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbsp.runtime.spark.java import java_version
from tests.packaging.conftest import ROOT, run

PYTHONS = ("3.12", "3.13", "3.14")
JAVAS = (21, 25)
JVMS = Path("/usr/lib/jvm")
ANSWER_S = 900.0
EXAMPLES = """
import doctest
found = doctest.testfile("README.md", module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
print(found.failed, found.attempted)
"""
SHOWN, WRONG = "[{'name': 'United', 'flights': 2,", "[{'name': 'United', 'flights': 3,"
SHOP = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING, "paid": dbsp.INT64}, primary_key="id")
sales = orders.group_by("item").aggregate(paid=dbsp.sum("paid"))
pipeline = dbsp.circuit("shop", {"sales": sales})
"""
SETTINGS = """
[pipeline]
name = "shop"
circuit = "shop.py:pipeline"
runtime = "spark"
workers = 2
[http]
enabled = false
"""
STEPS = """
from pathlib import Path
import pyarrow as pa
from dbsp.coordinator.settings.config import load_config
from dbsp.coordinator.service import Service
from dbsp.runtime.spark.java import java_command

if __name__ == "__main__":
    with Service(load_config(Path("pipeline.toml"), environment={})) as service:
        service.push("orders", pa.table({"id": [1, 2], "item": ["tea", "tea"], "paid": [3, 4]}))
        service.push("orders", pa.table({"id": [1], "item": ["tea"], "paid": [5]}))
        assert service.live_status.wait_for(lambda _now: service.lag_rows() == 0, 300)
        print(java_command(), service.read_view("sales").table.to_pylist())
"""
pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def pythons(version: str) -> Iterator[Path]:
    """The interpreters of a version, on the PATH and those of pyenv."""
    found = shutil.which(f"python{version}")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for each in [*([Path(found)] if found else []), *sorted(versions.glob(f"{version}.*/bin/python"))]:
        says = subprocess.run(
            [each, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=False,
        )
        if says.stdout.strip() == version:  # a shim of pyenv may name a version that is not chosen
            yield each


def homes(major: int) -> Iterator[Path]:
    """The folders of Java's installations of a version."""
    for java in sorted(JVMS.glob("*/bin/java")):
        says = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        if java_version(says.stderr) == major:
            yield java.parent.parent


@pytest.mark.parametrize("version", PYTHONS)
def test_the_readmes_examples_run_on_another_python(wheel: Path, tmp_path: Path, version: str) -> None:
    python = next(pythons(version), None)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    run(python, "-m", "venv", tmp_path / "venv", cwd=tmp_path, seconds=ANSWER_S)
    own = tmp_path / "venv" / "bin" / "python"
    run(own, "-m", "pip", "install", "-q", f"{wheel}[sql]", cwd=tmp_path, seconds=ANSWER_S)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert SHOWN in text
    for readme, failures in ((text, 0), (text.replace(SHOWN, WRONG), 1)):
        (tmp_path / "README.md").write_text(readme, encoding="utf-8")
        *_, last = run(own, "-c", EXAMPLES, cwd=tmp_path, seconds=ANSWER_S).splitlines()
        failed, attempted = map(int, last.split())
        assert failed == failures
        assert attempted > 10


@pytest.mark.spark
@pytest.mark.parametrize("major", JAVAS)
def test_spark_takes_steps_on_another_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    home = next(homes(major), None)
    if home is None:
        pytest.skip(f"there is no Java {major} in {JVMS}")
    for name, content in (("shop.py", SHOP), ("pipeline.toml", SETTINGS), ("steps.py", STEPS)):
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("JAVA_HOME", str(home))
    *_, last = run(sys.executable, "steps.py", cwd=tmp_path, seconds=ANSWER_S).splitlines()
    assert last == f"{home / 'bin' / 'java'} [{{'item': 'tea', 'paid': 9, 'weight': 1}}]"
