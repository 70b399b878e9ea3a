"""Plays the blocks of one page in order, in a folder of its own.

| block | what is done with it |
| --- | --- |
| any, `title="shop.py"` | is written to that file; `title="add to pipeline.toml"` is added to it |
| `python` with `>>>` | runs as a doctest; all blocks of a page share their names |
| `python` | runs, in the same names |
| `console` | each line after `$ ` runs; the lines below it are its output, if there are any (`...` stands for anything) |
| `toml` without a title | is a part of the settings, and is checked as one |
| `sql` without a title | is a part of a circuit in SQL, and is parsed |

A command of the coordinator is a fork of a process that has loaded it, because that is cheap. With `real_shell` bash runs each,
as a reader's would. Services listen at free ports; a page names the default ports, which are exchanged for them.
"""

from __future__ import annotations

import contextlib
import doctest
import io as stdio
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Self

import sqlglot

from dbsp.coordinator.address import read_address
from dbsp.coordinator.settings.config import make_config
from tests.docs.blocks import Block
from tests.forked import Forked, main
from tests.spark.waiting import until

ADD = "add to "
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MODULES = {"coordinator": "dbsp.coordinator.commands.cli", "dbsp-coordinator": "dbsp.coordinator.serve"}
PORTS = {"http": "8080", "postgres": "5433", "flight": "31337"}
"""The ports that pages name; tests use free ones in their place."""
COMMAND_S_MAX = 120
SHELL_SIGNS = frozenset("|<>$;&*`\\")


class Player:
    """Plays blocks in a folder; closes what they started."""

    def __init__(self, folder: Path, *, real_shell: bool = False) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "page"}
        self.played = 0
        self._real_shell = real_shell
        self._services: list[Forked] = []
        self._environment = {"DBSP_HTTP_PORT": "0", "COLUMNS": "100"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for service in self._services:
            service.kill()
            service.wait(60)

    def play(self, block: Block) -> None:
        """Do with a block what its language and title say."""
        self.played += 1
        name = block.title.removeprefix(ADD)
        if block.title:
            with (self.folder / name).open("a" if block.title.startswith(ADD) else "w", encoding="utf-8") as file:
                file.write(block.text)
        elif block.language == "python":
            self._python(block)
        elif block.language == "console":
            self._console(block.text)
        elif block.language == "toml":
            found = tomllib.loads(block.text)
            found.setdefault("pipeline", {}).setdefault("circuit", "shop.py:shop")
            make_config(found, environment={})
        elif block.language == "sql":
            assert sqlglot.parse(block.text, dialect="duckdb")
        else:
            raise AssertionError(f"a block that nobody runs: language={block.language!r}")
        if block.language == "toml" and name.endswith("pipeline.toml"):
            make_config(tomllib.loads((self.folder / name).read_text(encoding="utf-8")), environment={})

    # --- Python -------------------------------------------------------------------------------------------------------

    def _python(self, block: Block) -> None:
        text = self._with_ports(block.text)
        with contextlib.chdir(self.folder), _environment(self._environment):
            if ">>>" not in text:
                exec(compile(text, f"line {block.line}", "exec"), self.names)
                return
            test = doctest.DocTestParser().get_doctest(text, self.names, "page", None, block.line)
            runner, said = doctest.DocTestRunner(optionflags=FLAGS, verbose=False), stdio.StringIO()
            failed = runner.run(test, out=said.write, clear_globs=False).failed
            self.names.update(test.globs)
            assert not failed, said.getvalue()

    # --- the shell ----------------------------------------------------------------------------------------------------

    def _console(self, text: str) -> None:
        for command, wanted in commands(text):
            code, said = self._run(self._with_ports(command))
            shown = self._with_default_ports(said)
            if wanted:
                assert doctest.OutputChecker().check_output(wanted, shown, FLAGS), f"$ {command}\n{shown}"
            assert (code == 0) or "error:" in wanted, f"$ {command}\nexit code {code}\n{shown}"

    def _run(self, command: str) -> tuple[int, str]:
        """Run a command line; return its exit code, and standard output followed by standard error."""
        if command.startswith("dbsp-coordinator ") and command.endswith("&"):
            return self._start(tuple(shlex.split(command.removesuffix("&"))[1:]))
        if command == "kill -9 %1":
            service = self._services.pop()
            service.kill()
            service.wait(60)
            return 0, ""
        words = shlex.split(command, comments=True)
        if words[0] in MODULES and not self._real_shell and not SHELL_SIGNS & set("".join(words)):
            code, said = self._forked(MODULES[words[0]], tuple(words[1:]))
        else:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            found = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False,
                env=os.environ | self._environment | {"PATH": path},
            )  # fmt: skip
            code, said = found.returncode, found.stdout + found.stderr
        if words[:2] == ["coordinator", "stop"] and code == 0:
            self._services.pop().wait(COMMAND_S_MAX)
        return code, said

    def _forked(self, module: str, arguments: tuple[str, ...]) -> tuple[int, str]:
        out, err = self.folder / ".out", self.folder / ".err"
        out.write_bytes(b"")
        process = Forked(out, main, module, arguments, self.folder, self._environment, None, err)
        try:
            code = process.wait(COMMAND_S_MAX)
        finally:
            process.kill()
        return code, out.read_text() + err.read_text()

    def _start(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        """Start a service; return what it said until it answers over HTTP."""
        said = self.folder / f".service-{len(self._services)}"
        said.write_bytes(b"")
        settings = tomllib.loads((self.folder / arguments[0]).read_text(encoding="utf-8"))
        if "postgres" in settings:
            self._environment["DBSP_POSTGRES_PORT"] = "0"
        if "flight" in settings:
            self._environment["DBSP_FLIGHT_PORT"] = "0"
        service = Forked(said, main, MODULES["dbsp-coordinator"], arguments, self.folder, self._environment)
        self._services.append(service)

        def answers() -> bool:
            assert service.poll() is None, said.read_text()
            return ": answering at http" in said.read_text()

        until(answers, "the service answers")
        return 0, said.read_text()

    # --- ports --------------------------------------------------------------------------------------------------------

    def _actual(self) -> dict[str, str]:
        """Return the ports in use by those that the page names."""
        found = {}
        for data in sorted(self.folder.glob("*/coordinator.json")):
            with contextlib.suppress(OSError, KeyError, ValueError):
                found[PORTS["http"]] = re.findall(r":(\d+)", read_address(data.parent)["url"])[-1]
        for said in self.folder.glob(".service-*"):
            for port in re.findall(r"postgresql://[^:/]+:(\d+)", said.read_text()):
                found[PORTS["postgres"]] = port
            for port in re.findall(r"grpc://[^:/]+:(\d+)", said.read_text()):
                found[PORTS["flight"]] = port
        return found

    def _with_ports(self, text: str) -> str:
        for named, actual in self._actual().items():
            text = re.sub(rf"(?<=[:=]){named}\b", actual, text)
        return text

    def _with_default_ports(self, text: str) -> str:
        for named, actual in self._actual().items():
            text = re.sub(rf"(?<=[:=]){actual}\b", named, text)
        return text.replace(str(self.folder), ".")


def commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that is shown below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0].removesuffix("\\") + line.strip(), "")
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
        else:
            raise AssertionError(f"a console block begins with a command: {line!r}")
    return [(command, wanted if wanted.strip() else "") for command, wanted in found]


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Any:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
