"""Decisions in words, and the report of them."""

from __future__ import annotations

import importlib
import re

import pytest
from msgspec.structs import replace

from midstream.adaptation import ConsideredJoin, Decision, decision_text, write_decision_report
from midstream.errors import BadOption, NoDecisions, PackageMissing
from tests.adaptation.test_adapting_run import POLICY, played


def join(inputs: str, rows: float, *, in_force: bool = False, in_best: bool = False) -> ConsideredJoin:
    return ConsideredJoin(
        inputs=tuple(inputs.split()), rows=rows, error=1.0, seconds=rows / 1e6, in_force=in_force, in_best=in_best,
        is_measured=True,
    )  # fmt: skip


KEPT = Decision(
    number=1,
    push=3,
    watermark=300,
    outcome="kept",
    reason="The plan in force is the cheapest.",
    plan="a b c",
    best="a b c",
    seconds_now=1e-4,
    seconds_best=1e-4,
    joins=(join("a b", 12.3, in_force=True, in_best=True),),
)
CHANGED = Decision(
    number=2,
    push=7,
    watermark=700,
    outcome="changed",
    reason="It is worth it.",
    plan="a b c",
    best="a (b c)",
    seconds_now=4e-3,
    seconds_best=2e-4,
    saving=3e-3,
    regret=0.05,
    migration=0.006,
    strategy="jisc",
    joins=(
        join("a b", 37_288.4, in_force=True),
        join("a b c", 90_000, in_force=True),
        join("b c", 0.25, in_best=True),
        join("c b a", 90_000, in_best=True),
    ),
)

FAILED = Decision(
    number=3, push=9, watermark=900, outcome="kept", reason="It broke.", plan="a b", best="a b", failure="It broke.",
)  # fmt: skip


def test_a_change_names_the_join_that_grew_and_the_one_that_comes_instead():
    assert decision_text(CHANGED, KEPT) == (
        'The plan was changed from "a b c" to "a (b c)" by jisc. It is worth it. '
        "Of 1,000 arriving rows the join of a and b makes 37,288 rows (12 at the previous decision); "
        "the join of b and c, which comes instead, 0.25."
    )
    assert "at the previous decision" not in decision_text(CHANGED)
    advised = decision_text(replace(CHANGED, outcome="advised"), KEPT)
    assert advised.startswith('The plan "a b c" should be changed to "a (b c)" by jisc. It is worth it. Of 1,000')


def test_a_plan_that_is_kept_has_only_its_reason():
    assert decision_text(KEPT) == 'The plan "a b c" was kept. The plan in force is the cheapest.'


def test_the_page_has_the_reasons_and_loads_nothing(tmp_path):
    path = write_decision_report([KEPT, CHANGED], tmp_path / "decisions.html")
    page = path.read_text()
    assert "2 considerations, 1 changes" in page
    assert 'The plan is now "a (b c)"' in page
    for text in (KEPT.reason, CHANGED.reason, "37,288 rows (12 at the previous decision)", "50 ms", "6 ms"):
        assert text in page
    assert page.count("<svg") == 1
    # The plots' words are text in the page.
    for text in ("plan in force", "cheapest plan", "time lost by the next decision", "cost of a change"):
        assert re.search(rf"<text[^>]*>{text}</text>", page), text
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(\s*['\"]?http", page)


def test_a_change_is_a_line_in_both_plots(tmp_path):
    def dashed(decisions):
        page = write_decision_report(decisions, tmp_path / "decisions.html").read_text()
        # Lines of changes are dashed, and black.
        return len(re.findall(r"stroke-dasharray[^\"]*stroke: #000000", page))

    assert dashed([KEPT, CHANGED]) - dashed([KEPT, replace(CHANGED, outcome="kept")]) == 2


def test_names_are_text(tmp_path):
    odd = replace(CHANGED, plan="<script>alert(1)</script> $x_{$", best="$\\frac{$ <b>", reason="1 < 2 & 3")
    page = write_decision_report([odd], tmp_path / "odd.html").read_text()
    assert "<script" not in page and "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page and "1 &lt; 2 &amp; 3" in page
    write_decision_report([odd, replace(odd, outcome="advised")], tmp_path / "odd.png")


@pytest.mark.parametrize("decisions", [[KEPT], [CHANGED], [KEPT, CHANGED] * 20, [FAILED], [KEPT, FAILED, KEPT]])
def test_a_picture_is_made_of_any_decisions(tmp_path, decisions):
    path = write_decision_report(decisions, str(tmp_path / "decisions.PNG"))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_decisions_of_a_run_in_this_process(tmp_path):
    run, _ = played(POLICY)
    page = write_decision_report(run.decisions(), tmp_path / "run.html").read_text()
    changed = [decision for decision in run.decisions() if decision.outcome == "changed"]
    assert changed
    for decision in changed:
        assert decision.reason.replace('"', "&quot;") in page


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(NoDecisions, match="there are no decisions to report"):
        write_decision_report([], tmp_path / "none.html")
    with pytest.raises(BadOption, match=r'cannot be written to ".*decisions.pdf"') as refused:
        write_decision_report([KEPT], tmp_path / "decisions.pdf")
    assert ".html or .png" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PackageMissing, match="not installed: matplotlib"):
        write_decision_report([KEPT], tmp_path / "decisions.html")
