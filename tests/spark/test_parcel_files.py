"""Parcels that lie in files: the same bytes as through the shuffle; damage is told; nothing stays behind a step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.errors import DataError, UnavailableError
from dbsp.runtime.spark import parcel_files
from dbsp.runtime.spark.parcel_files import MARK, ParcelFiles, arrived, passed_on
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle, SparkSettings
from tests.pace import rotating
from tests.spark.pipelines import MakeRuntime, Open, play
from tests.spark.wrapped_resources import KillingResources


@given(st.lists(st.binary(max_size=100), max_size=5), st.sampled_from([1, 50, 10**6]), st.booleans())
def test_what_arrives_is_what_was_passed_on(
    tmp_path_factory: pytest.TempPathFactory, sections: list[bytes], least: int, beside: bool
) -> None:
    files = ParcelFiles.make(tmp_path_factory.mktemp("parcels"), least) if beside else None
    block, whole = passed_on(files, sections), b"".join(sections)
    assert block.startswith(MARK) == (beside and len(whole) >= least)
    found = arrived(block)
    if files is not None:
        files.clear()
        assert not list(Path(files.folder).iterdir())
    assert bytes(found) == whole  # still there for who holds it


def test_a_file_that_is_short_or_gone_is_named(tmp_path: Path) -> None:
    files = ParcelFiles.make(tmp_path, 1)
    block = passed_on(files, [b"xy"])
    (file,) = Path(files.folder).iterdir()
    file.write_bytes(b"x")
    with pytest.raises(DataError, match=re.escape(f"is not whole: file={file} bytes=1 expected=2")):
        arrived(block)
    files.clear()
    with pytest.raises(UnavailableError, match=re.escape(f"cannot be read: file={file}")):
        arrived(block)
    files.close()
    files.clear()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_no_more_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    files = ParcelFiles.make(tmp_path, 1)
    monkeypatch.setattr(parcel_files.os, "write", full)
    with pytest.raises(UnavailableError, match=r"cannot be written: .*No space left on device"):
        passed_on(files, [b"x"])
    assert not list(Path(files.folder).iterdir())


def by_files(spark: SparkHandle) -> MakeRuntime:
    """Every parcel is large enough for a file."""
    return lambda work: SparkRuntime(work, SparkSettings(parcel_file_bytes_min=1), spark=spark)


def left(spark: SparkHandle) -> list[Path]:
    return [file for folder in spark.work_dir.glob("parcels-*") for file in folder.iterdir()]


@pytest.mark.spark
def test_steps_by_files_give_the_same_bytes_and_leave_no_file(spark: SparkHandle, opened: Open, tmp_path: Path) -> None:
    one, other = opened(tmp_path / "a", workers=3), opened(tmp_path / "b", by_files(spark), workers=3)
    for pipeline in (one, other):
        play(pipeline, 2)
        pipeline.checkpoint()
        play(pipeline, 1)
        pipeline.new_epoch()
        pipeline.rescale(2)
        play(pipeline, 1)
    assert (other.outputs(), other.views()) == (one.outputs(), one.views())
    assert not left(spark)


@pytest.mark.spark
@pytest.mark.parametrize("point", rotating(["segment 1 begins", "segment 2 begins", "before writing", "all done"], 2))
def test_a_worker_killed_in_a_step_finds_its_parcels_again(
    point: str, spark: SparkHandle, opened: Open, tmp_path: Path
) -> None:
    one = opened(tmp_path / "a")
    play(one, 3)
    mark = tmp_path / "killed"
    killing = opened(
        tmp_path / "b", by_files(spark), wrap_resources=lambda resources: KillingResources(resources, mark, point, 1, 1)
    )
    play(killing, 3)
    assert mark.exists()
    assert (killing.outputs(), killing.views()) == (one.outputs(), one.views())
    assert not left(spark)
