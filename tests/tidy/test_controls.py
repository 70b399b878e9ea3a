"""Negative controls: each tool of `make test` turns red when an error is planted for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is kept."""
    env = {**os.environ, **environment}
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A tree shaped like ours, with one typed function per folder, and our settings."""
    for folder in ("dbsp", "storage", "io", "coordinator"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text('"""A folder of the planted tree."""\n')
        (tmp_path / folder / "part.py").write_text(
            '"""A part of the planted tree."""\n\nimport io\n\n\ndef read(text: str) -> str:\n'
            '    """Read it back."""\n    return io.StringIO(text).read()\n'
        )
    (tmp_path / "dbsp" / "py.typed").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_types(small_tree: Path) -> None:
    check = (sys.executable, ROOT / "tools" / "typecheck.py", small_tree)
    done = run(*check)
    assert done.returncode == 0, done.stdout
    folders = {"dbsp": "dbsp", "storage": "dbsp/storage", "io": "dbsp/io", "coordinator": "dbsp/coordinator"}
    for folder in folders:
        with (small_tree / folder / "part.py").open("a") as file:
            file.write("\n\nWRONG: int = read('x')\n")
    done = run(*check)
    assert done.returncode == 1
    for folder in folders.values():
        assert f"{folder}/part.py:11: error: Incompatible types" in done.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import storage\n\nprint(storage)\n", "TID251"),
        ("from coordinator import x\n\nprint(x)\n", "TID251"),
        ("try:\n    x = 1\nexcept Exception:\n    x = 2\n", "BLE001"),
        ("def f(x):\n    return x\n", "D103"),
    ],
)
def test_lint(small_tree: Path, text: str, code: str) -> None:
    planted = small_tree / "dbsp" / "planted.py"
    planted.write_text(f'"""Planted for the linter."""\n\n{text}')
    done = run(sys.executable, "-m", "ruff", "check", "--no-cache", "--config", small_tree / "pyproject.toml", planted)
    assert done.returncode == 1
    assert code in done.stdout


def test_format(small_tree: Path) -> None:
    (small_tree / "dbsp" / "planted.py").write_text('"""Planted for the formatter."""\nx=1\n')
    done = run(sys.executable, "-m", "ruff", "format", "--check", "--no-cache", ".", cwd=small_tree)
    assert done.returncode == 1
    assert "dbsp/planted.py" in done.stdout


PLANTED_TESTS = {
    "import pytest\n\n@pytest.mark.sprak\ndef test_x(): pass\n": "'sprak' not found in `markers`",
    "import warnings\n\ndef test_x(): warnings.warn('late')\n": "UserWarning: late",
    "import pytest\n\n@pytest.mark.xfail\ndef test_x(): pass\n": "XPASS(strict)",
    "def test_x(): assert 1 == 2\n": "assert 1 == 2",
}


def test_test_runner(small_tree: Path) -> None:
    (small_tree / "tests").mkdir()
    for number, text in enumerate(PLANTED_TESTS):
        (small_tree / "tests" / f"test_planted_{number}.py").write_text(text)
    options = ("-p", "no:cacheprovider", "--continue-on-collection-errors", "-rfE", "--verbosity=0")
    done = run(sys.executable, "-m", "pytest", *options, "tests", cwd=small_tree)
    assert done.returncode != 0
    assert "3 failed, 1 error" in done.stdout
    for message in PLANTED_TESTS.values():
        assert message in done.stdout + done.stderr


@pytest.mark.crash
def test_a_process_left_behind_turns_the_ci_run_red(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text("test:\n\t@echo passed\n")
    assert run(tmp_path / ".ci" / "run").returncode == 0
    (tmp_path / "Makefile").write_text("test:\n\t@setsid sleep 300 & echo passed\n")
    done = run(tmp_path / ".ci" / "run")
    assert done.returncode == 1
    assert "sleep 300" in done.stderr
    (tmp_path / "Makefile").write_text("test:\n\t@exit 3\n")
    assert run(tmp_path / ".ci" / "run").returncode != 0
