"""The command lines of the service and of its client."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.coordinator import build as build_module
from dbsp.coordinator import serve
from dbsp.coordinator.address import read_address
from dbsp.coordinator.commands import cli
from dbsp.coordinator.service import Service
from dbsp.errors import CapacityError, ConfigError
from dbsp.operators.groups.group_by import GroupByOperator
from dbsp.zset.batch import Batch
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, ORDERS, SETTINGS, answering, killable, rows, script, serving, settings

Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """A console script run in this process, which saves its start: the exit code, and what it said on stderr."""
    monkeypatch.chdir(folder)

    def run(main: Callable[[], None], *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["script", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def test_check_prints_the_plan_and_starts_nothing(folder: Path) -> None:
    done = command_line(folder, "--check")
    assert done.returncode == 0, done.stderr
    assert "per_customer" in done.stdout
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("settings", "circuit", "message"),
    [
        (SETTINGS.replace("port", "prot"), CIRCUIT, "did you mean `port`"),
        (SETTINGS.replace(":pipeline", ":pipelin"), CIRCUIT, "pipeline"),
        (SETTINGS, CIRCUIT.replace('col("amount")', 'col("amout")'), "amount"),
        (SETTINGS, CIRCUIT.replace('"per_customer":', '"dead_letters":'), "a view cannot be called dead_letters"),
    ],
)
def test_check_names_what_is_wrong(folder: Path, said: Said, settings: str, circuit: str, message: str) -> None:
    (folder / "pipeline.toml").write_text(settings)
    (folder / "circuit.py").write_text(circuit)
    code, text = said(serve.main, "pipeline.toml", "--check")
    assert code == 2
    assert message in text
    assert "Traceback" not in text


def test_check_runs_the_circuit_over_a_row(folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a plan that no step can run."""

    def step(self: GroupByOperator, context: object, state: object, inputs: tuple[Batch, ...]) -> Batch:
        raise CapacityError(f"rows={len(inputs[0])}", "none")

    monkeypatch.setattr(GroupByOperator, "step", step)
    code, text = said(serve.main, "pipeline.toml", "--check")
    assert code == 2
    assert "the circuit cannot run: rows=" in text
    assert not (folder / "data").exists()


@pytest.mark.parametrize("command", [["status"], ["rescale", "3"], ["query", "SELECT 1"], ["stop"]])
def test_a_client_without_a_service(said: Said, command: list[str]) -> None:
    code, text = said(cli.main, *command)
    assert code == 4
    assert "not running" in text
    assert "dbsp-coordinator pipeline.toml" in text
    assert ("--rescale 3" in text) == (command[0] == "rescale")


def test_the_client_steers_a_service(folder: Path) -> None:
    with killable(folder) as process:
        (folder / "rows.json").write_text(json.dumps(ORDERS.to_pylist()))
        pushed = script("cli", "push", "orders", "rows.json", folder=folder)
        assert "rows 0 to 2 of orders are durable" in pushed.stdout, pushed.stderr
        url = read_address(folder / "data")["url"]
        plain_http.post(f"{url}/v1/tables/orders/rows", params={"wait": "true"}, content=b"").raise_for_status()
        asked = script("cli", "query", "SELECT sum(amount) AS s FROM per_customer", folder=folder)
        assert "611" in asked.stdout, asked.stderr
        odd = script("cli", "query", "SELECT NULL AS nothing, '' AS empty, '[red]x' AS marked", folder=folder)
        assert odd.stdout.splitlines()[3].split() == ["│", "null", "│", "│", "[red]x", "│"], odd.stdout
        assert "moved" in script("cli", "rescale", "3", folder=folder).stdout
        found = script("cli", "--json", "status", folder=folder)
        assert json.loads(found.stdout)["workers"] == 3
        refused = script("cli", "query", "COPY large TO 'x'", folder=folder)
        assert (refused.returncode, "only SELECT" in refused.stderr) == (2, True)
        assert script("cli", "stop", folder=folder).returncode == 0
        assert process.wait(60) == 0
        assert not (folder / "data" / "coordinator.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_a_checkpoint(folder: Path, number: signal.Signals) -> None:
    with killable(folder) as process:
        url = read_address(folder / "data")["url"]
        rows = json.dumps(ORDERS.to_pylist())
        plain_http.post(f"{url}/v1/tables/orders/rows", params={"wait": "true"}, content=rows).raise_for_status()
        os.kill(process.pid, number)
        assert process.wait(60) == 0
    with Service(settings(folder)) as service:
        assert service.snapshot.checkpoint_step == service.snapshot.step == 1


def test_who_reads_what_it_says_may_be_gone(folder: Path) -> None:
    """A pipe into a log shipper that restarts: nothing ends, and an interrupt stops as ever."""
    with serving(folder) as process:
        url = read_address(folder / "data")["url"]
        rows = json.dumps(ORDERS.to_pylist())
        plain_http.post(f"{url}/v1/tables/orders/rows", params={"wait": "true"}, content=rows).raise_for_status()
        assert process.stderr is not None
        process.stderr.close()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    with Service(settings(folder)) as service:
        assert service.snapshot.checkpoint_step == service.snapshot.step == 1


GONE = """
import os
read, write = os.pipe()
os.dup2(write, 2)
os.close(write)
os.close(read)
from dbsp.coordinator.exits import say
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.live_line import LiveLine
from dbsp.coordinator.running.status import Snapshot
with LiveLine(SystemClock()) as live_line:
    live_line.show(Snapshot(state="Running"))
say("still there")
print("done")
"""


def test_a_progress_line_that_nobody_reads_ends_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_without_spark_the_error_names_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module.importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'dbsp-engine\[spark\]'"),
        Service(settings(folder, "pipeline.runtime=spark")),
    ):
        pass


@pytest.mark.parametrize("module", ["service", "client"])
def test_without_the_packages_of_the_service_the_command_says_what_to_install(module: str) -> None:
    absent = "import sys; sys.modules['httpx'] = sys.modules['fastapi'] = None"
    code = f"{absent}; from dbsp.coordinator import commands; commands.{module}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'dbsp-engine[service]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_push_that_is_repeated_says_so(client: httpx.Client, service: Service) -> None:
    def push(*options: str) -> subprocess.CompletedProcess[str]:
        row = '{"id": 1, "customer": "a", "amount": 1}'
        return script("cli", "--url", str(client.base_url), "push", "orders", *options, given=row)

    assert "pushed before" not in push("--producer", "me", "--sequence", "1").stdout
    assert "pushed before, nothing was added" in push("--producer", "me", "--sequence", "1").stdout
    half = push("--sequence", "2")
    assert half.returncode == 2
    assert "--producer and --sequence together" in half.stderr


def test_files_are_pushed_by_the_rules_of_all_rows(client: httpx.Client, service: Service, tmp_path: Path) -> None:
    table = pa.table({"id": [1.0, 2.5], "customer": ["a", "b"], "amount": [1, 2]})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    done = script("cli", "--url", str(client.base_url), "push", "orders", str(tmp_path / "rows.arrow"))
    assert "rows 0 to 1 of orders are durable; bad rows: 1, the first: column id: " in done.stdout, done.stderr
    pq.write_table(pa.table({"id": [3], "customer": ["c"], "amount": [3]}), tmp_path / "rows.parquet")
    done = script("cli", "--url", str(client.base_url), "push", "orders", str(tmp_path / "rows.parquet"))
    assert "rows 2 to 2 of orders are durable" in done.stdout, done.stderr
    (tmp_path / "rows.CSV").write_text("id,customer,amount\n4,d,900\n")
    done = script("cli", "--url", str(client.base_url), "push", "orders", str(tmp_path / "rows.CSV"), "--wait", "60")
    assert "rows 3 to 3 of orders are durable" in done.stdout, done.stderr
    tabs = "id\tcustomer\tamount\n5\te\t901\n"
    done = script("cli", "--url", str(client.base_url), "push", "orders", "--format", "tsv", "--wait", "60", given=tabs)
    assert "rows 4 to 4 of orders are durable" in done.stdout, done.stderr
    assert sorted(service.read_view("large").table.column("id").to_pylist()) == [4, 5]


@pytest.mark.parametrize(
    ("setting", "more", "story"),
    [
        ("pipeline.data_dir=taken", (), "a folder of the settings is a file: data_dir="),
        ("pipeline.data_dir=taken", ("--check",), "a folder of the settings is a file: data_dir="),
        ("pipeline.data_dir=taken/data", (), "a folder cannot be made: data_dir="),
        ("output.directory=taken", (), "a folder of the settings is a file: output.directory="),
        ("output.directory=taken", ("--check",), "a folder of the settings is a file: output.directory="),
        ("output.directory=taken/out", (), "a folder cannot be made: output.directory="),
    ],
)
def test_a_folder_that_cannot_be_is_one_error(folder: Path, setting: str, more: tuple[str, ...], story: str) -> None:
    (folder / "taken").write_text("")
    options = ("--set", "output.kind=files", "--set", setting, "--set", "http.port=0", *more)
    done = script("serve", "pipeline.toml", *options, folder=folder)
    assert done.returncode == 2
    errors = [
        line for line in done.stderr.splitlines() if line.startswith("error: ")
    ]  # a busy machine is told of before
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith(f"error: {story}")
    assert "Traceback" not in done.stderr


def test_a_folder_that_this_user_cannot_write_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != folder)
    wanted = f"cannot be written: data_dir={folder}/data; let the user of the service write in {folder}"
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        build_module.check_start(settings(folder), build_module.load_plan(settings(folder)))


def test_another_number_of_workers_in_the_settings_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Service(settings(folder)).close()
    for setting, noted in ((2, False), (5, True), (5, False), (3, True), (5, True), (2, False)):
        with closing(Service(settings(folder, f"pipeline.workers={setting}"))) as service:
            serve._note_workers(service, None)
        assert (f"coordinator rescale {setting}" in capsys.readouterr().err) == noted


@pytest.mark.parametrize(("error", "code"), [(OSError("full"), 4), (KeyError("x"), 70)])
def test_an_error_of_another_kind_has_its_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    assert serve.guarded(fails) == code
    assert "error: " in capsys.readouterr().err


def test_a_wrong_token_is_a_wrong_argument(folder: Path) -> None:
    with Service(settings(folder, "http.token=secret")) as service, answering(service) as client:
        done = script("cli", "--url", str(client.base_url), "--token", "x", "status")
    assert done.returncode == 2
    assert "give --token" in done.stderr


def command_line(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return script("serve", str(folder / "pipeline.toml"), *options)


def test_a_push_waits_and_a_strict_one_tells_of_bad_rows(client: httpx.Client, service: Service) -> None:
    def push(given: str, *options: str) -> subprocess.CompletedProcess[str]:
        return script("cli", "--url", str(client.base_url), "push", "orders", *options, given=given)

    row = '{"id": %d, "customer": "a", "amount": 1}'
    done = push(row % 1, "--wait", "60")
    assert done.returncode == 0
    assert done.stdout.endswith("processed: the views have them\n")
    assert rows(service) == {"a": (1, 1, 1)}
    bad = "\n".join([row % 2, row % 3, '{"id": "x"}'])
    for options, code in (((), 0), (("--strict",), 3)):
        done = push(bad, *options)
        assert (done.returncode, "bad rows: 1" in done.stdout) == (code, True)
        assert ("bad row: " in done.stderr) == bool(options)
    client.post("/v1/pause")
    done = push(row % 4, "--wait", "0.1")
    assert done.returncode == 4
    assert "\nnot processed yet: " in done.stdout
    client.post("/v1/resume")
