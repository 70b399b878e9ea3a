"""Changes of views as consumers follow them: every step once, whoever is killed, for any number of workers."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from dbsp.coordinator.address import read_address
from dbsp.coordinator.client.client import Client
from dbsp.coordinator.http import changes as changes_module
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.changes import EVENTS, NEXT_HEADER
from dbsp.coordinator.http.kinds import ARROW
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError, PositionError, UnavailableError
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, SETTINGS, answering, killable, script, settings

Order = tuple[int, str, int]
ORDERS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 900)), max_size=5)


def push(service: Service, orders: list[Order], *, delete: bool = False) -> None:
    """As one push, processed."""
    ids, customers, amounts = zip(*orders, strict=True)
    table = pa.table({"id": ids, "customer": customers, "amount": amounts})
    service.wait_until_processed(service.push("orders", table, delete=delete), 60)


def told(service: Service, view: str, first: int = 0, rows_max: int = 10_000) -> list[tuple[int, list[Any]]]:
    """(step, rows with weights) from a step on, page by page."""
    found = []
    while (page := service.changes(view, first, rows_max=rows_max)).steps:
        found += [(each.step, each.table.to_pylist()) for each in page.steps]
        first = page.next
    return found


def folded(changes: list[tuple[int, list[dict[str, Any]]]]) -> Counter[tuple[Any, ...]]:
    """All changes added up; rows that are not there are left out."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for _, change in changes:
        for row in change:
            rows[tuple(row.values())[:-1]] += row["weight"]
    return Counter({row: weight for row, weight in rows.items() if weight})


@examples(max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.lists(ORDERS.filter(bool), min_size=1, max_size=4), st.integers(1, 8))
def test_changes_are_the_same_for_any_workers_after_a_restart_and_a_rescale(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[list[Order]], rows_max: int
) -> None:
    """Also the law: the changes of the steps below `next`, added up, are the view as of `next`."""
    everything = []
    for workers in (1, 3):
        folder = tmp_path_factory.mktemp("changes")
        (folder / "circuit.py").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(SETTINGS)
        half = len(pushes) // 2
        with Service(settings(folder, f"pipeline.workers={workers}")) as service:
            for orders in pushes[:half]:
                push(service, orders)
            service.rescale(2)
            before = {view: told(service, view) for view in service.views()}
            seen = service.snapshot.step
            service.stop(now=True)  # so that steps are run again
        with Service(settings(folder)) as service:
            for orders in pushes[half:]:
                push(service, orders)
            for view in service.views():
                found = told(service, view, rows_max=rows_max)
                assert found == before[view] + told(service, view, seen)
                rows = service.read_view(view).table.to_pylist()
                assert folded(found) == folded([(0, rows)])
                everything.append((workers, view, found))
    alone = [each[1:] for each in everything if each[0] == 1]
    assert alone == [each[1:] for each in everything if each[0] == 3]


def test_a_page_has_whole_steps_and_says_where_the_next_begins(service: Service, client: httpx.Client) -> None:
    push(service, [(1, "a", 700), (2, "b", 800), (3, "c", 1)])
    push(service, [(4, "a", 1)])
    push(service, [(1, "a", 5)])
    answer = client.get("/v1/views/large/changes", params={"rows_max": 1}).json()
    assert (answer["view"], answer["first"], answer["next"], len(answer["changes"])) == ("large", 0, 1, 1)
    change = answer["changes"][0]
    assert (change["step"], change["weights"]) == (0, [1, 1])
    assert sorted(row["id"] for row in change["rows"]) == [1, 2]
    answer = client.get("/v1/views/large/changes", params={"first": answer["next"]}).json()
    gone = {"step": 2, "rows": [{"id": 1, "customer": "a", "amount": 700}], "weights": [-1]}
    assert (answer["next"], answer["changes"]) == (3, [gone])
    answer = client.get("/v1/views/large/changes", params={"first": 3}).json()
    assert (answer["next"], answer["changes"]) == (3, [])


def test_rows_are_processed_and_their_step_told_at_once(service: Service) -> None:
    """Else who pushed and waited would not find the changes of its rows."""
    shown: list[Snapshot] = []
    service.live_status.listen(shown.append)
    for number in range(3):
        push(service, [(number, "a", 700)])
    assert {now.processed.get(("orders", 0), 0) - now.step for now in shown if not now.ended} == {0}


def test_a_page_in_arrow(service: Service, client: httpx.Client) -> None:
    push(service, [(1, "a", 700)])
    push(service, [(1, "a", 5)])
    for first, rows in ((0, [(700, 1, 0), (700, -1, 1)]), (2, [])):
        answer = client.get("/v1/views/large/changes", params={"first": first}, headers={"Accept": ARROW})
        with pa.ipc.open_stream(answer.content) as reader:
            table = reader.read_all()
        assert table.column_names == ["id", "customer", "amount", "weight", "step"]
        assert [(row["amount"], row["weight"], row["step"]) for row in table.to_pylist()] == rows
        assert answer.headers[NEXT_HEADER] == "2"


def test_a_page_waits_for_a_step_that_changes_the_view(service: Service, client: httpx.Client) -> None:
    push(service, [(1, "a", 700)])
    waited: list[Any] = []
    asking = threading.Thread(
        target=lambda: waited.append(client.get("/v1/views/large/changes", params={"first": 1, "wait_s": 60}).json())
    )
    asking.start()
    push(service, [(2, "b", 1)])  # changes another view alone
    push(service, [(3, "b", 900)])
    asking.join(60)
    assert [change["step"] for change in waited[0]["changes"]] == [2]
    assert client.get("/v1/views/large/changes", params={"first": 3, "wait_s": 0.01}).json()["changes"] == []


def test_who_asks_while_the_service_starts_waits_until_it_knows_how_far_it_was(folder: Path) -> None:
    with Service(settings(folder)) as service:
        for number in range(3):
            push(service, [(number, "a", 700)])
        service.stop(now=True)
    for first in (1, 3):
        again = Service(settings(folder))
        with answering(again) as client:
            asking: list[Any] = []
            asked = threading.Thread(
                target=lambda at=first, to=asking, by=client: to.append(by.get(f"/v1/views/large/changes?first={at}"))
            )
            asked.start()
            again.start()
            asked.join(60)
            found = asking[0].json()
            assert ([change["step"] for change in found["changes"]], found["next"]) == (list(range(first, 3)), 3)
        again.stop()


def test_what_cannot_be_read_is_refused_by_name(folder: Path, client: httpx.Client, service: Service) -> None:
    def refused(path: str, **options: Any) -> tuple[int, str, str]:
        answer = client.get(path, **options)
        return answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["message"]

    push(service, [(1, "a", 700)])
    status, code, message = refused("/v1/views/none/changes")
    assert (status, code) == (404, "config")
    assert "views=['dead_letters', 'large', 'per_customer']" in message
    for accept in ("application/json", EVENTS):
        headers = {"Accept": accept}
        status, code, message = refused("/v1/views/large/changes?first=9", headers=headers)
        assert (status, code) == (416, "position")
        assert "first=9 next=1" in message
    for wrong in ("x", "-1", "9" * 40, "²"):
        sent = {"Accept": EVENTS, "Last-Event-ID": wrong.encode("latin-1")}
        assert refused("/v1/views/large/changes", headers=sent)[:2] == (400, "config")
    assert refused("/v1/views/large/changes?first=-1")[0] == 422
    assert client.get("/v1/views/large/changes", params={"first": 1}).status_code == 200


def test_changes_that_were_dropped_are_refused_and_not_passed_over(folder: Path) -> None:
    with Service(settings(folder, "output.retention_steps=1", "checkpoint.interval_s=1000")) as service:
        for number in range(6):
            push(service, [(number, "a", 700)])
            service.checkpoint()
        with pytest.raises(PositionError, match=r"first=0 kept_from=(\d+)") as error:
            service.changes("large")
        kept_from = int(re.findall("kept_from=([0-9]+)", error.value.message)[0])
        assert 0 < kept_from < 6
        assert [step for step, _ in told(service, "large", kept_from)] == list(range(kept_from, 6))
        with pytest.raises(PositionError):
            service.changes("large", kept_from - 1)


def test_outputs_that_are_not_embedded_are_read_where_they_are(folder: Path) -> None:
    with (
        Service(settings(folder, "output.kind=files", "output.directory=out")) as service,
        pytest.raises(ConfigError, match=r"output\.kind=files") as error,
    ):
        service.changes("large")
    assert "folder" in str(error.value.hint)


def test_dead_letters_are_followed_like_a_view(service: Service, client: httpx.Client) -> None:
    good = b'{"id": 1, "customer": "a", "amount": 1}\n'  # a push with more bad rows than good ones is refused
    client.post("/v1/tables/orders/rows?wait=true", content=b'{"id": "x"}\n' + good).raise_for_status()
    (change,) = client.get("/v1/views/dead_letters/changes").json()["changes"]
    assert (change["weights"], change["rows"][0]["text"]) == ([1], '{"id": "x"}')


# --- streams --------------------------------------------------------------------------------------------------------


@contextmanager
def stream(client: httpx.Client, view: str, last: str | None = None, **params: Any) -> Iterator[Iterator[str]]:
    """The lines of an event stream, as they come."""
    headers = {"Accept": EVENTS, **({"Last-Event-ID": last} if last is not None else {})}
    with client.stream("GET", f"/v1/views/{view}/changes", params=params, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith(EVENTS)
        yield answer.iter_lines()


def event(lines: Iterator[str]) -> dict[str, str]:
    """The next event: its fields."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line and fields:
            return fields
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
    raise AssertionError("the stream ended")


def test_a_stream_tells_every_step_once_also_to_who_comes_back(folder: Path) -> None:
    seen: list[tuple[str, Any]] = []
    last = None
    for part in range(3):
        with Service(settings(folder)) as service, answering(service) as client, stream(client, "large", last) as lines:
            for number in range(2):
                push(service, [(10 * part + number, "a", 700 + number)])
                found = event(lines)
                seen.append((found["id"], json.loads(found["data"])))
                last = found["id"]
            push(service, [(10 * part + 5, "b", 1)])  # changes nothing here
            push(service, [(10 * part + 6, "b", 900)])  # seen by the next stream
            service.stop(now=True)  # the steps are run again
    steps = [change["step"] for _, change in seen]
    assert [str(step) for step in steps] == [identity for identity, _ in seen]
    with Service(settings(folder)) as service:
        assert steps == [step for step, _ in told(service, "large")][: len(steps)]


def test_a_stream_that_hears_nothing_keeps_its_position(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its step might be dropped while nothing changes, and who comes back would be refused although nothing was missed."""
    monkeypatch.setattr(changes_module, "BEAT_S", 0.01)
    with stream(client, "large") as lines:
        assert next(lines) == ":"
        push(service, [(1, "a", 1)])
        while "id" not in (found := event(lines)):
            pass
        assert found == {"id": "0"}
        push(service, [(2, "a", 700)])
        while "data" not in (found := event(lines)):
            assert found["id"] in ("0", "1")
        assert (found["id"], json.loads(found["data"])["step"]) == ("1", 1)


def test_a_stream_ends_with_the_service_and_is_forgotten_when_its_reader_leaves(folder: Path) -> None:
    with Service(settings(folder)) as service:
        app = make_app(service)
        server = HttpServer(app, bind(service.config.http), folder)
        server.start()
        with plain_http.client(server.url) as client:
            with stream(client, "large") as lines:
                push(service, [(1, "a", 700)])
                event(lines)
            gone = threading.Event()
            for number in range(2000):  # the server learns of it when it writes, or is told
                if not app.state.notifier.waiting:
                    gone.set()
                    break
                push(service, [(number, "b", 800)])
            assert gone.is_set()
            with stream(client, "large", first=service.snapshot.step) as lines:
                service.stop(now=True)
                assert list(lines) == []
        server.stop()
        with pytest.raises(UnavailableError, match="ended"):
            service.changes("large")


class Busy(Client):
    """A client of a service whose view changes faster than pages are asked for."""

    steps = 5

    def ask(self, _method: str, path: str, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        self.steps += 1
        if path == "/v1/status":
            return {"step": self.steps}
        first = options["params"]["first"]
        return {"next": first + 1, "changes": [{"step": first}]}


def test_without_follow_it_ends_where_the_view_was_when_it_was_asked() -> None:
    pages = itertools.islice(Busy(url="http://127.0.0.1:1").pages("v"), 100)
    assert [page["next"] for page in pages] == [1, 2, 3, 4, 5, 6]


def test_who_follows_through_a_kill_sees_what_nobody_killed_would_show(folder: Path) -> None:
    """`coordinator changes --follow` goes on behind each kill -9 and start, over steps that are run again."""
    seen: list[dict[str, Any]] = []
    command = [
        sys.executable,
        "-m",
        "dbsp.coordinator.commands.cli",
        "--json",
        "changes",
        "large",
        "--follow",
        "--first",
        "0",
    ]
    following: subprocess.Popen[str] | None = None
    with ExitStack() as ended:
        for part in range(3):
            with killable(folder) as process:
                url = read_address(folder / "data")["url"]
                for number in range(3):
                    body = json.dumps({"id": number, "customer": "a", "amount": 600 + 10 * part})
                    plain_http.post(f"{url}/v1/tables/orders/rows?wait=true", content=body).raise_for_status()
                if following is None:
                    following = ended.enter_context(
                        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    )
                    ended.callback(following.kill)
                assert following.stdout is not None
                seen += [json.loads(following.stdout.readline()) for _ in range(3)]
                process.kill()
        assert following is not None
        assert following.stderr is not None
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
        found = re.search("go on with --first ([0-9]+)", following.stderr.read())
        assert found is not None
        assert int(found[1]) == 9
    assert [change["step"] for change in seen] == list(range(9))
    expected = []
    for part in range(3):
        for number in range(3):
            new = {"id": number, "customer": "a", "amount": 600 + 10 * part}
            expected.append([(1, new)] + ([(-1, {**new, "amount": new["amount"] - 10})] if part else []))
    shown = [list(zip(change["weights"], change["rows"], strict=True)) for change in seen]
    assert [sorted(rows, key=repr) for rows in shown] == [sorted(rows, key=repr) for rows in expected]


def test_the_command_shows_what_there_is_and_ends(folder: Path) -> None:
    with Service(settings(folder)) as service, answering(service) as client:
        push(service, [(1, "a", 700)])
        push(service, [(1, "a", 5)])
        done = script("cli", "--url", str(client.base_url), "changes", "large", folder=folder)
        row = '{"id": 1, "customer": "a", "amount": 700}'
        assert done.stdout.splitlines() == [f"0\t+1\t{row}", f"1\t-1\t{row}"]
        assert (done.returncode, done.stderr) == (0, "")
        command = [
            sys.executable,
            "-m",
            "dbsp.coordinator.commands.cli",
            "--url",
            str(client.base_url),
            "changes",
            "large",
        ]
        stream = subprocess.run([*command, "-o", "arrow"], cwd=folder, capture_output=True, check=True).stdout
        found = pa.ipc.open_stream(stream).read_all()
        assert found.to_pylist() == [
            {"step": 0, "id": 1, "customer": "a", "amount": 700, "weight": 1},
            {"step": 1, "id": 1, "customer": "a", "amount": 700, "weight": -1},
        ]
        stream = subprocess.run([*command, "-o", "arrow", "--first", "2"], cwd=folder, capture_output=True, check=True)
        assert pa.ipc.open_stream(stream.stdout).read_all().equals(found.slice(0, 0)), "no rows, and the same columns"
        done = script("cli", "--url", str(client.base_url), "changes", "large", "--first", "7", folder=folder)
        assert (done.returncode, done.stdout) == (3, "")
        assert "has not reached this step: first=7 next=2" in done.stderr
