"""The embedded logs beyond the contract: durability of files, producers, trims, growth, other processes, kills."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import multiprocessing
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import ConfigError, DataError, FencedError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog, read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.io.environment import LOG
from dbsp.io.producer_numbers import GAPS_MAX, decode_numbers
from dbsp.io.pushed import Incoming, Producer, Push
from dbsp.logs import Range
from dbsp.zset.batch import Batch
from tests.io.log_samples import OTHER, TABLE, make_part, make_push, make_record
from tests.pace import examples


def open_input(folder: Path, **options: Any) -> EmbeddedInputLog:
    return EmbeddedInputLog(folder, [TABLE, OTHER], create=True, **options)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedInputLog]:
    with closing(open_input(tmp_path)) as made:
        yield made


def ids(log: EmbeddedInputLog, first: int, last: int, table: str = "t") -> list[int]:
    pieces = log.read(Range(table=table, partition=0, first=first, last=last), 0)
    return [row[0] for piece in pieces for row, _ in piece.batch.to_rows()]


def size_of(log: EmbeddedInputLog, first: int, last: int) -> int:
    waiting = Range(table="t", partition=0, first=first, last=last)
    return log.sizes([waiting])["t", 0].between(first, last)


OPENERS: list[tuple[str, Callable[..., Any]]] = [
    ("input", lambda folder, **options: EmbeddedInputLog(folder, [TABLE], **options)),
    ("steps", EmbeddedStepLog),
    ("outputs/0", lambda folder, **options: EmbeddedOutputLog(folder, 0, **options)),
]


@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_missing_empty_truncated_and_foreign_files_are_refused(
    name: str, opener: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / name / "data.mdb"
    with pytest.raises(DataError, match="missing: file=" + str(file)):
        opener(tmp_path)
    opener(tmp_path, create=True).close()
    opener(tmp_path).close()
    whole = file.read_bytes()
    for data in (b"", whole[:4096], whole[:8192], bytes(len(whole))):
        file.write_bytes(data)
        with pytest.raises(DataError, match="file=" + str(file)):
            opener(tmp_path, create=True)
    file.unlink()
    with pytest.raises(DataError, match="missing: file=" + str(file)):
        opener(tmp_path, create=True)


def test_another_kind_of_log_is_refused(tmp_path: Path) -> None:
    EmbeddedStepLog(tmp_path, create=True).close()
    (tmp_path / "steps").rename(tmp_path / "input")
    with pytest.raises(DataError, match=r"another kind|part of the log file is missing"):
        open_input(tmp_path)


def test_a_truncated_tail_is_found_but_unwritten_free_pages_are_not_a_fault(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        for number in range(20):
            log.append("t", make_push(range(1000 * number, 1000 * number + 1000)))
    file = tmp_path / "input" / "data.mdb"
    LOG.check(file.parent)
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)
    with pytest.raises(DataError, match="cut short: file=" + str(file)):
        open_input(tmp_path)


def test_a_flipped_bit_in_a_record_is_found(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        log.append("t", make_push(range(5000)))
    file = tmp_path / "input" / "data.mdb"
    data = bytearray(file.read_bytes())
    data[data.index(b"n2500")] ^= 1
    file.write_bytes(data)
    with (
        closing(open_input(tmp_path)) as log,
        pytest.raises(DataError, match=r"damaged: file=.* table=t partition=0 offset=0"),
    ):
        ids(log, 0, 1)


def test_positions_count_rows_good_and_bad(log: EmbeddedInputLog) -> None:
    first = log.append("t", make_push([1, 2], bad=[1]))
    second = log.append("t", make_push([3]))
    other = log.append("other", make_push([9]))
    assert [(p.first, p.last) for p in (first, second, other)] == [(0, 3), (3, 4), (0, 1)]
    (piece,) = log.read(Range(table="t", partition=0, first=1, last=4), 7)
    assert piece.offsets.tolist() == [2, 3]
    assert [(letter.offset, letter.reason, letter.payload, letter.step) for letter in piece.dead] == [
        (1, "broken", "p1", 7)
    ]
    assert log.ends() == {("t", 0): 4, ("other", 0): 1}


def test_a_producer_that_repeats_is_answered_with_the_first_position(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        positions = [
            log.append("t", make_push([number]), Producer(id="a", sequence=10 * number)) for number in range(3)
        ]
    with closing(open_input(tmp_path)) as log:
        for number, position in enumerate(positions):
            again = log.append("t", make_push([number]), Producer(id="a", sequence=10 * number))
            assert again == position
            assert again.repeated
        assert not log.append("t", make_push([7]), Producer(id="b", sequence=0)).repeated
        assert not log.append("other", make_push([7]), Producer(id="a", sequence=0)).repeated
        assert log.last_sequence("t", "a") == 20
        assert ids(log, 0, 4) == [0, 1, 2, 7]
        with pytest.raises(DataError, match="producer=a sequence=20 rows=2 rows_before=1"):
            log.append("t", make_push([1, 2]), Producer(id="a", sequence=20))
        assert log.ends()["t", 0] == 4


def test_a_repeat_is_known_after_its_rows_are_trimmed(log: EmbeddedInputLog) -> None:
    for number in range(3):
        log.append("t", make_push([number]), Producer(id="a", sequence=number))
    log.trim({("t", 0): 3})
    for number in range(3):
        again = log.append("t", make_push([number]), Producer(id="a", sequence=number))
        assert (again.first, again.last, again.repeated) == (3, 3, True)
    assert log.append("t", make_push([3]), Producer(id="a", sequence=3)).first == 3


def test_a_number_that_was_passed_over_is_refused_and_not_taken_for_a_repeat(log: EmbeddedInputLog) -> None:
    """Push 2 was turned away while too much waited, push 3 was taken: its rows must not be lost when 2 is sent again."""
    log.append("t", make_push([1]), Producer(id="a", sequence=1))
    log.append("t", make_push([3]), Producer(id="a", sequence=3))
    with pytest.raises(DataError, match="producer=a sequence=2 newest=3"):
        log.append("t", make_push([2]), Producer(id="a", sequence=2))
    assert log.append("t", make_push([1]), Producer(id="a", sequence=1)).repeated
    assert ids(log, 0, 2) == [1, 3]
    log.trim({("t", 0): 1})
    assert log.append("t", make_push([1]), Producer(id="a", sequence=1)).repeated
    with pytest.raises(DataError, match="producer=a sequence=2 newest=3"):
        log.append("t", make_push([2]), Producer(id="a", sequence=2))
    assert log.append("t", make_push([2]), Producer(id="a", sequence=4)).first == 2
    log.trim({("t", 0): 3})
    assert [log.append("t", make_push([n]), Producer(id="a", sequence=n)).repeated for n in (1, 3, 4)] == [True] * 3
    for number in (0, 2):
        with pytest.raises(DataError, match=f"comes after a greater one: .* sequence={number} newest=4"):
            log.append("t", make_push([2]), Producer(id="a", sequence=number))
    assert log.last_sequence("t", "a") == 4


@given(st.integers(0, 2**32))
@settings(max_examples=examples(24), deadline=None)
def test_a_number_is_taken_once_or_refused_whatever_is_trimmed(seed: int) -> None:
    """Numbers of all kinds, in any order; what was never taken is never said to be a repeat."""
    chance = random.Random(seed)
    jump = chance.choice([1, 2, 2, 1000])
    taken: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        log = open_input(Path(folder))
        for _ in range(300):
            newest = max(taken, default=-1)
            near = newest + chance.randint(-3 * jump, jump)
            number = max(0, near) if chance.random() < 0.8 else chance.choice([*taken, 0])
            gaps = sum(1 for before, after in itertools.pairwise([-1, *taken]) if after > before + 1)
            try:
                position = log.append("t", make_push([number]), Producer(id="a", sequence=number))
            except DataError as error:
                unknown = "not known any more" in str(error) and gaps > GAPS_MAX
                assert number < newest and (number not in taken or unknown), (seed, number)  # noqa: PT018 - a law
            else:
                assert position.repeated == (number in taken)
                taken += [] if position.repeated else [number]
            if chance.random() < 0.2:
                (span,) = (end for (table, _), end in log.ends().items() if table == "t")
                log.trim({("t", 0): chance.randint(max(0, span - 5), span)})
        assert log.ends()["t", 0] == len(taken)
        assert log.last_sequence("t", "a") == max(taken)
        log.close()


def test_numbers_of_before_gaps_were_kept_are_not_known() -> None:
    old = decode_numbers(b"k", struct.pack(">QQ", 8, 5), "")
    assert (old.newest, old.trimmed, old.was_taken(6), old.was_taken(7), old.take(9).was_taken(8)) == (
        7,
        4,
        None,
        True,
        False,
    )
    assert decode_numbers(b"k", old.take(9).encoded(b"k"), "") == old.take(9)


def test_group_commit_packs_pushes_and_sees_repeats_among_them(log: EmbeddedInputLog) -> None:
    pushes: list[tuple[str, Push, Producer | None]] = [
        ("t", make_push([1]), Producer(id="a", sequence=1)),
        ("other", make_push([2], bad=[0]), None),
        ("t", make_push([3], bad=[1]), None),
        ("t", make_push([1]), Producer(id="a", sequence=1)),
    ]
    positions = log.append_many(
        [Incoming(table=table, push=push, producer=producer) for table, push, producer in pushes]
    )
    assert [(p.table, p.first, p.last, p.repeated) for p in positions] == [
        ("t", 0, 1, False),
        ("other", 0, 2, False),
        ("t", 1, 3, False),
        ("t", 0, 1, True),
    ]
    assert ids(log, 0, 3) == [1, 3]
    assert log.read(Range(table="t", partition=0, first=0, last=3), 0)[0].dead[0].offset == 2
    assert log._env._env.begin().stat(log._env.db("rows"))["entries"] == 2


def test_trim_keeps_the_ends(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        for number in range(4):
            log.append("t", make_push([10 * number, 10 * number + 1]))
        log.trim({("t", 0): 3})
        assert ids(log, 3, 8) == [11, 20, 21, 30, 31]
        with pytest.raises(DataError, match="first=2 last=4 first_kept=3"):
            ids(log, 2, 4)
        log.trim({("t", 0): 99})
        log.trim({("t", 0): 1})
    with closing(open_input(tmp_path)) as log:
        assert log.ends()["t", 0] == 8
        assert log.floors()["t", 0] == 8
        assert log.append("t", make_push([5])).first == 8
        assert ids(log, 8, 9) == [5]


def test_large_pushes_are_cut_and_the_map_grows(tmp_path: Path) -> None:
    with closing(open_input(tmp_path, map_bytes=1 << 16, chunk_bytes_max=1 << 14)) as log:
        log.append("t", make_push(range(20_000), bad=range(0, 20_000, 500)))
        assert log._env._env.begin().stat(log._env.db("rows"))["entries"] > 10
        assert log._env._env.info()["map_size"] > 1 << 18
        assert ids(log, 0, log.ends()["t", 0]) == list(range(20_000))
        assert ids(log, 12_345, 12_347) == ids(log, 0, 20_040)[12_345 - 25 : 12_347 - 25]
        assert 10 < size_of(log, 0, 20_040) / 20_040 < 100


def test_rows_of_unequal_size_are_cut_into_records_by_their_bytes(tmp_path: Path) -> None:
    names = ["x" * 5_000] * 100 + ["x"] * 10_000 + ["x" * 50_000]
    batch = Batch.of(OTHER.schema, [pa.array(range(len(names))), pa.array(names)])
    push = Push(batch=batch, operations=np.zeros(len(names), np.int8))
    with closing(open_input(tmp_path, chunk_bytes_max=1 << 16)) as log:
        log.append("other", push)
        with log._env.read() as txn:
            found = [len(data) for _, data in txn.cursor(db=log._env.db("rows"))]
        assert max(found) < 1.1 * (1 << 16)
        assert ids(log, 0, len(names), "other") == list(range(len(names)))


def test_wrong_pushes_are_refused(log: EmbeddedInputLog) -> None:
    with pytest.raises(ConfigError, match="no such table: table=x"):
        log.append("x", make_push([1]))
    with pytest.raises(ConfigError, match="partition=1"):
        log.append("t", make_push([1]), partition=1)
    with pytest.raises(ConfigError, match="producer name"):
        log.append("t", make_push([1]), Producer(id="", sequence=1))


def test_threads_append_and_read_while_the_map_grows(tmp_path: Path) -> None:
    with closing(open_input(tmp_path, map_bytes=1 << 16)) as log:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for sequence in range(30):
                    log.append("t", make_push(range(200)), Producer(id=str(number), sequence=sequence))
                    ids(log, 0, log.ends()["t", 0])
            except Exception as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert log.ends()["t", 0] == 4 * 30 * 200


def _read_in_child(folder: str, queue: Any) -> None:
    with closing(EmbeddedInputLog(folder, [TABLE, OTHER], map_bytes=1 << 16)) as log:
        queue.put(len(ids(log, 0, log.ends()["t", 0])))
        queue.get_back.recv()
        queue.put(len(ids(log, 0, log.ends()["t", 0])))


class _Pipe:
    def __init__(self, answers: Any, get_back: Any) -> None:
        self.answers, self.get_back = answers, get_back

    def put(self, value: int) -> None:
        self.answers.send(value)


def test_a_log_closed_while_others_push_refuses_them_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        log.append("t", make_push([0]))  # made before the rounds, so that they only open
    acknowledged, refused, came = [0], list[str](), threading.Condition()

    def pushing(log: EmbeddedInputLog, first: int) -> None:
        try:
            for number in range(first, first + 100_000):
                log.append("t", make_push([number]))
                with came:
                    acknowledged.append(number)
                    came.notify()
                assert log.ends()["t", 0] > 0
        except UnavailableError as error:
            refused.append(str(error))

    for round_ in range(20):
        log = open_input(tmp_path)
        threads = [threading.Thread(target=pushing, args=(log, (3 * round_ + k + 1) * 100_000)) for k in range(3)]
        wanted = len(acknowledged) + 10
        for thread in threads:
            thread.start()
        with came:
            came.wait_for(lambda wanted=wanted: len(acknowledged) >= wanted)
        log.close()
        for thread in threads:
            thread.join()
    assert len(refused) == 60
    assert {message.split(":")[0] for message in refused} == {"the log is closed"}
    with closing(open_input(tmp_path)) as log:
        rows = ids(log, 0, log.ends()["t", 0])
    assert sorted(rows) == sorted(acknowledged)


def test_another_process_reads_what_is_appended_meanwhile_though_the_map_grew(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers, child_answers = context.Pipe()
    with closing(open_input(tmp_path, map_bytes=1 << 16)) as log:
        log.append("t", make_push(range(10)))
        process = context.Process(target=_read_in_child, args=(str(tmp_path), _Pipe(child_answers, child_answers)))
        process.start()
        assert answers.recv() == 10
        log.append("t", make_push(range(20_000)))
        answers.send("go")
        assert answers.recv() == 20_010
        process.join()
        assert process.exitcode == 0


WRITER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from dbsp.io.embedded_input import *
from dbsp.io.embedded_output import *
from dbsp.io.embedded_steps import *
from dbsp.io.pushed import *
from tests.io.log_samples import *
folder = Path({folder!r})
log = EmbeddedInputLog(folder, [TABLE], create=True, map_bytes=1 << 16)
steps = EmbeddedStepLog(folder, create=True)
out = EmbeddedOutputLog(folder, 0, create=True)
epoch = steps.claim()
number = steps.next_step()
while True:
    if number < 0: raise SystemExit
    position = log.append("t", make_push(range(100)), Producer(id="a", sequence=number))
    steps.append(make_record(number, epoch=epoch, ranges=[("t", 0, 100 * number, 100 * number + 100)]))
    out.write(epoch, number, {{"v": make_part([((number, "x"), 1)])}}, [])
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("lines", [1, 9])
def test_what_was_acknowledged_survives_kill_and_nothing_is_twice(lines: int, tmp_path: Path) -> None:
    code = WRITER.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path))
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(lines)][-1]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with (
            closing(open_input(tmp_path)) as log,
            closing(EmbeddedStepLog(tmp_path)) as steps,
            closing(EmbeddedOutputLog(tmp_path, 0)) as out,
        ):
            end, last = log.ends()["t", 0], out.bounds()[1]
            assert end >= 100 * steps.next_step() >= 100 * last >= 100 * (acknowledged + 1)
            assert end - 100 * last <= 100
            assert ids(log, 0, end) == list(range(100)) * (end // 100)
            assert [record.step for record in steps.read(0)] == list(range(steps.next_step()))
            seen = [(step, table.column("id").to_pylist()) for step, _, table in read_outputs(tmp_path, "v")]
            assert seen == [(step, [step]) for step in range(last)]
            if steps.next_step() > last:
                out.write(steps.epoch(), last, {"v": make_part([((last, "x"), 1)])}, [])


STOPPED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from dbsp.io.embedded_input import *
from dbsp.io.embedded_output import *
from dbsp.io.embedded_steps import *
from dbsp.io.pushed import *
steps = EmbeddedStepLog({folder!r}, create=True)
steps.claim()
def action(txn):
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
steps._env.write(action)
"""


def test_a_writer_stopped_inside_a_transaction_does_not_block_its_successor(tmp_path: Path) -> None:
    """Row 11: LMDB would wait for it for ever."""
    code = STOPPED.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    with closing(EmbeddedStepLog(tmp_path)) as log:
        assert log.claim() == 2
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    with closing(EmbeddedStepLog(tmp_path)) as log:
        assert log.claim() == 3
        assert [note.name.split(".")[0] for note in (tmp_path / "steps" / "writers").iterdir()] == [str(os.getpid())]


def test_output_trims_keep_what_a_replay_needs(tmp_path: Path) -> None:
    with closing(EmbeddedOutputLog(tmp_path, 0, create=True)) as log:
        for step in range(5):
            log.write(1, step, {"v": make_part([((step, "v"), 1)]), "w": make_part([((step, "w"), 1)])}, [])
        log.trim(3)
        assert [step for step, _ in log.read("v", 0)] == [3, 4]
        assert [step for step, _ in log.read("w", 0, 4)] == [3]
        with pytest.raises(DataError, match="step=1"):
            log.write(1, 1, {}, [])
        log.trim_progress(2)
        log.write(1, 1, {}, [])
        assert log.bounds() == (0, 5)


def test_output_fence_and_view_names(tmp_path: Path) -> None:
    with closing(EmbeddedOutputLog(tmp_path, 0, create=True)) as log:
        log.fence(4)
        with pytest.raises(FencedError):
            log.write(3, 0, {}, [])
        with pytest.raises(FencedError):
            log.fence(3)
        log.write(4, 0, {}, [])


def test_consumers_see_workers_in_order_and_rejoin(tmp_path: Path) -> None:
    for worker, first in ((1, 0), (0, 0), (1, 3)):
        with closing(EmbeddedOutputLog(tmp_path, worker, first_step=first, create=True)) as log:
            for step in range(first, first + 2):
                log.write(1, step, {"v": make_part([((step, f"w{worker}"), 1)])}, [])
    assert [(step, worker) for step, worker, _ in read_outputs(tmp_path, "v", 0, 4)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (3, 1),
    ]


def test_the_engine_is_pinned(log: EmbeddedInputLog) -> None:
    assert log._env._env.lib_version()[:2] == (0, 9)
    assert lmdb.version(lib_version=0)[:2] == (0, 9)


def test_step_record_after_claim_by_an_outside_epoch(tmp_path: Path) -> None:
    with closing(EmbeddedStepLog(tmp_path, create=True)) as log:
        assert log.claim(above=41) == 42
        assert log.epoch() == 42
        log.append(make_record(0, epoch=42))
        assert log.positions() == {}


def test_partitions_are_numbered_apart(tmp_path: Path) -> None:
    with closing(open_input(tmp_path, partitions=3)) as log:
        assert log.partitions("t") == 3
        assert [log.append("t", make_push([n, n]), partition=n).first for n in (0, 2, 2)] == [0, 0, 2]
        assert [log.ends()["t", n] for n in range(3)] == [2, 0, 4]
        (piece,) = log.read(Range(table="t", partition=2, first=1, last=4), 0)
        assert (piece.partition, piece.offsets.tolist(), len(piece.batch)) == (2, [1, 2, 3], 3)
        log.trim({("t", 2): 3})
        assert log.floors() == {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): 3,
            ("other", 0): 0,
            ("other", 1): 0,
            ("other", 2): 0,
        }


def test_a_range_over_records_with_bad_rows_is_cut_alike(tmp_path: Path) -> None:
    with closing(open_input(tmp_path)) as log:
        for bad in ([], [0], [2], [0, 1, 2, 3], [1, 3]):
            log.append("t", make_push([10 * len(bad) + n for n in range(4 - len(bad))], bad=bad))
        whole = _cells(log, 0, 20)
        assert len(whole) == 20
        for first in range(20):
            for last in range(first + 1, 21):
                assert _cells(log, first, last) == whole[first:last]


def _cells(log: EmbeddedInputLog, first: int, last: int) -> list[tuple[int, Any]]:
    """(offset, row or reason) in order of offsets."""
    (piece,) = log.read(Range(table="t", partition=0, first=first, last=last), 0)
    rows = zip(piece.offsets.tolist(), (row for row, _ in piece.batch.to_rows()), strict=True)
    return sorted([*rows, *((letter.offset, letter.payload) for letter in piece.dead)], key=lambda cell: cell[0])


def test_touched_rows_are_in_memory(tmp_path: Path) -> None:
    """The file is dropped from the system's cache first; what is touched is there again, what is not is not."""
    file, rows = tmp_path / "input" / "data.mdb", 400_000
    with closing(open_input(tmp_path)) as log:
        for _ in range(8):
            log.append("t", make_push(range(rows)))
        size = size_of(log, 0, rows)
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with closing(open_input(tmp_path)) as log:
        before = _cached_bytes(file)
        if before >= 4 * size:
            pytest.skip(f"the system does not drop a file from its cache here: cached={before}")
        log.touch(Range(table="t", partition=0, first=5 * rows, last=6 * rows))
        after = _cached_bytes(file)
        assert after - before >= 0.9 * size
        assert after < 7 * size, "not the whole file"
        assert ids(log, 5 * rows, 6 * rows) == list(range(rows))
        for first, last in ((0, 9 * rows), (9 * rows, 10 * rows), (5, 5)):
            log.touch(Range(table="t", partition=0, first=first, last=last))  # what is not there is for readers to find


def _cached_bytes(file: Path) -> int:
    """How much of a file the system holds in memory."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        whole = np.frombuffer(mapped, dtype=np.uint8)
        pages = np.zeros(-(-len(whole) // mmap.PAGESIZE), dtype=np.uint8)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(whole.ctypes.data), ctypes.c_size_t(len(whole)), ctypes.c_void_p(pages.ctypes.data)
        )
        assert not failed
        del whole
        return int((pages & 1).sum()) * mmap.PAGESIZE
