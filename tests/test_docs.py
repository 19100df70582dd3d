"""The documentation is true: its code prints what stands below it, its links lead somewhere, its commands exist.

- The ``python`` blocks of a page run in order, in one namespace, in a directory of their own.
- A block without a language right behind one of them is what it prints; ``...`` there stands for anything.
- The commands of a ``console`` block, which follow a ``$``, run with them; what they print stands below each.
- ``<!-- python`` at the beginning of a comment makes it run too: what a page takes for granted.

``MIDSTREAM_UPDATE_DOCS=1 python -m pytest tests/test_docs.py`` writes what the code prints into the pages; read what
was written.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.cli.commanding import call

ROOT = Path(__file__).parent.parent
RUN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*RUN, ROOT / "benchmarks" / "README.md", ROOT / "src" / "midstream" / "README.md"]
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$|^<!-- python\n(?P<hidden>.*?)^-->$", re.M | re.S)
IS_UPDATING = bool(os.environ.get("MIDSTREAM_UPDATE_DOCS"))


@dataclass(frozen=True)
class Block:
    """A part of a page between fences, or a hidden one; ``begin`` and ``end`` are where its text stands."""

    language: str
    text: str
    begin: int
    end: int
    line: int


def blocks(page: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page):
        group = "text" if match["hidden"] is None else "hidden"
        language = match["language"] if match["hidden"] is None else "python"
        line = page.count("\n", 0, match.start(group))
        found.append(Block(language, match[group], match.start(group), match.end(group), line))
    return found


def examples(page: str) -> list[tuple[Block, Block | None]]:
    """The code of a page, each with the block that shows what it prints."""
    found = blocks(page)
    pairs = []
    for block, following in zip_longest(found, found[1:]):
        if block.language == "console":
            pairs.append((block, block))
        if block.language != "python":
            continue
        is_shown = (
            following is not None
            and following.language == ""
            and page[block.end : following.begin].split() == ["```", "```"]
        )
        pairs.append((block, following if is_shown else None))
    return pairs


KAFKA = "localhost:9092"
"""What pages call a broker."""


def printed_by(block: Block, path: Path, namespace: dict[str, object], broker: str = KAFKA) -> str:
    """What the code prints; of commands, with the commands."""
    printed = io.StringIO()
    if block.language == "console":
        for line in block.text.splitlines():
            if line.startswith("$ "):
                program, *arguments = shlex.split(line.removeprefix("$ "))
                assert program == "midstream", line
                called = call(*arguments)
                assert called.code == 0, called.err
                printed.write(f"{line}\n{called.out}")
        return printed.getvalue()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.text.replace(KAFKA, broker), path, "exec"), namespace)
    return printed.getvalue()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def needs_spark(page: str) -> bool:
    return any("midstream.spark" in block.text for block, _ in examples(page))


def needs_kafka(page: str) -> bool:
    return any("read_kafka" in block.text for block, _ in examples(page))


@pytest.mark.parametrize("path", [path for path in RUN if examples(path.read_text())], ids=name_of)
def test_code_prints_what_stands_below_it(path, tmp_path, monkeypatch, request):
    page = path.read_text()
    monkeypatch.chdir(tmp_path)
    if needs_spark(page):
        request.getfixturevalue("spark_in")(tmp_path)
    broker = KAFKA
    if needs_kafka(page):
        request.getfixturevalue("connector")
        broker = request.getfixturevalue("broker").address
    namespace: dict[str, object] = {"__name__": "__main__"}
    written = page
    wrong = []
    for block, shown in examples(page):
        got, expected = printed_by(block, path, namespace, broker), "" if shown is None else shown.text
        if not doctest.OutputChecker().check_output(expected, got, doctest.ELLIPSIS):
            wrong.append(f"{name_of(path)}, line {block.line}\nprints:\n{got}\nbut there stands:\n{expected}")
            if shown is not None:
                place = len(written) - (len(page) - shown.begin)
                written = written[:place] + got + written[place + len(expected) :]
    if IS_UPDATING:
        path.write_text(written)
    assert not wrong, "\n".join(wrong)


def anchors(path: Path) -> set[str]:
    """The names by which headings can be linked to."""
    text = BLOCK.sub("", path.read_text())
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", BLOCK.sub("", path.read_text())):
        if "://" in target:
            continue
        destination = path.parent / target if target else path
        assert destination.exists(), target
        assert not anchor or anchor in anchors(destination), f"{target}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_name_what_exists(path):
    page = path.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    shell = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    inline = "\n".join(re.findall(r"`([^`\n]+)`", BLOCK.sub("", page)))
    commands = f"{shell}\n{inline}"
    assert set(re.findall(r"^\s*make ([a-z]+)", commands, re.M)) <= targets
    for named in re.findall(r"(?<![\w./-])(?:src|tests|examples|benchmarks|docs)/[\w/]+\.\w+", commands):
        assert (ROOT / named).exists() or re.search(r"your_|verb_", named), named


def test_every_page_and_example_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    scripts = {f"../examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    assert pages | scripts <= set(re.findall(r"\]\(([^)#]+)\)", index))
