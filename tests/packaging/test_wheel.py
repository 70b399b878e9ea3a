"""The wheel holds all four folders and runs outside the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, run

FOLDERS = {"dbsp": "dbsp", "storage": "dbsp/storage", "io": "dbsp/io", "coordinator": "dbsp/coordinator"}


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, beside the packages that are installed here (but not this checkout)."""
    box = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", "--without-pip", box / "venv", cwd=box)
    python = box / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=box)
    resources = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=box).strip())
    # A path named in a .pth file is only searched: the links to this checkout in that folder are not followed.
    (resources / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_every_module_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "ls-files", "--", *FOLDERS, cwd=ROOT).split()
    for name in tracked:
        folder, _, rest = name.partition("/")
        if (ROOT / name).is_file() and (name.endswith((".py", ".ini", "py.typed")) or "/bundle/" in name):
            assert f"{FOLDERS[folder]}/{rest}" in names
    assert not {name.split("/")[0] for name in names} & {"io", "storage", "coordinator", "examples", "tests"}
    assert "dbsp/py.typed" in names
    assert "dbsp/coordinator/http/console/bundle/console.js" in names
    assert not [name for name in names if "/console/src/" in name or "node_modules" in name], "the source needs Node"
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_runs_outside_the_checkout(python: Path, tmp_path: Path) -> None:
    program = """
import io, dbsp, dbsp.io, dbsp.storage, dbsp.coordinator
assert io.StringIO and "site-packages" in dbsp.__file__, dbsp.__file__
numbers = dbsp.table("numbers", {"x": dbsp.INT64})
circuit = dbsp.circuit("sums", {"total": numbers.aggregate(total=dbsp.sum("x"))})
with dbsp.open(circuit, workers=2) as run:
    run.push("numbers", [{"x": 1}, {"x": 2}])
    run.step()
    print(run.view("total").to_pylist())
"""
    assert run(python, "-c", program, cwd=tmp_path) == "[{'total': 3}]\n"


@pytest.mark.parametrize("script", ["dbsp-coordinator", "coordinator"])
def test_its_commands_run_outside_the_checkout(python: Path, tmp_path: Path, script: str) -> None:
    assert "Usage" in run(python.parent / script, "--help", cwd=tmp_path)


@pytest.mark.parametrize("script", ["dbsp-coordinator", "coordinator"])
def test_its_commands_refuse_where_the_other_project_of_that_name_is(python: Path, tmp_path: Path, script: str) -> None:
    """Python's index has a distribution `dbsp` that has nothing to do with this one."""
    resources = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    other = resources / "dbsp-0.1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: dbsp\nVersion: 0.1.0\nSummary: a benchmark server\n")
    try:
        done = subprocess.run(
            [python.parent / script, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "another project's package named dbsp is installed here: summary='a benchmark server'" in done.stderr
        assert "pip uninstall dbsp" in done.stderr
        (other / "entry_points.txt").write_text("[console_scripts]\ncoordinator = dbsp.coordinator.commands:client\n")
        assert "Usage" in run(python.parent / script, "--help", cwd=tmp_path)  # what 0.1.0 was installed as
    finally:
        shutil.rmtree(other)
