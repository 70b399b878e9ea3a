"""The packages of extras: the check of a pipeline names the section that lacks one, before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dbsp.coordinator.checks.checking import check_pipeline
from dbsp.coordinator.settings.extras import PACKAGES
from dbsp.errors import ConfigError
from tests.coordinator.shop import settings

ON = {
    "postgres": "postgres.port=0",
    "flight": "flight.port=0",
    "traces": "traces.endpoint=http://127.0.0.1:9/v1/traces",
}


@pytest.mark.parametrize(
    ("section", "package"), [(section, each) for section in PACKAGES for each in PACKAGES[section]]
)
def test_the_check_names_a_package_that_a_section_lacks(
    folder: Path, section: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    check_pipeline(settings(folder), evolve=False)
    with pytest.raises(ConfigError) as refused:
        check_pipeline(settings(folder, ON[section]), evolve=False)
    assert str(refused.value).startswith(f"[{section}] needs a package that is not installed: package={package}")
    assert refused.value.hint == f"pip install 'dbsp-engine[{section}]'"
