"""An upgrade from the released 0.1.0 and back, with 0.1.0 itself (row 67): by hand, by `coordinator upgrade`, and after kills.

Both versions run one story in turn, on the same data. Either is killed before each of its commands; the other one goes on.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pytest

from dbsp.coordinator.checks.doctor import read_ledger
from dbsp.version import VERSION
from tests.coordinator.released import RELEASED, SETTINGS, DiedError, Pipeline, answers, missing, python
from tests.pace import in_turn, turn
from tests.spark.waiting import until

ABSENT = missing()
pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT)),
    pytest.mark.timeout(7200),
]
COMMANDS = 60
"""About so many commands has the story that is killed; the soak test kills at each until it ends alive."""
PARTS = 4
"""Each test runs at every fourth commit: a start of 0.1.0 loads all of it."""
SPARE = """
[layout]
standbys = ["spare"]
[delta]
directory = "lake"
interval_s = 0.2
views = ["per_customer", "large"]
keys = { per_customer = "customer" }
"""
AT_ONCE = "upgrade.rollback_window_s=0"


def rotates(place: int) -> pytest.MarkDecorator:
    """Mark a test that runs at every fourth commit, and in `make soak`."""
    return pytest.mark.skipif(not in_turn(place, PARTS), reason="at every fourth commit; `make soak` runs it")


def story(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Yield what is done with a pipeline of two or three workers, one thing after the other; each may be repeated."""
    yield pipeline.push
    yield pipeline.checkpoint
    yield pipeline.push
    yield lambda: pipeline.rescale(2)
    yield pipeline.push
    yield pipeline.checkpoint
    yield lambda: pipeline.rescale(3)
    yield pipeline.push
    yield pipeline.check


def run(doings: Iterator[Callable[[], None]], last: Callable[[], None] | None = None) -> Callable[[], None] | None:
    """Go on with a story; return what the service died in, None at the end."""
    for doing in itertools.chain([] if last is None else [last], doings):
        try:
            doing()
        except DiedError:
            return doing
    return None


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline of 0.1.0 with two checkpoints, and steps above them; 0.1.0 was killed."""
    made = Pipeline(tmp_path_factory.mktemp("begun") / "shop")
    with made.served(RELEASED):
        assert run(story(made)) is None
        made.push()
    return made


@pytest.fixture(scope="module")
def continued(begun: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The same, gone on with by this version, which was killed."""
    made = begun.copy(tmp_path_factory.mktemp("continued") / "shop")
    with made.served(VERSION):
        made.check()
        assert run(story(made)) is None
        made.push()
    return made


def killed(base: Pipeline, folder: Path, version: str, number: int) -> bool:
    """Let a version die at a command of the story, the other one go on, and the first one again; return whether it died."""
    other = VERSION if version == RELEASED else RELEASED
    pipeline = base.copy(folder)
    doings = story(pipeline)
    last: Callable[[], None] | None = None
    try:
        try:
            pipeline.start(version, dies_at=number)
            last = run(doings)
            died = last is not None
        except DiedError:
            died = True
    finally:
        pipeline.kill()
    for each in (other, version):
        with pipeline.served(each):
            assert run(doings, last) is None
            pipeline.check()
            pipeline.push()
            pipeline.check()
        last = None
    return died


@rotates(0)
def test_0_1_0_goes_on_from_this_version_killed(begun: Pipeline, tmp_path: Path) -> None:
    """It runs again what this version has logged; another command is the last one in each commit."""
    assert killed(begun, tmp_path / "there", VERSION, 1 + turn() // PARTS % COMMANDS)


@rotates(2)
def test_this_version_goes_on_from_0_1_0_killed(continued: Pipeline, tmp_path: Path) -> None:
    """0.1.0 was killed after it had gone on with data of this version."""
    assert killed(continued, tmp_path / "back", RELEASED, 1 + turn() // PARTS % COMMANDS)


@pytest.mark.soak
@pytest.mark.parametrize("version", [VERSION, RELEASED])
def test_killed_at_every_command(begun: Pipeline, continued: Pipeline, tmp_path: Path, version: str) -> None:
    base = begun if version == VERSION else continued
    numbers = itertools.count(1)
    while killed(base, tmp_path / str(number := next(numbers)), version, number):
        print(f"{version} killed before command {number}")
    assert number >= COMMANDS, "the story has fewer commands than the short test kills at"


def ended(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of an interpreter to its end."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@rotates(1)
def test_upgrade_takes_it_back_until_the_window_is_over(begun: Pipeline, tmp_path: Path) -> None:
    pipeline, old = begun.copy(tmp_path / "shop"), str(python(tmp_path))
    upgrade = (sys.executable, "-m", "dbsp.coordinator.commands.cli", "upgrade", "--python", old)
    with pipeline.served(VERSION):
        pipeline.push()
        pipeline.checkpoint()
        assert read_ledger(pipeline.folder / "data").level == 1
        done = ended(pipeline.folder, *upgrade)
        assert done.returncode == 0, done.stderr
        assert f"upgraded from dbsp {VERSION} to {RELEASED}" in done.stdout
        assert pipeline.want("GET", "/v1/status")["engine"] == RELEASED
        pipeline.push()
        pipeline.check()
    with pipeline.served(VERSION, "--set", AT_ONCE):
        pipeline.push()
        pipeline.checkpoint()
        done = ended(pipeline.folder, *upgrade)
        assert done.returncode == 7
        assert "ledger: written=3 read=[2] (new formats are written)" in done.stderr
        pipeline.push()
        pipeline.check()
    refused = ended(pipeline.folder, old, "-m", "dbsp.coordinator.serve", "pipeline.toml")
    assert refused.returncode == 3
    assert "found=3 known=2" in refused.stderr
    with pipeline.served(VERSION):
        pipeline.check()


@rotates(3)
def test_a_new_pipeline_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "shop", SETTINGS)
    with pipeline.served(VERSION):
        pipeline.push()
    refused = ended(pipeline.folder, str(python(tmp_path)), "-m", "dbsp.coordinator.serve", "pipeline.toml")
    assert refused.returncode == 3
    assert "a newer version of dbsp wrote it" in refused.stderr


@rotates(3)
def test_standbys_and_delta_tables_of_either_version(tmp_path: Path) -> None:
    """Each version loses a worker's database, and makes it again from the standby of the other; both write the same tables."""
    pipeline, tables = Pipeline(tmp_path / "shop", SETTINGS + SPARE), ("per_customer", "large")
    for lost, version in enumerate((RELEASED, VERSION, RELEASED, VERSION)):
        with pipeline.served(version):
            if lost:
                pipeline.check()
            pipeline.push()
            pipeline.checkpoint()
            pipeline.push()
            until(lambda: has_all(pipeline), "the tables have all steps")
            pipeline.check()
        expected = answers(pipeline.rounds)
        for view in tables:
            assert written(tmp_path / "shop" / "lake" / view) == expected[view], f"{version}: {view}"
        shutil.rmtree(tmp_path / "shop" / "data" / "workers" / f"{lost % 2:04d}")


def has_all(pipeline: Pipeline) -> bool:
    told = pipeline.want("GET", "/v1/status")["delta"]
    return len(told) == len(("per_customer", "large")) and not any(each["behind_steps"] for each in told)


def written(table: Path) -> list[str]:
    """Return the rows of a Delta table as texts in order; of a table of changes their sum."""
    found = Counter[str]()
    for row in deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist():
        weight = row.pop("weight", 1)
        row.pop("step", None)
        found[json.dumps(list(row.values()))] += weight
    assert not -found
    return sorted(found.elements())
