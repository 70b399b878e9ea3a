"""No view is written where something else of its pipeline is: a generated law over names and settings, against a plain count."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator import build
from dbsp.coordinator.build import check_names
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError

TABLES, VIEWS = ("orders", "names"), ("steps", "progress", "totals")
TOPICS = ("orders", "names", "shop.steps", "shop.progress", "shop.totals", "shop.dead_letters", "elsewhere")


def check(folder: Path, text: str, views: list[str], right: bool) -> None:
    """The settings go with a circuit of these views, or are refused."""
    (folder / "pipeline.toml").write_text('[pipeline]\nname = "shop"\ncircuit = "c.py:c"\n' + text)
    tables = [dbsp.table(name, {"id": dbsp.INT64}, primary_key=["id"]) for name in TABLES]
    merged = tables[0].join(tables[1], on="id")
    config, circuit = (
        load_config(folder / "pipeline.toml", environment={}),
        dbsp.circuit("shop", dict.fromkeys(views, merged)),
    )
    with nullcontext() if right else pytest.raises(ConfigError, match="is the place of both"):
        check_names(config, circuit)


def mapped(topics: dict[str, str]) -> str:
    return "topics = { " + ", ".join(f'{name} = "{topic}"' for name, topic in topics.items()) + " }\n" if topics else ""


views_of = st.lists(st.sampled_from(VIEWS), min_size=1, unique=True)
input_topics = st.dictionaries(st.sampled_from(TABLES), st.sampled_from(TOPICS))


@given(
    views=views_of, read=input_topics, data=st.data(), apart=st.booleans(), kind=st.sampled_from(["kafka", "embedded"])
)
def test_topics_have_one_use_each(
    tmp_path_factory: pytest.TempPathFactory, views: list[str], read: dict[str, str], data: st.DataObject, apart: bool,
    kind: str,
) -> None:  # fmt: skip
    """Two tables may read one topic; nothing else is shared, except by name on other brokers."""
    written = data.draw(st.dictionaries(st.sampled_from([*views, DEAD_LETTERS]), st.sampled_from(TOPICS)))
    brokers = "other:9092" if apart else "one:9092"
    text = f'[input]\nkind = "{kind}"\nbootstrap = "one:9092"\n{mapped(read)}'
    text += f'[output]\nkind = "kafka"\nbootstrap = "{brokers}"\n{mapped(written)}'
    sources = {("one:9092", read.get(table, table)) for table in TABLES if kind == "kafka" or table in read}
    owned = [(brokers, "shop.progress"), *([("one:9092", "shop.steps")] if kind == "kafka" else [])]
    targets = [(brokers, written.get(view, f"shop.{view}")) for view in (*views, DEAD_LETTERS)]
    most = max(Counter([*sources, *owned, *targets]).values())
    check(tmp_path_factory.mktemp("places"), text, views, most == 1)


@pytest.mark.parametrize(
    ("read", "written", "right"),
    [("landing", "results", True), ("landing", "landing", False), ("landing", "data", False), ("landing", "", True)],
)
def test_folders_have_one_use_each(tmp_path: Path, read: str, written: str, right: bool) -> None:
    text = f'[input]\nkind = "files"\ndirectory = "{read}"\n[output]\nkind = "files"\ndirectory = "{written}"\n'
    check(tmp_path, text, ["orders"], right)


def test_a_check_that_forgets_places_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: nothing is compared."""
    monkeypatch.setattr(build, "refuse_shared", list)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_folders_have_one_use_each(tmp_path, "landing", "landing", right=False)
