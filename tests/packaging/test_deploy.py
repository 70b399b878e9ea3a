"""What is under `tools/deploy`: the paths, settings, commands, ports and extras that it names exist, and its syntax is read.

No image is built and nothing is deployed here: tools/deploy/README.md says what was tried.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from click import Command

from dbsp.coordinator import exits, serve
from dbsp.coordinator.build import load_plan
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import KINDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "tools" / "deploy"
SETTINGS = DEPLOY / "kubernetes" / "settings" / "pipeline.toml"
TOKENS = {"DBSP_HTTP_TOKEN": "admin-token-of-the-test", "DBSP_HTTP_READ_TOKEN": "read-token-of-the-test"}


def text(name: str) -> str:
    return (DEPLOY / name).read_text()


def config() -> Config:
    return load_config(SETTINGS, environment=TOKENS)


def test_the_settings_and_the_circuit_are_good() -> None:
    found = config()
    assert [table.name for table in load_plan(found).tables] == ["orders"]
    assert (found.http.token, found.http.read_token) == tuple(TOKENS.values())
    with pytest.raises(exits.DbspError, match="without a token"):
        load_config(SETTINGS, environment={})


def test_the_image_has_what_a_wheel_is_made_of() -> None:
    image, ignored = text("Dockerfile"), text("Dockerfile.dockerignore").splitlines()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", image, re.M) for word in line.split()]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert [word for word in copied if f"!{word}" not in ignored] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = project["tool"]["setuptools"]
    named = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        *tools["package-dir"].values(),
        "pyproject.toml",
    }
    assert set(copied) == named
    extras = set(project["project"]["optional-dependencies"])
    for given in re.findall(r"EXTRAS[=:] ?([\w,]+)", image + text("compose.yaml")):
        assert set(given.split(",")) <= extras
    version = project["project"]["version"]
    assert f"image: dbsp-engine:{version}" in text("kubernetes/pipeline.yaml")


def test_commands_and_options_exist() -> None:
    command: Command = serve.command
    options = {option for each in command.params for option in each.opts}
    for name in (
        "Dockerfile",
        "systemd/dbsp@.service",
        "kubernetes/pipeline.yaml",
        "kubernetes-standby/kustomization.yaml",
    ):
        given = re.findall(
            r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"(?m)^\s*(#|RUN|HEALTHCHECK|COPY|ARG|    ).*$", "", text(name))
        )
        assert set(given) <= options, name
        assert "--no-progress" in text(name)
    assert "--no-progress" in options
    assert "dbsp-coordinator" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_ports_and_paths_of_probes_are_those_of_the_service(folder: Path) -> None:
    port = str(config().http.port)
    assert f"EXPOSE {port}" in text("Dockerfile")
    assert f"containerPort: {port}" in text("kubernetes/pipeline.yaml")
    assert f"pipeline:{port}" in text("prometheus/prometheus.yml")
    assert f"127.0.0.1:{port}:{port}" in text("compose.yaml")
    routes = {getattr(route, "path", "") for route in make_app(_service(folder)).routes}
    asked = re.findall(r"path: (/\w+z)|127\.0\.0\.1:\d+(/\w+)|metrics_path: (/\w+)", "".join(
        text(name) for name in ("Dockerfile", "kubernetes/pipeline.yaml", "prometheus/prometheus.yml")
    ))  # fmt: skip
    assert {path for found in asked for path in found if path} == {"/healthz", "/readyz", "/metrics"}
    assert {"/healthz", "/readyz", "/metrics"} <= routes


def _service(folder: Path) -> Service:
    (folder / "circuit.py").write_text(
        "import dbsp\npipeline = dbsp.circuit('c', {'v': dbsp.table('t', {'x': dbsp.INT64})})\n"
    )
    (folder / "pipeline.toml").write_text('[pipeline]\ncircuit = "circuit.py:pipeline"\nruntime = "local"\n')
    made = Service(load_config(folder / "pipeline.toml", environment={}))
    made.close()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_mounted_files_exist_and_topics_are_those_of_the_settings() -> None:
    compose, found = text("compose.yaml"), config()
    mounted = re.findall(r"- (\./[\w./-]+):(/[\w./-]+)", compose)
    assert len(mounted) == 4
    assert [here for here, _ in mounted if not (DEPLOY / here).exists()] == []
    assert ("./kubernetes/settings", "/pipeline") in mounted
    assert f"state:{found.data_dir}" in compose
    assert f"mountPath: {found.data_dir}" in text("kubernetes/pipeline.yaml")
    assert set(re.findall(r"--topic\", \"([\w-]+)", compose)) == set(found.input.topics.values())  # type: ignore[attr-defined]
    assert f"  {found.input.bootstrap.partition(':')[0]}:\n" in compose  # type: ignore[attr-defined]
    dashboards = re.findall(r"path: (\S+)", text("grafana/provisioning/dashboards/dbsp.yaml"))
    assert any(there.startswith(dashboards[0]) for _, there in mounted)
    files = re.findall(r"- (settings/\S+)", text("kubernetes/kustomization.yaml"))
    assert sorted(files) == sorted(f"settings/{each.name}" for each in SETTINGS.parent.iterdir())


def test_tokens_are_settings() -> None:
    names = set(re.findall(r"DBSP_HTTP_\w+", text("compose.yaml") + text("kubernetes/pipeline.yaml")))
    assert names == set(TOKENS)


def test_a_start_is_not_repeated_where_it_cannot_help() -> None:
    codes = re.findall(r"RestartPreventExitStatus=([\d ]+)", text("systemd/dbsp@.service"))[0].split()
    wanted = {KINDS[kind].exit_code for kind in ("config", "circuit", "data", "fenced", "engine") if kind in KINDS}
    assert {int(code) for code in codes} == wanted


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "dbsp@.service"
    unit.write_text(text("systemd/dbsp@.service").replace("/opt/dbsp/bin/dbsp-coordinator", "/bin/true"))
    assert _verified(unit) == ""
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=mixd"))
    assert "mixd" in _verified(unit)


def _verified(unit: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    return "\n".join(line for line in done.stderr.splitlines() if "dbsp@" in line)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-standby"])
def test_kustomize_reads_the_manifests(folder: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^kind: (\w+)", done.stdout, re.M) == ["ConfigMap", "Service", "StatefulSet"]
    name = re.findall(r"name: (dbsp-shop-settings-\w+)", done.stdout)
    assert len(set(name)) == 1
    assert len(name) == 2  # the map, and the volume that names it
    has_standby = folder == "kubernetes-standby"
    assert ("replicas: 2" in done.stdout, "- --standby" in done.stdout, "livenessProbe" in done.stdout) == (
        has_standby, has_standby, not has_standby,
    )  # fmt: skip
    for given in re.findall(r"- (\w+\.\w+=\S+)", done.stdout):
        load_config(SETTINGS, overrides=[given], environment=TOKENS)
