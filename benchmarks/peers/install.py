"""Environments of the peers that do not come with the tests: `python -m benchmarks.peers.install [NAME ...]`.

The names are bytewax, pathway, flink and crate (the Rust `dbsp` crate). Each has a folder of its own below `build/peers/`, so
none of their packages meet ours. Bytewax, Pathway and PyFlink are fetched by pip, the crate by cargo, which compiles more
than 400 packages for ten minutes or more. Flink's Parquet format is no part of PyFlink: its jar and those of Hadoop's client,
which it needs, are fetched by Maven. What cannot be had is named with its reason, and the others are made all the
same; `python -m benchmarks.outsiders` leaves it out with that reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[2] / "build" / "peers"
CRATE = Path(__file__).parent / "dbsp_crate"
NOT_MADE = "not installed: python -m benchmarks.peers.install {}"
LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Package:
    """A peer that pip installs, and jars that it needs besides: Maven's names, and the folder for them."""

    requirement: str
    folder: str
    jars: tuple[str, ...] = ()
    jars_at: str = ""


PACKAGES = {
    "bytewax": Package("bytewax==0.21.1", "bytewax"),
    "pathway": Package("pathway==0.33.0", "pathway"),
    "flink": Package(
        "apache-flink==2.3.0",
        "apache-flink",
        (
            "org.apache.flink:flink-sql-parquet:2.3.0",
            "org.apache.hadoop:hadoop-client-api:3.4.1",
            "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        ),
        "lib/python*/site-packages/pyflink/lib",
    ),
}
NAMES = (*PACKAGES, "crate")


def command(name: str) -> list[str] | str:
    """How the peer's script is run; or why it cannot be."""
    program = HOME / "dbsp_crate" / "release" / "peer"
    if name != "crate":
        program = HOME / PACKAGES[name].folder / "bin" / "python"
        if not (HOME / PACKAGES[name].folder / "made").exists():
            return _reason(name)
        return [str(program), str(Path(__file__).parent / f"{name}_job.py")]
    return [str(program)] if program.exists() else _reason(name)


def with_jars(name: str) -> list[str] | str:
    """The same for a script that needs the jars too."""
    found = command(name)
    return _reason(name) if any(_missing(PACKAGES[name])) else found


def _reason(name: str) -> str:
    found = HOME / f"{name}.reason"
    return str(json.loads(found.read_text())) if found.exists() else NOT_MADE.format(name)


def install(name: str) -> str | None:
    """Make one environment; why not, if it fails."""
    HOME.mkdir(parents=True, exist_ok=True)
    reason = _crate() if name == "crate" else _pip(PACKAGES[name])
    note = HOME / f"{name}.reason"
    note.unlink(missing_ok=True)
    if reason is not None:
        note.write_text(json.dumps(reason))
    return reason


def _pip(package: Package) -> str | None:
    folder = HOME / package.folder
    reason = None
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", package.requirement, "numpy", "pyarrow"]
        reason = _run(pip)
    if reason is None:
        (folder / "made").touch()
        reason = _jars(package)
    return reason


def _jars(package: Package) -> str | None:
    """Fetch what is not there yet; why not, if Maven cannot."""
    for jar, place in _missing(package):
        maven = shutil.which("mvn")
        if maven is None:
            return f"there is no mvn to fetch {jar}: install Maven"
        reason = _run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={place}"])
        if reason is not None:
            return reason
    return None


def _missing(package: Package) -> Iterator[tuple[str, Path]]:
    """The jars that are not there, each with its folder."""
    for place in (HOME / package.folder).glob(package.jars_at) if package.jars else ():
        for jar in package.jars:
            _, name, version = jar.split(":")
            if not (place / f"{name}-{version}.jar").exists():
                yield jar, place


def _crate() -> str | None:
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo: install Rust from https://rustup.rs"
    environment = os.environ | {"CARGO_TARGET_DIR": str(HOME / "dbsp_crate")}
    return _run([cargo, "build", "--release", "--manifest-path", str(CRATE / "Cargo.toml")], environment)


def _run(words: list[str], environment: dict[str, str] | None = None) -> str | None:
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.strip().splitlines()[-LAST_LINES:]) or f"{words[0]} failed: code={done.returncode}"


def main() -> int:
    """Install what is asked for; the number of those that cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(NAMES))
    names = parser.parse_args().names or NAMES
    unknown = set(names) - set(NAMES)
    if unknown:
        parser.error(f"no such peer: {sorted(unknown)}")
    failed = 0
    for name in names:
        reason = install(name)
        print(f"{name:<10} {'ready' if reason is None else reason}", flush=True)
        failed += reason is not None
    return failed


if __name__ == "__main__":
    sys.exit(main())
