"""The demo in a small size, from its data to the verdict."""

import dataclasses
import io
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from rich.console import Console

from midstream.adaptation import Adaptation, Decision
from midstream.demo import OUTPUT, show
from midstream.demo.checking import Verdict, compare_with_duckdb
from midstream.demo.recording import Phase, Recording
from midstream.demo.runner import LocalRunner
from midstream.demo.scenario import OLD_ORDER, STREAMS, TEXT, Size, make_batch, query, write_input
from midstream.demo.view import LiveView, tree_with_states
from midstream.planning.cost import CostCoefficients
from midstream.testing import join_intervals
from tests.cli.commanding import call

POLICY = Adaptation(coefficients=CostCoefficients())
SMALL = Size(rows=1500, visits=250, known=40, batches=14, release=5, migrate_after=3, warm_up=2)
BAD = Size(rows=3000, visits=100, known=24, batches=12, release=6, migrate_after=3, warm_up=2)
"""After the release the old plan has enough to do for the query to change it."""


def quiet_console(width=100, **options):
    return Console(file=io.StringIO(), width=width, **options)


def shown(console):
    return console.file.getvalue()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in this process, with its files."""
    folder = tmp_path_factory.mktemp("demo")
    for _ in write_input(SMALL, folder / "in"):
        pass
    recording = Recording(SMALL, "this process", query().plan(OLD_ORDER), False, "jisc")
    console = quiet_console(force_terminal=True, height=40)
    runner = LocalRunner(SMALL, folder)
    with LiveView(console) as view:
        show._watch(runner, recording, view)
    return folder, runner.result_files(), recording, console


def test_the_demo_counts_what_the_oracle_counts_and_leaves_a_report(tmp_path):
    console = quiet_console()
    work, output = tmp_path / "work", tmp_path / "report"
    work.mkdir()
    assert show.show_demo("jisc", None, False, output, console, work, SMALL) == 0
    batches = [make_batch(SMALL, number) for number in range(SMALL.batches)]
    whole = {stream.name: pa.concat_tables([batch[stream.name] for batch in batches]) for stream in STREAMS}
    expected = join_intervals(TEXT, STREAMS, whole).num_rows
    assert expected > 10_000
    text = shown(console)
    assert f"{SMALL.rows_in_all:,} rows in, {expected:,} results, 0 missing, 0 repeated" in text
    assert len(re.findall(r"^batch +\d+ of 14 ", text, re.MULTILINE)) == SMALL.batches
    events = [text.index(event) for event in ("release:", "new plan requested (jisc)", "new plan in effect")]
    assert events == sorted(events)
    assert (output / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (output / "demo.html").read_text()
    assert f"{expected:,} results, 0 missing, 0 repeated" in page
    assert page.count("<svg") == 1
    assert "with just-in-time processing" in page and "with just-in-time processing" in text
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(\s*['\"]?http", page)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """The demo as it is by default: what it wrote, and how it was left."""
    folder = tmp_path_factory.mktemp("adapted")
    (folder / "work").mkdir()
    console = quiet_console()
    with pytest.MonkeyPatch.context() as patch:
        # Nobody calls it.
        patch.delattr(LocalRunner, "migrate")
        code = show.show_demo(None, POLICY, False, folder, console, folder / "work", BAD)
    return code, shown(console), (folder / "demo.html").read_text()


def test_the_query_replaces_its_plan_by_itself(adapted):
    code, text, _ = adapted
    assert code == 0
    assert ", 0 missing, 0 repeated" in text
    release, decided, in_effect = (
        text.index(event)
        for event in ("release:", 'The plan was changed from "o c v s" to', "new plan in effect:\nProject")
    )
    assert release < decided < in_effect
    assert "batch   7 of 12" in text[release:decided] and "batch   8 of 12" not in text[:decided]
    assert "old plan, after the release" in text[release:decided]
    states = {
        int(n): int(rows.replace(",", ""))
        for n, rows in re.findall(r"^batch +(\d+) .* ([\d,]+) state rows", text, re.M)
    }
    assert states[7] > 4 * states[6] > 2 * states[8]
    assert re.search(r"Nobody called migrate\. The new plan, in effect from batch 8 on, is \d+\.\d times as fast", text)


def test_the_reason_is_given_at_the_moment_and_in_the_report(adapted):
    _, text, page = adapted
    (said,) = re.findall(r"^midstream, after batch 7: (The plan was changed .*)$", text, re.MULTILINE)
    assert re.search(r"Per 1,000 rows .* takes .* instead of .*\. Keeping the old plan has cost .* so far", said)
    # The join that the release made large, and how large it was before.
    assert re.search(r"the join of o, c and v makes \d\d,\d{3} rows \(\d{1,3} at the previous decision\)", said)
    assert said.replace('"', "&quot;") in page
    assert "A query that replaces its own plan" in page and "Nobody called migrate" in page
    assert page.count("<svg") == 1


def test_a_strategy_is_the_only_one_that_the_query_may_choose(tmp_path):
    (tmp_path / "work").mkdir()
    console = quiet_console()
    assert show.show_demo("gen-mig", POLICY, False, tmp_path, console, tmp_path / "work", BAD) == 0
    assert re.search(r"The plan was changed from .* by gen-mig\.", shown(console))


def test_the_exit_code_is_1_when_the_plan_stays(tmp_path):
    (tmp_path / "work").mkdir()
    console = quiet_console()
    never = Adaptation(coefficients=CostCoefficients(), regret=1e9)
    assert show.show_demo(None, never, False, tmp_path, console, tmp_path / "work", BAD) == 1
    assert ", 0 missing, 0 repeated" in shown(console)
    assert "The plan was not replaced after the release." in shown(console)
    assert "The query kept its plan." in (tmp_path / "demo.html").read_text()


def test_by_default_the_demo_adapts(monkeypatch, tmp_path):
    called = []
    for arguments in ((), ("--strategy", "gen-mig"), ("--no-adapt",), ("--no-adapt", "--strategy", "jisc")):
        monkeypatch.setattr(show, "show_demo", lambda *given: called.append(given[:3]) or 0)
        assert call("demo", "--no-spark", "--output", tmp_path, *arguments).code == 0
    assert called == [
        (None, Adaptation(), False),
        ("gen-mig", Adaptation(), False),
        (None, None, False),
        ("jisc", None, False),
    ]


@pytest.mark.parametrize("strategy", ["moving-state", "gen-mig", "parallel-track"])
def test_every_strategy_gives_the_same(tmp_path, strategy):
    console = quiet_console()
    (tmp_path / "work").mkdir()
    assert show.show_demo(strategy, None, False, tmp_path, console, tmp_path / "work", SMALL) == 0
    assert ", 0 missing, 0 repeated" in shown(console)


def test_a_lost_repeated_or_foreign_row_is_noticed(finished, tmp_path):
    folder, files, _, _ = finished
    inputs, scratch = folder / "in", tmp_path / "duckdb"
    whole = pa.concat_tables([pq.ParquetFile(path).read() for path in files])
    assert compare_with_duckdb(inputs, files, scratch) == Verdict(whole.num_rows, 0, 0, 0)

    def verdict_on(table: pa.Table) -> Verdict:
        path = tmp_path / "broken.parquet"
        pq.write_table(table, path)
        return compare_with_duckdb(inputs, [path], scratch)

    lost = pa.concat_tables([whole.slice(0, 7), whole.slice(8)])
    assert verdict_on(lost) == Verdict(whole.num_rows - 1, 1, 0, 0)
    repeated = pa.concat_tables([whole, whole.slice(3, 2)])
    assert verdict_on(repeated) == Verdict(whole.num_rows + 2, 0, 2, 0)
    # One row instead of another: neither the number of rows nor that of different rows tells.
    assert verdict_on(pa.concat_tables([lost, whole.slice(3, 1)])) == Verdict(whole.num_rows, 1, 1, 0)
    changed = whole.slice(0, 1).set_column(0, "visit", pa.array([-5], pa.int64()))
    broken = verdict_on(pa.concat_tables([changed, whole.slice(1)]))
    assert (broken, broken.is_exact) == (Verdict(whole.num_rows, 1, 0, 1), False)
    assert compare_with_duckdb(inputs, [], scratch) == Verdict(0, whole.num_rows, 0, 0)


def test_the_exit_code_is_1_when_a_row_is_lost(tmp_path, monkeypatch):
    kept = LocalRunner.result_files
    monkeypatch.setattr(LocalRunner, "result_files", lambda self: kept(self)[1:])
    (tmp_path / "work").mkdir()
    console = quiet_console()
    assert show.show_demo("jisc", None, False, tmp_path, console, tmp_path / "work", SMALL) == 1
    assert re.search(r"results, [1-9][\d,]* missing, 0 repeated", shown(console))


def test_the_old_plan_has_more_to_hold_after_the_release_and_the_new_one_has_not(finished):
    _, _, recording, _ = finished
    phases = [recording.phase(batch) for batch in recording.batches]
    assert phases == sorted(phases, key=list(Phase).index)
    assert set(phases) == set(Phase)
    assert (recording.requested_at, recording.switched_at) == (8, 8)
    states = {figures: [sum(b.states) for b in recording.batches if recording.phase(b) is figures] for figures in Phase}
    assert min(states[Phase.BAD][1:]) > 2 * max(states[Phase.GOOD])
    assert states[Phase.GOOD_AGAIN][-1] < 1.5 * max(states[Phase.GOOD])


def test_the_live_view_shows_plan_states_rates_and_the_switch(finished):
    _, _, recording, console = finished
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(console))
    last = text[text.rindex("midstream ·") :]
    assert "batch 14 of 14" in last
    assert f"Join s.visit = v.visit   {recording.batches[-1].states[0]:,} rows of state" in last
    assert "the plan was replaced in batch 9 (jisc)" in last
    assert f"{sum(batch.results for batch in recording.batches):,}" in last
    assert re.search(r"[▁▂▃▄▅▆▇█]{14}  \d+\.\d\d s", last)
    bars, marks = last[re.search("[▁▂▃▄▅▆▇█]", last).start() :].splitlines()[:2]
    assert bars and marks.split()[1:3] == ["R", "P"]


def as_drawn(recording):
    """In a terminal of 80 by 24: what is printed above the live display, and its last picture."""
    console = quiet_console(80, force_terminal=True, height=24)
    with LiveView(console) as view:
        view.show(recording)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(console))
    above, _, picture = text.rpartition("╭")
    return above, "╭" + picture


def test_the_live_view_fits_into_a_terminal_of_80_by_24(finished):
    _, _, recording, _ = finished
    _, text = as_drawn(recording)
    assert "the plan was replaced in batch 9" in text and "╰" in text
    assert len(text.splitlines()) < 24


def test_the_live_view_shows_why_the_query_replaced_its_plan(finished):
    _, _, recording, _ = finished
    reason = (
        'Per 1,000 rows "o (c (v s))" takes 257 µs instead of 4.45 ms. Keeping the old plan has cost 46 ms so far; '
        "the change costs 6.18 ms."
    )
    decision = Decision(
        number=2, push=8, watermark=None, outcome="changed", reason=reason, plan="o c v s", best="o (c (v s))",
        strategy="moving-state",
    )  # fmt: skip
    later = replace(decision, number=3, push=12, outcome="kept", reason="The plan in force is the cheapest.")
    above, text = as_drawn(dataclasses.replace(recording, adapts=True, decisions=[decision, later]))
    assert "the query replaced its plan in batch 9 (moving-state)" in text
    assert len(text.splitlines()) < 24
    said = " ".join(above.split())
    assert "midstream, after batch 8: The plan was changed from" in said and reason in said
    assert said.count("after batch 8:") == said.count("after batch 12:") == 1


def test_states_stand_beside_their_joins_in_a_bushy_plan(finished):
    _, _, recording, _ = finished
    last = dataclasses.replace(recording.batches[-1], plan=query().plan("(o c) (v s)").explain(), states=(11, 22, 33))
    lines = [line.plain for line in tree_with_states(dataclasses.replace(recording, batches=[last]))]
    joins = [line.strip("│├└─ ") for line in lines if "Join" in line]
    # The topmost join is listed first here, and its operator last.
    assert [int(join.split("   ")[1].split()[0]) for join in joins] == [33, 11, 22]
    assert "o.visit" in joins[1] and "s.visit" in joins[2]


def test_what_cannot_be_done_is_said_before_anything_is_started(tmp_path):
    refused = call("demo", "--strategy", "jics", "--output", tmp_path / "report")
    assert refused.code == 1
    assert refused.err.startswith("[M3004] there is no migration strategy 'jics'")
    assert 'Did you mean "jisc"?' in refused.err
    refused = call("demo", "--strategy", "pause-drain-resume", "--no-spark")
    assert (refused.code, refused.err[:7]) == (1, "[M3004]")
    assert not (tmp_path / "report").exists() and not OUTPUT.exists()
    (tmp_path / "file").touch()
    refused = call("demo", "--no-spark", "--output", tmp_path / "file" / "report")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "not a directory" in refused.err
