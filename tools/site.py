"""Hooks of MkDocs: what the documentation site has beside `docs/**/*.md`.

Pages of the root (`CHANGELOG.md` and others) are added when the site is built. So are the reference pages, which
`tools/reference` makes from code. Nothing is copied into the tree. A link to a source file leads to its text. A link that
leads nowhere ends a strict build.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools import reference  # noqa: E402 - MkDocs does not put the root on the path

ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
FOLDERS = {"examples/queries": "examples.md", "docs/concepts": "concepts/index.md"}
"""For each folder that pages link to, the page that its links lead to."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
HTML_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


def on_config(config: Any) -> Any:
    """Replace each entry of the navigation that ends in `/` by all pages of that folder."""
    config.nav = _expanded(config.nav)
    return config


def _expanded(entries: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found.append({title: _contents(inside) for title, inside in entry.items()})
        elif entry.endswith("/"):
            found += pages_of(entry)
        else:
            found.append(entry)
    return found


def _contents(inside: Any) -> Any:
    if isinstance(inside, list):
        return _expanded(inside)
    return pages_of(inside) if inside.endswith("/") else inside


def pages_of(folder: str) -> list[str]:
    """Return the pages of a folder in `docs`: its index, then those that the index links to, in its order, then the others."""
    paths = sorted(path for path in (ROOT / "docs" / folder).glob("*.md"))
    index = next(path for path in paths if path.stem in ("index", "README"))
    linked = re.findall(r"\]\(([\w.-]+\.md)\)", index.read_text(encoding="utf-8"))
    names = dict.fromkeys([index.name, *linked, *(path.name for path in paths)])
    return [folder + name for name in names if (ROOT / "docs" / folder / name).is_file()]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root, the reference, and the text of each source file that a page links to."""
    for name, where in ROOT_PAGES.items():
        files.append(File.generated(config, where, content=(ROOT / name).read_text(encoding="utf-8")))
    for where, text in reference.pages():
        files.append(File.generated(config, where, content=text))
    for page in [*files.documentation_pages()]:
        for _, target, _ in LINK.findall(FENCED.sub("", page.content_string)):
            source = _in_root(page.src_uri, target)
            if source is not None and (ROOT / source).is_file() and source not in ROOT_PAGES:
                where = f"source/{source}.txt"
                if not source.startswith("docs/") and files.get_file_from_path(where) is None:
                    files.append(File.generated(config, where, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def _in_root(page: str, target: str) -> str | None:
    """Return a link's target as a path from the root; None if it leads out of the tree."""
    base = next((name for name, where in ROOT_PAGES.items() if where == page), f"docs/{page}")
    parts: list[str] = list(PurePosixPath(base).parts[:-1])
    for part in PurePosixPath(target).parts:
        if part == ".." and not parts:
            return None
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - MkDocs names them
    """Let links of the tree lead to pages of the site."""
    where = page.file.src_uri
    depth = where.count("/") * "../"

    def led(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        source = _in_root(where, target.rstrip("/"))
        if source in FOLDERS:
            return f"[{text}]({depth}{FOLDERS[source]}{anchor})"
        if source in ROOT_PAGES:
            return f"[{text}]({depth}{ROOT_PAGES[source]}{anchor})"
        if source == "README.md":
            return f"[{text}]({depth}index.md)"
        if source is not None and not source.startswith("docs/") and (ROOT / source).is_file():
            return f"[{text}]({depth}source/{source}.txt)"
        return match[0] if source is None else f"[{text}]({depth}{source.removeprefix('docs/')}{anchor})"

    parts = FENCED.split(markdown)
    return "".join(part if part.lstrip().startswith("```") else LINK.sub(led, part) for part in parts)
