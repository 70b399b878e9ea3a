"""Loading a circuit by name: what is found, and what is said when it is not."""

from __future__ import annotations

import os
import sys

import pytest

from dbsp.circuit.load import FORM, load_circuit
from dbsp.errors import CircuitError, ConfigError

GOOD = """\
import dbsp
t = dbsp.table("t", {"x": dbsp.INT64})
circuit = dbsp.circuit("demo", {"v": t})
def build():
    return circuit
number = 3
"""


def test_from_a_file_and_by_a_function(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    loaded = load_circuit(f"{tmp_path}/good.py:circuit")
    assert loaded.name == "demo"
    assert load_circuit("good.py:build", relative_to=tmp_path) is loaded


def test_a_file_is_what_it_says_now(tmp_path, monkeypatch):
    """Also where the change left size and time as they were, by which Python's cache of compiled files goes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "changed.py"
    for name in ("demo", "omed"):
        file.write_text(GOOD.replace("demo", name))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load_circuit(f"{file}:circuit").name == name
        del sys.modules["dbsp_user_changed"]


def test_from_a_module(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_mine.py").write_text(GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_circuit("a_module_of_mine:circuit").name == "demo"
    sys.modules.pop("a_module_of_mine")


def test_a_file_may_import_its_neighbour(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_mine.py").write_text("LIMIT = 3\n")
    (tmp_path / "with_neighbour.py").write_text("from neighbour_of_mine import LIMIT\n" + GOOD)
    assert load_circuit(f"{tmp_path}/with_neighbour.py:circuit").name == "demo"


WRONG = {
    "circuit": f"not the name of a circuit: circuit='circuit'; {FORM}",
    "DIR/none.py:circuit": (
        "the circuit's file does not exist: file=DIR/none.py; "
        'write "path/to/file.py:attribute", "package.module:attribute" or "path/to/file.sql"'
    ),
    "DIR/good.py:circus": 'no such circuit: file=DIR/good.py attribute=circus; did you mean "circuit"?',
    "DIR/good.py:number": (
        'not a circuit: circuit=DIR/good.py:number type=int; make it one with dbsp.circuit("name", {"view": stream})'
    ),
    "no.such.module:circuit": (
        "the circuit's module cannot be found: module=no.such.module; "
        'install it or set PYTHONPATH; or write "path/to/file.py:attribute", "package.module:attribute" or "path/to/file.sql"'
    ),
    "DIR/broken.py:circuit": "syntax error in the circuit's file: invalid syntax at=DIR/broken.py:2",
    "DIR/raises.py:circuit": "the circuit's code raised ZeroDivisionError: division by zero at=DIR/raises.py:3",
}


@pytest.mark.parametrize("spec", WRONG)
def test_errors(spec, tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("import dbsp\nx = = 3\n")
    (tmp_path / "raises.py").write_text("import dbsp\ndef f():\n    return 1 / 0\nf()\n")
    with pytest.raises(ConfigError) as caught:
        load_circuit(spec.replace("DIR", str(tmp_path)))
    assert str(caught.value).replace(str(tmp_path), "DIR") == WRONG[spec]


def test_a_circuit_error_stays_one(tmp_path):
    (tmp_path / "wrong.py").write_text('import dbsp\nt = dbsp.table("t", {"x": dbsp.INT64}).select("y")\n')
    with pytest.raises(CircuitError, match=r"wrong\.py:2"):
        load_circuit(f"{tmp_path}/wrong.py:t")
