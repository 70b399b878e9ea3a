"""The site is built strictly: no link or anchor leads nowhere, no page is outside the navigation, nothing is loaded from afar."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AFAR = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.mark.soak
def test_the_site_is_built(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    texts = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(texts) > 80
    assert [(path.name, found) for path, text in texts.items() for found in AFAR.findall(text)] == []


def test_what_is_loaded_from_afar_is_found() -> None:
    assert AFAR.search('<script src="https://example.com/a.js"></script>')
    assert AFAR.search('<link rel="stylesheet" href="//fonts.example.com/b">')
    assert not AFAR.search('<a href="https://example.com">there</a><script src="assets/a.js"></script>')
