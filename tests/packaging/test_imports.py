"""What is imported when: commands and modules that do without the engine do not load it, and the public names are there anyway.

Modules are looked at, not clocks: a module that is not imported takes no time.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINE = "numpy pyarrow numba llvmlite lmdb"
SERVICE = "fastapi pydantic uvicorn prometheus_client duckdb"
ELSEWHERE = "pyspark py4j confluent_kafka pandas"
CLIENT = "from dbsp.coordinator.commands import client\nsys.argv = ['coordinator', *{}]\nclient()"

CASES = {
    "import dbsp": ("import dbsp", f"{ENGINE} {SERVICE} {ELSEWHERE} click rich httpx"),
    "the version": ("import dbsp; dbsp.__version__", f"{ENGINE} {SERVICE} {ELSEWHERE}"),
    "a circuit": ("import dbsp; dbsp.table", f"{SERVICE} {ELSEWHERE} lmdb click rich httpx"),
    "the client's help": (CLIENT.format("['status', '--help']"), f"{ENGINE} {SERVICE} {ELSEWHERE}"),
    "the client asks": (CLIENT.format("['--url', 'http://127.0.0.1:1', 'status']"), f"{ENGINE} {SERVICE} {ELSEWHERE}"),
    "the client reads settings": (CLIENT.format("['status']"), f"{ENGINE} {SERVICE} {ELSEWHERE}"),
    "queries": ("import dbsp.coordinator.query.child", f"numba llvmlite lmdb {ELSEWHERE} fastapi httpx"),
    "the service": ("import dbsp.coordinator.serve", f"{ELSEWHERE} httpx"),
}


def loaded(code: str) -> set[str]:
    """Which packages a fresh process has loaded when it ends."""
    said = "import atexit, sys\natexit.register(lambda: print('loaded', *sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", said + code], capture_output=True, text=True, timeout=120, check=False)
    return set(done.stdout.rpartition("loaded ")[2].split())


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_loaded_that_is_not_needed(case: str) -> None:
    code, forbidden = CASES[case]
    here = loaded(code)
    assert "dbsp" in here, "the process said what it loaded"
    assert not here & set(forbidden.split())


@pytest.mark.parametrize("order", ["import dbsp.sql.errors, dbsp", "import dbsp; dbsp.table; import dbsp.sql.errors"])
def test_sql_is_the_function_and_its_parser_waits_until_it_is_called(order: str) -> None:
    code = f"{order}, sys; assert callable(dbsp.sql); assert 'sqlglot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert "sqlglot" in loaded("import dbsp; dbsp.sql('select a from t', t=dbsp.table('t', {'a': dbsp.INT64}))")


def test_what_is_looked_for_is_found_where_it_is_loaded() -> None:
    assert {"numpy", "numba", "pyarrow"} <= loaded("import dbsp; dbsp.table")
    assert {"fastapi", "lmdb", "duckdb"} <= loaded("import dbsp.coordinator.serve")


NAMES = {
    "before the package": "import dbsp; first = dbsp.circuit; import dbsp.circuit.nodes",
    "after the package": "import dbsp.circuit.nodes; import dbsp; first = dbsp.circuit",
    "while the package is imported": "from dbsp.circuit.build import circuit; import dbsp; first = circuit",
    "by a star": "from dbsp import *; first = circuit; import dbsp",
}


@pytest.mark.parametrize("order", NAMES)
def test_circuit_is_the_function_whoever_comes_first(order: str) -> None:
    """The package `dbsp.circuit` has the same name, and Python names packages where they lie."""
    check = "\nassert dbsp.circuit.__wrapped__ is getattr(first, '__wrapped__', first), dbsp.circuit"
    done = subprocess.run(
        [sys.executable, "-c", NAMES[order] + check], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_all_public_names_are_there() -> None:
    code = "import dbsp; print(set(dbsp.__all__) <= set(dir(dbsp)), *(name for name in dbsp.__all__ if not hasattr(dbsp, name)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True\n"
