"""`coordinator sql`, `logs`, `top`, `validate`, `reset`, `-o` and completion, beside a service or without one."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import httpx
import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.coordinator.build import build
from dbsp.coordinator.commands import cli, completing, top
from dbsp.coordinator.commands.log_commands import FollowedLog, last_lines
from dbsp.coordinator.commands.rows_out import csv_line
from dbsp.coordinator.commands.sql_shell import Shell, ends, statements
from dbsp.coordinator.resetting import carry_out_reset, survey_reset
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError, DataError, DbspError, UnavailableError
from tests.coordinator.shop import CIRCUIT, ORDERS, SETTINGS, killable, settings

Run = Callable[..., Result]


@pytest.fixture
def run(client: httpx.Client, service: Service) -> Run:
    """Run a command of the client against a service that has the orders."""
    asking = dbsp.Client(url=str(client.base_url))
    asking.push("orders", ORDERS, wait_s=60)

    def ran(*arguments: str, given: str | None = None) -> Result:
        return CliRunner().invoke(cli.command, ["--url", str(client.base_url), *arguments], input=given)

    return ran


def error_of(result: Result) -> DbspError:
    assert isinstance(result.exception, DbspError), result.output
    return result.exception


def arrow_rows(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.ipc.open_stream(found.stdout_bytes).read_all().to_pylist()
    return rows


def test_rows_are_printed_in_every_form(run: Run) -> None:
    query = "select customer, amount, null as gone, '' as e, 'a,\"b' as q from per_customer order by 1"
    wanted = [
        {"customer": "a", "amount": 10, "gone": None, "e": "", "q": 'a,"b'},
        {"customer": "b", "amount": 601, "gone": None, "e": "", "q": 'a,"b'},
    ]
    for words in (["query", query], ["sql", "-c", query]):
        assert [json.loads(line) for line in run(*words, "-o", "json").stdout.splitlines()] == wanted
        found = list(csv.reader(io.StringIO(run(*words, "-o", "csv").stdout)))
        assert found == [list(wanted[0]), *(["" if v is None else str(v) for v in row.values()] for row in wanted)]
        arrow = run(*words, "-o", "arrow")
        assert pa.ipc.open_stream(arrow.stdout_bytes).read_all().to_pylist() == wanted
        assert "2 rows as of step" in run(*words).stdout
    changed = run("changes", "large", "-o", "csv").stdout.splitlines()
    assert changed[0] == "step,weight,id,customer,amount"
    assert changed[1].endswith(",1,2,b,600")
    assert json.loads(run("changes", "large", "-o", "json").stdout)["row"] == {"id": 2, "customer": "b", "amount": 600}
    table = run("changes", "large", "-o", "table").stdout
    assert [word.strip() for word in re.split("[┃]", table.splitlines()[1])[1:-1]] == [
        "step",
        "weight",
        "id",
        "customer",
        "amount",
    ]
    assert [word.strip() for word in table.splitlines()[3].split("│")[2:-1]] == ["+1", "2", "b", "600"]
    assert '\t+1\t{"id": 2, ' in run("changes", "large").stdout, "lines, if nothing else is asked for"
    assert len(run("layout", "-o", "csv").stdout.splitlines()) == 3
    layout = arrow_rows(run("layout", "-o", "arrow"))
    assert [(row["worker"], len(row["ranges"])) for row in layout] == [(0, 1), (1, 1)]
    assert json.loads(run("--json", "query", "select 1 as a").stdout)["rows"] == [[1]]


@given(st.lists(st.one_of(st.none(), st.text(), st.integers(), st.booleans()), min_size=1))
def test_csv_is_read_back(values: list[Any]) -> None:
    ((*found,),) = csv.reader(io.StringIO(csv_line(values), newline=""), strict=True) if csv_line(values) else [[""]]
    assert found == ["" if v is None else json.dumps(v) if isinstance(v, bool) else str(v) for v in values]


def test_statements_of_standard_input_end_at_the_first_that_fails(run: Run) -> None:
    good = run("sql", "-o", "csv", given="select 1 as a; -- two\nselect ';' as b;\n")
    assert good.stdout.splitlines() == ["a", "1", "b", ";"]
    wrong = run("sql", "-o", "csv", given="select 1 as a; selec; select 2 as c")
    assert (wrong.stdout.splitlines(), error_of(wrong).exit_code) == (["a", "1"], 2)
    columns = run("sql", "-o", "csv", "-c", r"\d large", "-c", "select 1 as a").stdout.splitlines()
    assert (columns[0], columns[-2:]) == ("column,type", ["a", "1"])
    assert "amount,int64" in columns
    assert "per_customer" in run("sql", given=r"\d").stdout
    assert r"no such command: \x" in error_of(run("sql", "-c", r"\x")).message
    assert "no statement" in error_of(run("sql", given=" -- nothing\n ;")).message
    assert "one statement" in error_of(run("sql", "-o", "arrow", "-c", "select 1; select 2")).message


def test_a_misspelt_name_gets_the_most_similar_one(client: httpx.Client, run: Run) -> None:
    for words in (
        ["changes", "per_custmer"],
        ["query", "select * from per_custmer"],
        ["sql", "-c", "select 1 from per_custmer"],
    ):
        assert error_of(run(*words)).hint == "did you mean `per_customer`?"
    assert error_of(run("push", "order", given="[]")).hint == "did you mean `orders`?"
    with pytest.raises(DataError, match="rows must be a list of dicts"):
        dbsp.Client(url=str(client.base_url)).push("orders", {"id": 1})


@given(st.lists(st.sampled_from(["a", ";", "'", '"', "--", "\n", "/*", "*/", "$$", " "])))
def test_a_text_is_cut_at_the_semicolons_outside_of_quotes_and_comments(parts: list[str]) -> None:
    text = "".join(parts)
    whole = "select 'a;' as \"b;\" /* ; */ -- ;\n, $$;$$"
    assert statements(f"{whole}; {whole};") == [whole, whole]
    assert ends(f"{whole};")
    assert not ends(whole)
    assert all(each in text for each in statements(text))


def test_a_shell_goes_on_after_an_error_and_completes_names(client: httpx.Client, run: Run, capsys: Any) -> None:
    typed = iter([
        "selec;", "select customer", "from per_customer where amount > 600;", r"\d", r"\d large", r"\d no", "", r"\q", "never",
    ])  # fmt: skip
    shell = Shell(dbsp.Client(url=str(client.base_url)), "csv", read=lambda _prompt: next(typed))
    shell.loop()
    said = capsys.readouterr()
    assert said.out.splitlines()[1:3] == ["customer", "b"]
    assert "per_customer" in said.out
    assert "int64" in said.out
    assert said.err.count("error:") == 2
    assert next(typed) == "never"
    assert shell.complete("per_") == ["per_customer"]
    assert shell.complete("am") == ["amount"]
    assert shell.complete("SEL") == ["SELECT"]


def test_a_history_is_kept_for_its_user_alone(
    client: httpx.Client, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Shell(dbsp.Client(url=str(client.base_url)), "csv", read=lambda _prompt: r"\q").loop()
    kept = tmp_path / "state" / "dbsp" / "sql_history"
    assert kept.stat().st_mode & 0o077 == 0


def test_top_prints_rates_lag_and_workers(run: Run) -> None:
    text = run("top", "--once", "--interval", "0.1").stdout
    assert text.startswith("shop: Running, step ")
    assert "lag 0 rows" in text
    found = json.loads(run("--json", "top", "--once", "--interval", "0.1").stdout)
    assert [row["worker"] for row in found["workers"]] == [0, 1]
    assert found["rows_in_per_s"] == 0


def test_rates_are_not_told_over_a_restart() -> None:
    status = {
        "name": "s", "state": "Running", "epoch": 1, "step": 10, "rows_in": 100, "rows_out": 50, "lag_rows": 0, "state_bytes": 1,
        "dead_letters": 0, "last_step_seconds": None, "checkpoint_step": 1, "alarms": [{"text": "x"}],
    }  # fmt: skip
    before = {"at": 1.0, "status": status, "layout": {"rows": []}}
    later = {**before, "at": 3.0, "status": {**status, "rows_in": 300, "step": 14}}
    assert [top.figures(before, later)[name] for name in ("rows_in_per_s", "steps_per_s")] == [100.0, 2.0]
    again = {**later, "status": {**later["status"], "epoch": 2}}
    assert top.figures(before, again)["rows_in_per_s"] is None


def test_logs_are_followed_over_a_renamed_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("1\n2\n3\n")
    followed = FollowedLog(file)
    assert last_lines(file, 2, 2, followed) == ["2", "3"]
    with file.open("a") as more:
        more.write("4\n5")
        more.flush()
        assert list(followed.more()) == ["4"]
        more.write("\n6\n")
    file.rename(tmp_path / "log.1")
    file.write_text("7\n")
    assert list(followed.more()) == ["5", "6", "7"]
    assert list(followed.more()) == []
    assert last_lines(file, 2, 3, FollowedLog(file)) == ["5", "6", "7"]
    assert last_lines(file, 2, 0, FollowedLog(file)) == []


@pytest.fixture
def offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of the client in the pipeline's folder; no service runs."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    monkeypatch.chdir(elsewhere)
    return lambda *arguments: CliRunner().invoke(cli.command, ["--pipeline", str(folder / "pipeline.toml"), *arguments])


def test_logs_of_a_stopped_service(service: Service, offline: Run) -> None:
    service.stop()
    lines = offline("logs", "-n", "2").stdout.splitlines()
    assert len(lines) == 2
    assert lines[-1].endswith(" end code=ok message=stopped")
    assert json.loads(offline("--json", "logs", "-n", "1").stdout)["event"]


def test_validate_says_what_a_start_would(folder: Path, offline: Run) -> None:
    assert offline("validate").stdout.startswith("ok: circuit=circuit.py:pipeline")
    assert "per_customer" in offline("validate", "--plan").stdout
    assert json.loads(offline("--json", "validate").stdout)["views"] == ["per_customer", "large"]
    (folder / "pipeline.toml").write_text(SETTINGS.replace("port", "prot"))
    assert "did you mean `port`" in str(error_of(offline("validate")))
    assert not (folder / "data").exists()


def test_validate_names_what_is_wrong_in_the_circuit(folder: Path, offline: Run) -> None:
    (folder / "circuit.py").write_text(CIRCUIT.replace('col("amount")', 'col("amout")'))
    assert "amout" in error_of(offline("validate")).message


def test_a_file_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    for words in (["status"], ["sql", "-c", "select 1"], ["validate"], ["reset"], ["logs"]):
        found = error_of(CliRunner().invoke(cli.command, ["--pipeline", str(tmp_path / "no.toml"), *words]))
        assert (found.exit_code, "--pipeline" in str(found.hint)) == (2, True)


@pytest.fixture
def stopped(folder: Path) -> Path:
    """The folder of a pipeline that has run, with files outside its data folder."""
    (folder / "pipeline.toml").write_text(SETTINGS + '[output]\nkind = "files"\ndirectory = "rows"\n')
    made = Service(settings(folder))
    made.start(timeout_s=60)
    made.stop()
    made.close()
    return folder


def test_a_reset_says_what_it_would_do_and_moves_aside(stopped: Path, offline: Run) -> None:
    said = offline("reset").stdout
    assert f"move aside the data folder: {stopped / 'data'} (" in said
    assert f"leave an output: {stopped / 'rows'} (--outside takes it too)" in said
    assert "--yes" in said
    assert (stopped / "data").is_dir()
    done = offline("reset", "--yes").stdout
    (aside,) = stopped.glob("data.reset-*")
    assert str(aside) in done
    assert not (stopped / "data").exists()
    assert (stopped / "rows").is_dir()
    assert (aside / "control").is_dir()
    offline("reset", "--yes", "--outside", "--delete")
    assert not (stopped / "rows").exists()
    assert "nothing is stored" in offline("reset", "--yes").stdout
    Service(settings(stopped), build(settings(stopped))).close()  # a new pipeline begins


def test_a_reset_is_refused_while_the_service_runs(folder: Path, offline: Run) -> None:
    with killable(folder):
        found = error_of(offline("reset", "--yes"))
    assert isinstance(found, UnavailableError)
    assert "coordinator stop" in str(found.hint)
    assert (folder / "data" / "control").is_dir()
    offline("reset", "--yes")  # a service that was killed does not run
    assert not (folder / "data").exists()


def test_a_reset_never_takes_the_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipeline.toml").write_text(SETTINGS.replace('name = "shop"', 'name = "shop"\ndata_dir = "."'))
    with pytest.raises(ConfigError, match="holds other files"):
        survey_reset(settings(folder), outside=False)
    assert (folder / "circuit.py").exists()


def test_two_resets_of_one_second_have_two_folders(folder: Path) -> None:
    for _ in range(2):
        (folder / "data").mkdir()
        carry_out_reset(survey_reset(settings(folder), outside=False), delete=False)
    assert len(list(folder.glob("data.reset-*"))) == 2


def test_names_are_completed(client: httpx.Client, run: Run) -> None:
    def completed(*words: str, begun: str) -> list[str]:
        shell = ShellComplete(cli.command, {}, "coordinator", "_COORDINATOR_COMPLETE")
        return [each.value for each in shell.get_completions(["--url", str(client.base_url), *words], begun)]

    assert completed("changes", begun="") == ["per_customer", "large", "dead_letters"]
    assert completed("push", begun="o") == ["orders"]
    assert completed(begun="va") == ["validate"]
    away = click.Context(cli.command)
    away.params = {"url": "http://127.0.0.1:1"}
    assert completing.VIEWS(away, click.Argument(["view"]), "") == []


def test_letters_and_backups_are_printed_as_rows(run: Run, service: Service, tmp_path: Path) -> None:
    run("push", "orders", "--wait", "60", given='{"id": 9, "note": "x"}\n{"id": 8, "customer": "c", "amount": 1}\n')
    (letter,) = csv.DictReader(io.StringIO(run("dead-letters", "list", "-o", "csv").output))
    assert (letter["code"], letter["row_offset"], letter["replayed"]) == ("unreadable", "3", "")
    assert json.loads(run("dead-letters", "list", "-o", "json").output)["reason"] == letter["reason"]
    (same,) = arrow_rows(run("dead-letters", "list", "-o", "arrow"))
    assert (same["reason"], same["row_offset"], same["step"]) == (letter["reason"], 3, int(letter["step"]))
    assert arrow_rows(run("dead-letters", "list", "--code", "late", "-o", "arrow")) == []
    assert f"│ {letter['position']} " in run("dead-letters", "list", "-o", "table").output
    made = service.back_up(tmp_path / "backups", 60)
    (backup,) = csv.DictReader(io.StringIO(run("backups", str(tmp_path / "backups"), "-o", "csv").output))
    assert arrow_rows(run("backups", str(tmp_path / "backups"), "-o", "arrow"))[0]["bytes"] == int(backup["bytes"])
    assert (backup["name"], backup["step"]) == (Path(made["folder"]).name, str(made["step"]))
    assert f"│ {backup['name']} │ {backup['state']} " in run("backups", str(tmp_path / "backups"), "-o", "table").output
    (tmp_path / "backups" / "half.unfinished").mkdir()
    states = [
        json.loads(line)["state"]
        for line in run("backups", str(tmp_path / "backups"), "-o", "json").output.splitlines()
    ]
    assert sorted(states) == sorted([backup["state"], "unfinished"])
