"""The README's code runs as it stands, and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_code_prints_what_stands_below_it():
    text = README.read_text()
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    (position,) = [number for number, (language, _) in enumerate(blocks) if language == "python"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks[position][1], "README.md", "exec"), {})
    assert printed.getvalue() == blocks[position + 1][1]


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README.read_text()):
        assert (README.parent / target).exists(), target
