"""What every connector kind must do: the tests run over the registry, so a new kind is held to them by being registered."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dbsp.coordinator.backup.manifests import refuse_kinds
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.build import check_places
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.checks.preflight import check_stored, formats
from dbsp.coordinator.checks.remains import refuse_remains
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, SparkSection, make_config
from dbsp.coordinator.takeover.upgrades import used
from dbsp.coordinator.worker_resources import writers
from dbsp.errors import ConfigError, DataError
from dbsp.io.connectors import INPUT_KINDS, KINDS, OUTPUT_KINDS, Connector, InputKind, OutputKind, Residence, options
from dbsp.io.connectors.embedded import EmbeddedOutput
from dbsp.io.connectors.files import FilesOutput
from dbsp.io.connectors.kind import option
from dbsp.io.connectors.local import FolderOutput, LocalOutput
from dbsp.io.connectors.registry import check_kind, open_questions
from tests.coordinator.shop import CIRCUIT, ORDERS, SETTINGS, settings
from tests.io.log_samples import make_part

ALL = [pytest.param(section, name, id=f"{section}-{name}") for section, kinds in KINDS.items() for name in kinds]
LOCAL_OUTPUTS = [name for name, kind in OUTPUT_KINDS.items() if issubclass(kind, LocalOutput)]


def sample(section: str, name: str) -> dict[str, Any]:
    """Return settings with which a kind can be made: every text that is empty by default has a value."""
    found = options(KINDS[section][name]).values()
    return {"kind": name, **{each.name: "there" for each in found if each.default == ""}}


def configured(section: str, name: str, **more: Any) -> Connector:
    made = make_config({"pipeline": {"circuit": "c.py:x"}, section: {**sample(section, name), **more}}, environment={})
    found: Connector = getattr(made, section)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


def with_output(folder: Path, name: str) -> Config:
    """Return the settings of the shop with an output of a kind, whose rows are outside the data folder if they can be."""
    given = {key: value for key, value in sample("output", name).items() if key == "kind" or value == "there"}
    return settings(folder, *(f"output.{key}={value}" for key, value in given.items()))


@pytest.mark.parametrize(("section", "name"), ALL)
def test_a_kind_leaves_nothing_open(section: str, name: str) -> None:
    kind = KINDS[section][name]
    assert (kind.section, kind.kind) == (section, name)
    assert open_questions(kind) == []
    made = configured(section, name)
    assert pickle.loads(pickle.dumps(made)) == made, "it travels to Spark's processes"
    assert type(made) is kind


@pytest.mark.parametrize(("section", "name"), ALL)
def test_a_kind_s_settings_are_checked(section: str, name: str) -> None:
    """Every setting refuses a value of another type, and a word or a number that its check refuses, by its full name."""
    for key, each in options(KINDS[section][name]).items():
        with pytest.raises(ConfigError, match=re.escape(f"{section}.{key}=")):
            configured(section, name, **{key: object()})
        if isinstance(each.default, str) and each.metadata["check"] is not None:
            with pytest.raises(ConfigError, match=f"unknown value: {section}.{key}=nowhere"):
                configured(section, name, **{key: "nowhere"})
    with pytest.raises(ConfigError, match="unknown key: key=nowhere"):
        configured(section, name, nowhere=1)


@pytest.mark.parametrize(("section", "name"), ALL)
def test_a_kind_s_formats_are_those_of_the_engine(section: str, name: str) -> None:
    kind = KINDS[section][name]
    assert kind.stored_formats.items() <= formats().items()
    made = make_config({"pipeline": {"circuit": "c.py:x"}, section: sample(section, name)}, environment={})
    assert kind.stored_formats.items() <= used(made).items() <= formats().items()
    others = {form for other in KINDS[section].values() for form in other.stored_formats} - kind.stored_formats.keys()
    assert not others & used(made).keys()


@pytest.mark.parametrize(("section", "name"), ALL)
def test_a_cluster_is_refused_where_one_host_is_needed(section: str, name: str) -> None:
    found = replace(
        make_config({"pipeline": {"circuit": "c.py:x"}, section: sample(section, name)}, environment={}),
        spark=SparkSection(master="spark://somewhere:7077"),
    )
    others = {"input": "output", "output": "input"}
    quiet = replace(found, **{others[section]: configured(others[section], "kafka")})
    if KINDS[section][name].needs_one_host:
        with pytest.raises(ConfigError, match=f"the {section} needs all workers on one host: {section}.kind={name}"):
            check_places(quiet)
    else:
        check_places(quiet)


@pytest.mark.parametrize("name", INPUT_KINDS)
def test_an_input_takes_pushes_or_says_where_rows_go(name: str, tmp_path: Path) -> None:
    made = configured("input", name)
    assert isinstance(made, InputKind)
    if made.logs_elsewhere is None:
        residence = Residence(data_dir=tmp_path / "data", pipeline="p", folder=tmp_path)
        log = made.open(residence, (), create=True)
        steps = made.open_steps(residence, create=True)
        assert hasattr(log, "append_many") is (made.push_elsewhere is None)
        examined = made.examine(residence)
        assert examined is not None
        assert examined[0].findings == []
        log.close()
        steps.close()
    else:
        assert made.push_elsewhere
        assert made.examine(Residence(data_dir=tmp_path, pipeline="p", folder=tmp_path)) is None


@pytest.mark.parametrize("name", OUTPUT_KINDS)
def test_an_output_says_what_is_written_or_where(name: str, tmp_path: Path) -> None:
    look_at_output(name, tmp_path)


PLANTS: dict[str, tuple[str, Any]] = {
    "later rows are passed over": ("written_later", lambda *_: ()),
    "all rows are later": ("written_later", lambda *_: ("a file",)),
    "the progress is elsewhere": ("progress", lambda _, residence: residence.data_dir / "nowhere"),
    "a backup has the progress outside": ("in_backup", lambda self: self),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_wrong_answer_is_noticed(plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilesOutput, *PLANTS[plant])
    with pytest.raises((AssertionError, DataError)):
        look_at_output("files", tmp_path)


def look_at_output(name: str, tmp_path: Path) -> None:
    """Write steps of two workers, and look at all that the kind says about them."""
    made = configured("output", name)
    assert isinstance(made, OutputKind)
    residence = Residence(data_dir=tmp_path / "data", pipeline="p", folder=tmp_path)
    progress = made.progress(residence)
    if progress is None:
        assert made.examine(residence, 0) is None
        assert made.form is None
        return
    for worker in range(2):
        log = made.open(residence, worker, 3, create=True)
        for step in range(3, 6):
            log.write(2, step, {"v": make_part([((step, "a"), 1)])}, [])
        log.close()
        examined = made.examine(residence, worker)
        assert examined is not None
        seen, found = examined
        assert seen.findings == []
        assert (progress / str(worker) / "data.mdb").is_file(), "it is found by doctor, backups and starts"
        assert found is not None
        assert (found.first, found.last, found.epoch) == (3, 6, 2)
    inside = made.in_backup().progress(residence)
    assert inside is not None
    assert inside.is_relative_to(residence.data_dir)
    assert (list(made.written_later(residence, 4)) == []) is (made.changes_elsewhere is None)
    assert list(made.written_later(residence, 6)) == []


@pytest.mark.parametrize("name", LOCAL_OUTPUTS)
def test_a_pipeline_with_the_output_is_examined_backed_up_and_restored(folder: Path, name: str) -> None:
    """Restoring is refused while consumers can see rows of later steps, also where the progress was taken away."""
    config = with_output(folder, name)
    with Service(config) as service:
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        made = Path(service.back_up(folder / "backups", 60)["folder"])
        service.wait_until_processed(service.push("orders", ORDERS.slice(0, 1), delete=True), 60)
        if config.output.changes_elsewhere is None:
            assert service.changes("large", 0).steps
        else:
            with pytest.raises(ConfigError, match=f"changes are not kept in this output: output.kind={name}") as caught:
                service.changes("large", 0)
            assert caught.value.hint == config.output.changes_elsewhere
    assert diagnose(config).findings == ()
    assert writers(config) == (0, 1)
    shutil.rmtree(config.data_dir / "control")
    with pytest.raises(DataError, match="outputs of workers 0, 1"):
        refuse_remains(config)
    check_stored(config)
    shutil.rmtree(config.data_dir)
    if config.output.changes_elsewhere is not None:
        progress = config.output.progress(config.residence)
        assert progress is not None
        with pytest.raises(ConfigError, match=f"the folder of outputs has steps of another history: found={progress}"):
            restore(made, config)
        shutil.rmtree(progress)
        with pytest.raises(ConfigError, match="the folder of outputs has steps of another history: found=") as caught:
            restore(made, config)
        for _, place in config.output.folders(config.residence):
            assert str(place) in str(caught.value.hint)
            shutil.rmtree(place)
    restore(made, config)
    assert diagnose(config).findings == ()
    with Service(config) as service:
        service.wait_until_processed(service.push("orders", ORDERS.slice(1)), 60)
        assert service.read_view("per_customer").table.num_rows == 2
    assert diagnose(config).findings == ()


def test_a_kind_without_a_backup_says_why() -> None:
    for section, kinds in KINDS.items():
        for name, kind in kinds.items():
            found = make_config({"pipeline": {"circuit": "c.py:x"}, section: sample(section, name)}, environment={})
            if kind.no_backup is None:
                refuse_kinds(found)
                continue
            with pytest.raises(ConfigError, match=f"{kind.no_backup[0]}: .*{section}.kind={name}"):
                refuse_kinds(found)


# --- kinds that leave something open, planted ---------------------------------------------------------------------------


def questions(contract: type[Connector]) -> list[str]:
    return open_questions(contract)


@pytest.mark.parametrize(
    ("section", "question"),
    [(section, q) for section, base in (("input", InputKind), ("output", OutputKind)) for q in questions(base)],
)
def test_a_kind_that_leaves_a_question_open_cannot_be_defined(section: str, question: str) -> None:
    """For every question: a kind that answers all others is refused, and the error names the question."""
    contract: Any = InputKind if section == "input" else OutputKind
    answers = {each: lambda *_: None for each in questions(contract) if each != question}
    lacking = dataclass(frozen=True, kw_only=True)(type("Lacking", (contract,), answers))
    with pytest.raises(TypeError, match=f"class=Lacking missing={question}$"):
        check_kind(lacking, KINDS[section])


class Answers(FolderOutput):
    """An output that answers all questions."""

    kind: ClassVar[str] = "answers"
    form: ClassVar[str | None] = "answers 1"
    stored_formats: ClassVar[Mapping[str, int]] = {}
    changes_elsewhere: ClassVar[str | None] = "look there"
    retracts: ClassVar[bool] = False

    def open(self, residence: Residence, worker: int, first_step: int, *, create: bool = False) -> Any:
        """Open nothing."""

    def no_retraction(self, before: Any, now: Any) -> None:
        """Return None."""

    def written_later(self, residence: Residence, step: int) -> Sequence[str]:
        """Return nothing."""
        return ()


def test_a_kind_that_contradicts_others_cannot_be_defined() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Twice(Answers):
        kind: ClassVar[str] = "files"

    @dataclass(frozen=True, kw_only=True)
    class OtherType(Answers):
        format: int = option(1)

    @dataclass(frozen=True, kw_only=True)
    class Question(Answers):
        retention: int = option(1)  # type: ignore[assignment]  # what is to be refused

    check_kind(Answers, OUTPUT_KINDS)
    for made, message in (
        (Twice, "two connector kinds have one name: section=output kind=files"),
        (OtherType, "a setting has another type in another connector kind: output.format kind=answers"),
        (Question, "a setting has the name of a part of the contract: output.retention kind=answers"),
    ):
        with pytest.raises(TypeError, match=message):
            check_kind(made, OUTPUT_KINDS)


def test_a_setting_of_another_kind_is_checked_and_refused_where_it_says_so() -> None:
    ignored = configured("output", "embedded", directory="out")
    assert ignored == EmbeddedOutput()
    with pytest.raises(ConfigError, match=r"only an embedded output drops old rows itself: output\.kind=files"):
        configured("output", "files", retention_steps=3)
    with pytest.raises(ConfigError, match=r"input\.look_every_s=-1"):
        configured("input", "embedded", look_every_s=-1)
    with pytest.raises(ConfigError, match="an input of files has no topics"):
        configured("input", "files", topics={"t": "t"})
