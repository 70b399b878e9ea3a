"""Every block of code of every page runs, or says why not; `tests.docs.playing` has the rules."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, pages, played
from tests.docs.playing import Player, commands
from tests.pace import rotating

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in pages(ROOT)}
TUTORIAL = "docs/tutorial.md"


def blocks(name: str) -> list[Block]:
    return list(blocks_of(PAGES[name].read_text(encoding="utf-8")))


def console(name: str) -> bool:
    """Return whether commands of the coordinator run, which takes a few seconds."""
    return any(block.language == "console" for block in played(PAGES[name]))


PLAYED = [name for name in PAGES if any(block.runs for block in blocks(name))]
IN_PROCESS = [name for name in PLAYED if not console(name)]
SERVICES = rotating([name for name in PLAYED if console(name) and name != TUTORIAL], 4)


@pytest.mark.parametrize("name", [*IN_PROCESS, TUTORIAL, *SERVICES])
def test_a_page_runs(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, real_shell=False)


@pytest.mark.soak
def test_the_tutorial_runs_in_a_shell(tmp_path: Path) -> None:
    run(TUTORIAL, tmp_path, real_shell=True)


def run(name: str, folder: Path, *, real_shell: bool) -> None:
    with Player(folder, real_shell=real_shell) as player:
        for block in played(PAGES[name]):
            absent = [program for program in block.programs if shutil.which(program) is None]
            if absent:
                pytest.skip(f"not installed: {', '.join(absent)}")
            try:
                player.play(block)
            except Exception as error:
                error.add_note(f"{name}:{block.line}")
                raise


def play(text: str, folder: Path) -> None:
    with Player(folder) as player:
        for block in blocks_of(text):
            player.play(block)


@pytest.mark.parametrize(
    "wrong",
    [
        "```python\n>>> 1 + 1\n3\n```",
        "```python\nassert False\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ false\n```",
        "```console\n$ coordinator status\n```",
        "```toml\n[http]\nprot = 1\n```",
        "```sql\nselect from from\n```",
        "```rust\nfn main() {}\n```",
    ],
)
def test_a_wrong_block_is_found(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - each kind of block fails in its own way
        play(f"# A page\n\n{wrong}\n", tmp_path)


def test_blocks_share_names_and_files(tmp_path: Path) -> None:
    play(
        '```python title="a.py"\nx = 1\n```\n\n```python title="add to a.py"\ny = 2\n```\n\n```python\nimport runpy\n'
        'names = runpy.run_path("a.py")\n```\n\n1. In a list:\n\n   ```python\n   >>> names["x"] + names["y"]\n   3\n   ```\n\n'
        "```console\n$ cat a.py | head -n 1\nx = 1\n$ echo error: no; exit 3\nerror: no\n```\n",
        tmp_path,
    )


def test_commands_and_their_output() -> None:
    assert commands("$ a \\\n    b\nc\nd\n$ e\n") == [("a b", "c\nd\n"), ("e", "")]
