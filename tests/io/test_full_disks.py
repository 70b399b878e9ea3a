"""Row 16 of docs/faults.md for the embedded logs: a write that the disk refuses is told and harms nothing answered."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from dbsp.errors import CapacityError, DataError, InternalError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog, read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.lmdb_environments import FileKind
from dbsp.logs import Range
from tests.io.log_samples import TABLE, make_part, make_push, make_record
from tests.pace import rotating

ROWS = 2_000
WRITES = 7
KINDS = ("input", "steps", "outputs")
WRITING = "pwrite64,pwritev,writev"

WRITER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.io.test_full_disks import Log, room
from dbsp.errors import UnavailableError

log = Log({kind!r}, Path({folder!r}))
for number in range({writes}):
    room(log, number, {limits!r})
    try:
        log.write(log.next())
        print("kept", flush=True)
    except UnavailableError as error:
        print(error.message, "|", error.hint, flush=True)
"""

FULL = """
import os, sys
from pathlib import Path
from dbsp.errors import UnavailableError
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.storage import WorkerDatabase
from dbsp.store import CheckpointId

disk, kind = Path(sys.argv[1]), sys.argv[2]
home = disk / "0000"

def start(number):
    if kind == "scratch":
        WorkerDatabase(home).open(0, number)
    else:
        EmbeddedStepLog(disk / str(number), create=True).close()

def attempt(number):
    process = os.fork()
    if process:
        signal = os.WTERMSIG(os.waitpid(process, 0)[1])
        return signal and print("ended by signal", signal, flush=True)
    try:
        start(number)
        print("opened", flush=True)
    except UnavailableError as error:
        print(error.message, "|", error.hint, flush=True)
    os._exit(0)

WorkerDatabase.create(home, CheckpointId(run="r", epoch=0, step=0, layout_version=0, fingerprint="f")).close()
for number in range(1, 5):  # epochs, whose pages the next one uses again
    attempt(number)
blocks = b"x" * 4096
for number, free in enumerate((0, 1, 2, 4, 8, 80), 5):
    with (disk / "fill").open("wb", buffering=0) as fill:
        try:
            while True:
                fill.write(blocks)
        except OSError:
            fill.truncate(fill.tell() - free * len(blocks))
    attempt(number)
    (disk / "fill").unlink()
"""


class Log:
    """One of the three logs as a list of numbers: the next one is written, all are read."""

    def __init__(self, kind: str, folder: Path, create: bool = False) -> None:
        self.kind, self.folder = kind, folder
        self.input = EmbeddedInputLog(folder, [TABLE], create=create) if kind == "input" else None
        self.steps = EmbeddedStepLog(folder, create=create) if kind == "steps" else None
        self.output = EmbeddedOutputLog(folder, 0, create=create) if kind == "outputs" else None
        if self.steps is not None and create:
            self.steps.claim()

    def write(self, number: int) -> None:
        if self.input is not None:
            self.input.append("t", make_push([number] * ROWS))
        if self.steps is not None:
            ranges = [(f"table {index}", 0, number, number + 1) for index in range(ROWS)]
            self.steps.append(make_record(number, epoch=1, ranges=ranges))
        if self.output is not None:
            self.output.write(1, number, {"v": make_part([((number, f"n{index}"), 1) for index in range(ROWS)])}, [])

    def content(self) -> list[int]:
        """The numbers that were written whole."""
        if self.input is not None:
            end = self.input.ends()["t", 0]
            rows = self.input.read(Range(table="t", partition=0, first=0, last=end), 0)
            found = [row[0] for changes in rows for row, _ in changes.batch.to_rows()]
            assert found == [number for number in found[::ROWS] for _ in range(ROWS)]
            return found[::ROWS]
        if self.steps is not None:
            records = self.steps.read(0)
            assert all(len(record.ranges) == ROWS for record in records)
            return [record.step for record in records]
        parts = list(read_outputs(self.folder, "v"))
        assert all(set(table.column("id").to_pylist()) == {step} and len(table) == ROWS for step, _, table in parts)
        return [step for step, _, _ in parts]

    def next(self) -> int:
        return len(self.content())

    def close(self) -> None:
        for log in (self.input, self.steps, self.output):
            if log is not None:
                log.close()

    @property
    def file(self) -> Path:
        return self.folder / {"input": "input", "steps": "steps", "outputs": "outputs/0"}[self.kind] / "data.mdb"


def room(log: Log, number: int, limits: tuple[int, ...]) -> None:
    """Let this process's files grow no further for the writes of these numbers, and without limit for the others."""
    most = log.file.stat().st_size if number in limits else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def written(kind: str, folder: Path, limits: tuple[int, ...] = (), under: tuple[str, ...] = ()) -> list[str]:
    """What a process says of each of its writes."""
    with closing(Log(kind, folder, create=True)):
        pass
    root = str(Path(__file__).parents[2])
    code = WRITER.format(root=root, kind=kind, folder=str(folder), limits=limits, writes=WRITES)
    done = subprocess.run(
        [*under, sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == WRITES
    return lines


def check_content(kind: str, folder: Path, lines: list[str]) -> None:
    """What was acknowledged is there, whole and alone; a refusal names the file; another process goes on."""
    kept = lines.count("kept")
    with closing(Log(kind, folder)) as log:
        assert log.content() == list(range(kept))
        for line in lines:
            told_so = (
                f"the log file cannot be used: file={log.file} cause=" in line and "nothing that was answered" in line
            )
            assert line == "kept" or told_so, line
        log.write(kept)
        assert log.content() == list(range(kept + 1))


@pytest.mark.crash
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_without_room_refuses_and_goes_on_once_there_is_some(kind: str, tmp_path: Path) -> None:
    lines = written(kind, tmp_path, limits=(2, 3, 5))
    assert [line == "kept" for line in lines] == [True, True, False, False, True, False, True]
    check_content(kind, tmp_path, lines)


FAULTS = [("fdatasync", "EIO", 3), (WRITING, "ENOSPC", 4), (WRITING, "EIO", 5)]
FAILING = [(kind, *fault) for turned, kind in enumerate(KINDS) for fault in (FAULTS[turned:] + FAULTS[:turned])]
"""Every third of them has each kind of log, and each fault."""


@pytest.mark.crash
@pytest.mark.parametrize(("kind", "calls", "error", "when"), rotating(FAILING, 3))
def test_a_failing_disk_loses_nothing_that_was_acknowledged(
    kind: str, calls: str, error: str, when: int, tmp_path: Path
) -> None:
    """Whichever of a commit's writes fails: its pages, their sync, or the page that names the newest commit."""
    fault = f"inject={calls}:error={error}:when={when}"
    strace = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", fault)
    lines = written(kind, tmp_path, under=strace)
    assert lines.count("kept") < WRITES
    check_content(kind, tmp_path, lines)


@pytest.mark.crash
@pytest.mark.parametrize(("kind", "what"), [("scratch", "the database file"), ("steps", "the log file")])
def test_a_new_file_on_a_full_disk_is_refused_and_not_the_end_of_the_process(
    kind: str, what: str, tmp_path: Path
) -> None:
    """LMDB maps its table of readers: with no block for that, the first touch would end the process by SIGBUS."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -B -c "$4" "$1" "$3"'
    command = ["unshare", "--mount", *rights, "sh", "-c", mount, "sh", str(tmp_path), sys.executable, kind, FULL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[4:]
    assert not [line for line in lines if "signal" in line]
    assert f"{what} cannot be used: file=" in lines[0]
    assert "No space left on device | free space or repair the disk" in lines[0]
    assert lines[-1] == "opened"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), UnavailableError),
        (lmdb.Error("mdb_txn_commit: No space left on device"), UnavailableError),
        (lmdb.PanicError("x"), UnavailableError),
        (lmdb.CorruptedError("x"), DataError),
        (lmdb.ReadersFullError("x"), CapacityError),
        (lmdb.BadValsizeError("x"), InternalError),
    ],
)
def test_every_error_of_the_engine_names_the_file(error: lmdb.Error | OSError, kind: type[Exception]) -> None:
    found = FileKind(name="log file", unharmed="all is well").translate(error, Path("/d"))
    assert type(found) is kind
    assert "the log file " in found.message
    assert "file=/d/data.mdb" in found.message
    assert str(error) in found.message
