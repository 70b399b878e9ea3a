"""Kafka logs under faults (rows 9, 10, 11, 24, 25, 27 of docs/faults.md), each shown to have fired."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import pyarrow as pa
import pytest

from dbsp.errors import CapacityError, ConfigError, DataError, FencedError, UnavailableError
from dbsp.io.formats import encode_arrow
from dbsp.io.kafka import KafkaInputLog, KafkaOutputLog, KafkaSettings, KafkaSource, KafkaStepLog, client, output
from dbsp.io.kafka.client import TopicReader, Trimmer, ensure_topic, make_producer, topic_config
from dbsp.logs import DeadLetter, Range
from tests.io.log_contracts import by_step
from tests.io.log_samples import TABLE, make_part, make_record
from tests.kafka.broker import Broker
from tests.kafka.proxy import END_TXN, Proxy
from tests.kafka.topics import messages, send, weighted

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    made = Proxy(broker.port)
    yield made
    made.close()


def through(settings: KafkaSettings, proxy: Proxy, timeout_s: float = 10.0) -> KafkaSettings:
    return replace(settings, brokers=proxy.address, timeout_s=timeout_s)


def part(step: int) -> dict[str, object]:
    return {"v": make_part([((step, "x"), 1)])}


def seen(settings: KafkaSettings) -> list[int]:
    return sorted(weighted(message)[1][0][0] for message in messages(settings, settings.topic("v")))


def once(api: int) -> tuple[object, list[int]]:
    """A predicate that is true for the first request of this kind only, and a list that shows it fired."""
    fired: list[int] = []

    def first(found: int) -> bool:
        if found == api and not fired:
            fired.append(found)
            return True
        return False

    return first, fired


def test_a_commit_whose_answer_is_lost_is_written_once(settings: KafkaSettings, proxy: Proxy) -> None:
    """Row 9, after the broker applied it."""
    with closing(KafkaOutputLog(through(settings, proxy), 0, create=True)) as log:
        log.write(1, 0, part(0), [])
        proxy.drop_answer_of, fired = once(END_TXN)
        log.write(1, 1, part(1), [])
        assert fired
        assert proxy.dropped.is_set()
        log.write(1, 2, part(2), [])
    assert seen(settings) == [0, 1, 2]


def test_a_commit_that_never_arrived_is_written_once(settings: KafkaSettings, proxy: Proxy) -> None:
    """Row 9, before the broker applied it; and row 10: let go later, the old request changes nothing."""
    with closing(KafkaOutputLog(through(settings, proxy, 4.0), 0, create=True)) as log:
        log.write(1, 0, part(0), [])
        proxy.hold, fired = once(END_TXN)
        log.write(1, 1, part(1), [])
        assert fired
        assert proxy.holding.is_set()
        proxy.release()
        log.write(1, 2, part(2), [])
        log.write(1, 3, {}, [])
        assert log.bounds() == (0, 4)
    assert seen(settings) == [0, 1, 2]


def test_without_taking_over_again_a_late_commit_lands_in_the_next_transaction(
    settings: KafkaSettings, proxy: Proxy
) -> None:
    """Row 10's control: a plain producer that goes on after a retried commit shows records that it aborted."""
    topic = settings.topic("v")
    ensure_topic(settings, topic, 1)
    producer = make_producer(through(settings, proxy), "plain")
    producer.init_transactions(20)
    proxy.hold, fired = once(END_TXN)
    proxy.cut_when_holding = True
    producer.begin_transaction()
    producer.produce(topic, b"first")
    producer.commit_transaction(20)
    assert fired
    producer.begin_transaction()
    producer.produce(topic, b"aborted, but seen")
    assert producer.flush(20) == 0
    proxy.release()
    end = TopicReader(settings).settled_bounds(topic, 0)
    with contextlib.suppress(confluent_kafka.KafkaException):
        producer.abort_transaction(10)
    assert end[1] >= 4
    assert [message.value() for message in messages(settings, topic)] == [b"first", b"aborted, but seen"]


def test_a_late_commit_after_taking_over_again_changes_nothing(settings: KafkaSettings, proxy: Proxy) -> None:
    """Row 10: the same fault, under our writer, in the middle of a transaction that is then aborted."""
    with closing(KafkaOutputLog(through(settings, proxy), 0, create=True)) as log:
        log.write(1, 0, part(0), [])
        proxy.hold, fired = once(END_TXN)
        log.write(1, 1, part(1), [])
        assert fired
        producer = log._writer._client.current()
        producer.begin_transaction()
        producer.produce(settings.topic("v"), b'{"insert":{"id":666,"name":"x"}}', headers=[("step", b"2")])
        assert producer.flush(20) == 0
        proxy.release()
        producer.abort_transaction(20)
        log.write(1, 2, part(2), [])
    assert seen(settings) == [0, 1, 2]


def test_the_step_log_settles_a_lost_answer(settings: KafkaSettings, proxy: Proxy) -> None:
    with closing(KafkaStepLog(through(settings, proxy), create=True)) as log:
        epoch = log.claim()
        for step in range(4):
            proxy.drop_answer_of, fired = once(END_TXN)
            log.append(make_record(step, epoch=epoch, ranges=[("t", 0, step, step + 1)]))
            assert fired
        assert [record.step for record in log.read(0)] == [0, 1, 2, 3]
    with closing(KafkaStepLog(settings)) as again:
        assert [record.step for record in again.read(0)] == [0, 1, 2, 3]


def test_a_commit_whose_marker_is_late_is_no_loss(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that stays open keeps the last stable offset below what this log has committed: as a late marker does."""
    monkeypatch.setattr(client, "SETTLE_S", 0.1)
    with closing(KafkaStepLog(settings, create=True)) as log:
        epoch = log.claim()
        late = make_producer(settings, "late")
        late.init_transactions(20)
        late.begin_transaction()
        late.produce(settings.topic("steps"), b"never committed", partition=0)
        assert late.flush(20) == 0
        log.append(make_record(0, epoch=epoch))
        patient, log._reader = log._reader, TopicReader(settings)
        assert log._reader.bounds(settings.topic("steps"), 0)[0] == 0
        assert log._reader.settled_bounds(settings.topic("steps"), 0)[0] == 0, "both of its clients are connected"
        log._reader._settings = replace(settings, timeout_s=2)
        for ask in (log.next_step, log.last, lambda: log.read(0), lambda: log.trim(0)):
            with pytest.raises(UnavailableError, match="has not finished a transaction"):
                ask()
        log._reader.close()
        log._reader = patient
        threading.Timer(1, late.abort_transaction).start()
        assert log.next_step() == 1, "longer than `SETTLE_S` is waited"
        log.append(make_record(1, epoch=epoch))
        assert [record.step for record in log.read(0)] == [0, 1]
        log._state.end += 100
        with pytest.raises(DataError, match="the step log lost records"):
            log.next_step()


def test_an_old_epoch_fences_the_new_one_only_for_a_moment(settings: KafkaSettings) -> None:
    """Kafka fences the earlier comer: a newer epoch that was fenced by an older one takes over again and goes on."""
    with closing(KafkaOutputLog(settings, 0, create=True)) as new:
        new.write(5, 0, part(0), [])
        stray = make_producer(settings, f"{settings.pipeline}-output-0")
        stray.init_transactions(20)
        new.write(5, 1, part(1), [])
        assert seen(settings) == [0, 1]
        stray.begin_transaction()
        stray.produce(settings.topic("v"), b"stray")
        with pytest.raises(confluent_kafka.KafkaException, match="_FENCED"):
            stray.commit_transaction(10)


def test_an_open_transaction_of_a_dead_writer_is_aborted(settings: KafkaSettings) -> None:
    with closing(KafkaOutputLog(settings, 0, create=True)) as log:
        log.write(1, 0, part(0), [])
    dead = make_producer(settings, f"{settings.pipeline}-output-0")
    dead.init_transactions(20)
    dead.begin_transaction()
    dead.produce(settings.topic("v"), b'{"insert":{"id":9,"name":"x"}}', headers=[("step", b"1")])
    dead.flush(20)
    with closing(KafkaOutputLog(settings, 0)) as log:
        log.write(2, 1, part(1), [])
    assert seen(settings) == [0, 1]


ZOMBIE = """
import sys
sys.path.insert(0, {root!r})
from dbsp.errors import FencedError
from dbsp.io.kafka import *
from tests.io.log_samples import *
settings = KafkaSettings(brokers={brokers!r}, pipeline={pipeline!r})
steps, out = KafkaStepLog(settings, create=True), KafkaOutputLog(settings, 0, create=True)
epoch = steps.claim()
steps.append(make_record(0, epoch=epoch))
out.write(epoch, 0, {{"v": make_part([((0, "x"), 1)])}}, [])
print("ready", flush=True)
sys.stdin.readline()
fenced = 0
for action in (
    lambda: steps.append(make_record(1, epoch=epoch)),
    lambda: out.write(epoch, 1, {{"v": make_part([((666, "x"), 1)])}}, []),
):
    try:
        action()
    except FencedError:
        fenced += 1
print("fenced", fenced, flush=True)
"""


def test_a_stopped_coordinator_that_wakes_up_is_fenced(settings: KafkaSettings) -> None:
    """Row 11."""
    code = ZOMBIE.format(root=str(Path(__file__).parents[2]), brokers=settings.brokers, pipeline=settings.pipeline)
    zombie = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "ready\n"
        os.kill(zombie.pid, signal.SIGSTOP)
        with closing(KafkaStepLog(settings)) as steps, closing(KafkaOutputLog(settings, 0)) as out:
            epoch = steps.claim()
            steps.append(make_record(1, epoch=epoch))
            out.write(epoch, 1, part(1), [])
            os.kill(zombie.pid, signal.SIGCONT)
            told, _ = zombie.communicate("go\n", timeout=60)
            assert told == "fenced 2\n"
            steps.append(make_record(2, epoch=epoch))
            out.write(epoch, 2, part(2), [])
            assert [record.epoch for record in steps.read(0)] == [epoch - 1, epoch, epoch]
        assert seen(settings) == [0, 1, 2]
    finally:
        zombie.kill()
        zombie.wait()


def test_retention_that_ate_needed_input_is_named(settings: KafkaSettings) -> None:
    """Row 27, input."""
    topic = settings.topic("source")
    ensure_topic(settings, topic, 1)
    send(settings, topic, [b'{"id": 1}'] * 10)
    Trimmer(settings).delete_below(topic, 0, 4)
    with closing(KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic)])) as log:
        assert log.floors() == {("t", 0): 4}
        with pytest.raises(DataError, match=rf"topic={topic} partition=0 first=3 last=8 kept=4..10"):
            log.read(Range(table="t", partition=0, first=3, last=8), 0)
        assert len(log.read(Range(table="t", partition=0, first=4, last=10), 0)[0].batch) == 6


def test_a_lost_progress_tail_is_an_error(settings: KafkaSettings) -> None:
    """Row 27, outputs; data may go, progress stays."""
    with closing(KafkaOutputLog(settings, 0, create=True)) as log:
        for step in range(4):
            log.write(1, step, part(step), [])
        Trimmer(settings).delete_below(settings.topic("v"), 0, -1)
        log.trim_progress(2)
    with closing(KafkaOutputLog(settings, 0)) as log:
        assert log.bounds() == (0, 4)
        log.write(2, 1, part(1), [])
        with pytest.raises(DataError, match="another output than before: step=2"):
            log.write(2, 2, part(7), [])
    Trimmer(settings).delete_below(settings.topic("progress"), 0, -1)
    with closing(KafkaOutputLog(settings, 0)) as log, pytest.raises(DataError, match="progress of a worker is lost"):
        log.bounds()
    assert seen(settings) == []


def test_progress_is_trimmed_now_and_then_by_one_client(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps wait while it is looked for; and a new client now and then takes a second to learn who leads the partition."""
    made: list[KafkaSettings] = []
    make_admin, topic = client.make_admin, settings.topic("progress")
    with closing(KafkaOutputLog(settings, 0, create=True)) as log, closing(TopicReader(settings)) as reader:
        for step in range(6):
            log.write(1, step, part(step), [])
        monkeypatch.setattr(client, "make_admin", lambda known: made.append(known) or make_admin(known))
        monkeypatch.setattr(output, "TRIM_STEPS", 3)
        floors = []
        for step in (1, 3, 4, 5):
            log.trim_progress(step)
            floors.append(reader.bounds(topic, 0)[0])
        assert floors == [2, 2, 8, 8], "a record and a marker per step"
        assert made == [settings]


def test_a_step_log_that_lost_everything_is_not_taken_over(settings: KafkaSettings) -> None:
    with pytest.raises(ConfigError, match="no such topic"):
        KafkaStepLog(settings)
    ensure_topic(settings, settings.topic("steps"), 1)
    with closing(KafkaStepLog(settings)) as log, pytest.raises(DataError, match="step log is empty"):
        log.claim()


def test_compacted_topics_are_refused(settings: KafkaSettings) -> None:
    topic = settings.topic("compacted")
    ensure_topic(settings, topic, 1, {"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match=f"topic={topic} cleanup.policy=compact"):
        KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic)])


def test_poisoned_messages_are_dead_letters_with_their_offset(settings: KafkaSettings) -> None:
    """Row 24."""
    topic = settings.topic("source")
    ensure_topic(settings, topic, 1)
    poison = [
        None,
        b"",
        b"[]",
        b'{"id":' + b"[" * 100_000,
        b'{"id": 1}\n{"id": 2}\nnope',
        b'[{"id": 3}, 4]',
        b'{"id":',
        b"1}",
        b"null",
    ]
    send(settings, topic, [*poison, b'{"id": 5}'])
    with closing(KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic)])) as log:
        (whole,) = log.read(Range(table="t", partition=0, first=0, last=10), 1)
        assert [row[0] for row, _ in whole.batch.to_rows()] == [1, 2, 3, 5]
        assert whole.offsets.tolist() == [4, 4, 5, 9]
        assert [letter.offset for letter in whole.dead] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        alone = [log.read(Range(table="t", partition=0, first=n, last=n + 1), 1)[0].dead for n in range(10)]
        assert whole.dead == tuple(letter for dead in alone for letter in dead)


def test_ranges_give_the_same_rows_however_they_are_cut(settings: KafkaSettings) -> None:
    """One after the other, where the client goes on, and not; over markers, aborted rows, and an end that grows."""
    topic = settings.topic("source")
    ensure_topic(settings, topic, 1)
    send(settings, topic, [b'{"id": 0}', b'{"id": 1}'], commit=True)
    send(settings, topic, [b'{"id": 3}', b'{"id": 4}'], commit=False)
    send(settings, topic, [b'{"id": 6}', b'{"id": 7}'], commit=True)

    def ids(log: KafkaInputLog, first: int, last: int) -> list[int]:
        changes = log.read(Range(table="t", partition=0, first=first, last=last), 1)
        assert [row[0] for change in changes for row, _ in change.batch.to_rows()] == [
            offset for change in changes for offset in change.offsets.tolist()
        ]
        return [offset for change in changes for offset in change.offsets.tolist()]

    rows = [0, 1, 6, 7]
    with closing(KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic)])) as log:
        for end in (9, 10):
            for wide in range(1, end + 1):
                for first in range(0, end, wide):
                    last = min(first + wide, end)
                    assert ids(log, first, last) == [row for row in rows if first <= row < last]
            assert ids(log, 2, 7) == [6], "not where it went on"
            assert ids(log, 7, end) == [row for row in rows if row >= 7]
            if end == 9:
                send(settings, topic, [b'{"id": 9}'])
                rows.append(9)
                assert ids(log, 9, 10) == [9], "what came since"


def test_a_read_that_goes_on_asks_the_broker_for_nothing_until_nothing_comes(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question would wait behind the fetch under way, which waits for messages."""
    topic, asked = settings.topic("source"), list[int]()
    ensure_topic(settings, topic, 1)
    send(settings, topic, [b"0", b"1"])
    bounds = TopicReader._bounds

    def counted(reader: TopicReader, *place: object) -> tuple[int, int]:
        asked.append(len(asked))
        return bounds(reader, *place)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicReader, "_bounds", counted)
    with closing(TopicReader(settings)) as reader:

        def values(first: int, last: int) -> list[bytes]:
            return [message.value() for message in reader.read(topic, 0, first, last, go_on=True)]

        assert values(0, 1) == [b"0"]
        assert len(asked) == 1
        assert values(1, 2) == [b"1"]
        send(settings, topic, [b"2", b"3"])
        assert values(2, 4) == [b"2", b"3"]
        assert len(asked) == 1
        send(settings, topic, [b"4"])
        with pytest.raises(DataError, match=r"missing from Kafka: .* first=4 last=6 kept=0\.\.5"):
            values(4, 6)
        assert values(4, 5) == [b"4"]


def test_partitions_that_are_added_to_a_topic_are_met_while_it_is_read(settings: KafkaSettings) -> None:
    topic = settings.topic("source")
    ensure_topic(settings, topic, 1)
    send(settings, topic, [b'{"id": 1}'])
    with closing(KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic)], growth_check_s=0)) as log:
        assert (log.partitions("t"), log.ends()) == (1, {("t", 0): 1})
        ensure_topic(settings, topic, 3)
        send(settings, topic, [b'{"id": 2}', b'{"id": 3}'], partition=2)
        assert log.ends() == {("t", 0): 1, ("t", 1): 0, ("t", 2): 2}
        assert (log.partitions("t"), log.floors()) == (3, {("t", 0): 0, ("t", 1): 0, ("t", 2): 0})
        (found,) = log.read(Range(table="t", partition=2, first=0, last=2), 0)
        assert [row[0] for row, _ in found.batch.to_rows()] == [2, 3]


def test_arrow_messages(settings: KafkaSettings) -> None:
    topic = settings.topic("source")
    ensure_topic(settings, topic, 1)
    batch = make_part([((number, "a"), 1) for number in range(5)])
    stream = encode_arrow(batch)
    send(settings, topic, [stream, b"noise"])
    with closing(KafkaInputLog(settings, [KafkaSource(table=TABLE, topic=topic, format="arrow")])) as log:
        (piece,) = log.read(Range(table="t", partition=0, first=0, last=2), 1)
        assert [letter.offset for letter in piece.dead] == [0, 1]
        assert "unknown column: weight" in piece.dead[0].reason


def test_an_oversized_row_is_a_named_limit_and_writes_nothing(settings: KafkaSettings) -> None:
    """Row 25."""
    with closing(KafkaOutputLog(settings, 0, create=True)) as log:
        log.write(1, 0, part(0), [])
        with pytest.raises(CapacityError, match="too large"):
            log.write(1, 1, {"v": make_part([((1, "x"), 1), ((2, "y" * 1_100_000), 1)])}, [])
        log.write(1, 1, part(1), [])
    assert seen(settings) == [0, 1]


@pytest.mark.parametrize("format_", ["json", "arrow"])
@pytest.mark.parametrize("character", ["\u0001", "\\", "\U0001f600", "x"])
def test_no_dead_letter_is_too_large_for_a_message(settings: KafkaSettings, format_: str, character: str) -> None:
    """Row 25: a message that is as large as Kafka takes and no row at all is told of; it must not stop the pipeline."""
    letters = [
        DeadLetter(step=0, origin="t", partition=0, offset=offset, reason="not JSON", payload=character * size)
        for offset, size in enumerate((3, 1_000_000))
    ]
    with closing(KafkaOutputLog(settings, 0, create=True, format=format_)) as log:
        log.write(1, 0, {}, letters)
        log.write(1, 0, {}, letters)
        assert log.bounds() == (0, 1)
    found = list(messages(settings, settings.topic("dead_letters")))
    if format_ == "json":
        rows = [json.loads(message.value())["insert"] for message in found]
    else:
        rows = [row for message in found for row in pa.ipc.open_stream(message.value()).read_all().to_pylist()]
    assert [(row["offset"], row["payload"]) for row in rows] == [(0, 3 * character), (1, (1 << 17) * character)]
    assert [row["reason"] for row in rows] == ["not JSON", "not JSON (payload cut: characters=1000000)"]


def test_arrow_messages_are_bounded_where_few_rows_are_long(settings: KafkaSettings) -> None:
    texts = ["x"] * 2000 + ["y" * 200_000] * 8
    with closing(KafkaOutputLog(settings, 0, create=True, format="arrow")) as log:
        log.write(1, 0, {"v": make_part([((number, text), 1) for number, text in enumerate(texts)])}, [])
    found = [pa.ipc.open_stream(m.value()).read_all() for m in messages(settings, settings.topic("v"))]
    assert sorted(len(text) for table in found for text in table.column(1).to_pylist()) == list(map(len, texts))


def test_keys_and_headers(settings: KafkaSettings) -> None:
    topic = settings.topic("v")
    ensure_topic(settings, topic, 3)
    with closing(KafkaOutputLog(settings, 1, keys={"v": ("id",)}, create=True)) as log:
        log.write(1, 0, {"v": make_part([((number, "x"), 1) for number in range(20)])}, [])
    found = list(messages(settings, topic))
    assert sorted(int(message.key()) for message in found) == list(range(20))
    assert {message.partition() for message in found} == {0, 1, 2}
    assert {tuple(message.headers()) for message in found} == {(("step", b"0"), ("worker", b"1"))}


def test_no_broker_is_unavailable(settings: KafkaSettings) -> None:
    nowhere = replace(settings, brokers="127.0.0.1:1", timeout_s=0.5)
    with pytest.raises(UnavailableError):
        TopicReader(nowhere).partitions("x")


class Silent:
    """An admin whose broker has died with the request in hand: none of its futures ever ends."""

    def __getattr__(self, _request: str) -> object:
        return lambda *_, **__: defaultdict(Future)


@pytest.mark.parametrize(
    "ask",
    [lambda s: ensure_topic(s, "t", 1), lambda s: topic_config(s, "t"), lambda s: Trimmer(s).delete_below("t", 0, 1)],
)
def test_a_request_that_nobody_answers_is_unavailable(
    settings: KafkaSettings, ask: Callable[[KafkaSettings], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "make_admin", lambda _settings: Silent())
    with pytest.raises(UnavailableError, match="Kafka does not answer"):
        ask(replace(settings, timeout_s=0.01))


class Unsettled:
    """A consumer whose broker does not lead its partitions at first."""

    def __init__(self, code: int, refusals: int) -> None:
        self.code, self.left = code, refusals

    def list_topics(self, _: object, **__: object) -> None:
        """Take the question for what is new of a topic; the answer comes with the offsets."""

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self.left:
            self.left -= 1
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(self.code))
        return 3, 7


def test_a_partition_that_was_just_made_is_asked_for_again(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step of a worker that joins would be given up, and all rolled back, for a broker that is not so far yet."""
    codes = confluent_kafka.KafkaError
    for code in (codes.NOT_LEADER_FOR_PARTITION, codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION):
        reader, consumer = TopicReader(settings), Unsettled(code, 5)
        monkeypatch.setattr(reader, "_consumer", lambda consumer=consumer: consumer)
        assert reader.bounds("t", 0) == (3, 7)
        assert consumer.left == 0
    monkeypatch.setattr(reader, "_consumer", lambda: Unsettled(codes.TOPIC_AUTHORIZATION_FAILED, 1))
    with pytest.raises(ConfigError):
        reader.bounds("t", 0)


class Behind:
    """A consumer whose broker has not heard at first that a topic has three partitions now."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def list_topics(self, topic: str, **_: object) -> SimpleNamespace:
        self.left -= 1
        width = 3 if self.left < 0 else 2
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=dict.fromkeys(range(width)))})


@pytest.mark.parametrize("create", [True, False])
def test_a_progress_topic_that_was_just_widened_is_asked_for_again(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    """A worker that joins makes its partition; its background worker opens the same topic a moment later, maybe
    through another broker."""
    monkeypatch.setattr(output, "ensure_topic", lambda *_: None)
    soon, never = Behind(5), Behind(10**9)
    monkeypatch.setattr(TopicReader, "_consumer", lambda _: soon)
    KafkaOutputLog(settings, 2, create=create)
    monkeypatch.setattr(client, "SETTLE_S", 0.1)
    monkeypatch.setattr(TopicReader, "_consumer", lambda _: never)
    with pytest.raises(ConfigError, match="no partition for this worker"):
        KafkaOutputLog(settings, 2, create=create)
    assert TopicReader(settings).partitions("t") == 2, "as many as there are, at once"


def test_a_killed_broker_comes_back_with_everything(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    try:
        settings = KafkaSettings(brokers=broker.brokers, pipeline="p")
        with (
            closing(KafkaStepLog(settings, create=True)) as steps,
            closing(KafkaOutputLog(settings, 0, create=True)) as out,
        ):
            epoch = steps.claim()
            steps.append(make_record(0, epoch=epoch))
            out.write(epoch, 0, part(0), [])
            broker.kill()
            broker.start()
            steps.append(make_record(1, epoch=epoch))
            out.write(epoch, 1, part(1), [])
            assert [record.step for record in steps.read(0)] == [0, 1]
        assert by_step(weighted(message) for message in messages(settings, "p.v")) == {
            0: [((0, "x"), 1)],
            1: [((1, "x"), 1)],
        }
    finally:
        broker.close()


def test_a_writer_of_an_older_epoch_does_not_even_take_over(settings: KafkaSettings) -> None:
    with closing(KafkaOutputLog(settings, 0, create=True)) as new, closing(KafkaOutputLog(settings, 0)) as old:
        new.write(2, 0, part(0), [])
        with pytest.raises(FencedError):
            old.write(1, 1, part(1), [])
        producer = new._writer._client.current()
        new.write(2, 1, part(1), [])
        assert new._writer._client.current() is producer
