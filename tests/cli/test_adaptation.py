"""``midstream advise``, the adaptation that ``midstream status`` shows, and the options of ``midstream run``."""

import pytest
from msgspec.structs import replace

from midstream.adaptation import Adaptation
from midstream.cli.adaptation import chosen_adaptation
from midstream.errors import BadArgument
from midstream.runtime.remote import RemoteQuery
from tests.cli.commanding import call, control_of, reported
from tests.runtime.test_plan_adaptation import POLICY, Driver, sizes


@pytest.fixture
def advised(tmp_path):
    """A query that would change its plan, had it been allowed to."""
    driver = Driver(tmp_path, replace(POLICY, mode="advise"))
    measured = sizes("ps")
    (block,) = measured.blocks
    places = [block.names.index(alias) for alias in "ops"]
    counted = replace(block, counted=((tuple(sorted(places[:2])), 180_000), (tuple(sorted(places)), 100)))
    driver.takes(batches=1, sizes=replace(measured, blocks=(counted,)))
    return driver


def test_advice_has_both_plans_their_joins_and_the_reason(advised):
    called = call("advise", advised.control.path)
    assert called.code == 0
    for text in (
        "adaptation: advise, decisions: 1, changes: 0",
        "plan in force",
        "o p s",
        "cheapest plan",
        "o (p s)",
        "lost so far",
        "a change costs",
        'advised: Per 1,000 rows "o (p s)" takes',
    ):
        assert text in called.out
    row = next(line for line in called.out.splitlines() if "30,000.0 ± 0.0" in line and "in force" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    # Estimated 30,000 and counted 60,000 per 1,000 rows.
    joins = [join for join in advised.adaptation.decisions()[0].joins if join.in_force]
    share = joins[0].seconds / sum(join.seconds for join in joins)
    assert cells == ["o p", "in force", "30,000.0 ± 0.0", "60,000.0", "2.00", f"{share:.0%}"]


def test_advice_as_data(advised):
    document = call("advise", advised.control.path, "--json").document
    assert (document["mode"], document["is_pinned"], document["considerations"]) == ("advise", False, 1)
    (decision,) = document["decisions"]
    assert (decision["plan"], decision["best"], decision["outcome"]) == ("o p s", "o (p s)", "advised")
    assert decision["joins"][0]["q_error"] == pytest.approx(2.0)
    assert call("status", advised.control.path, "--json").document["adaptation"] == {
        name: value for name, value in document.items() if name != "control"
    }


def test_a_query_that_does_not_adapt_says_how_to_switch_that_on(tmp_path):
    control = control_of(tmp_path, "(o p) s")
    reported(control, "(o p) s")
    called = call("advise", tmp_path)
    assert called.code == 0
    assert "adaptation is off" in called.out
    assert f"midstream run --resume {tmp_path} --adapt advise" in called.out
    assert "adaptation" not in call("status", tmp_path).out
    Driver(tmp_path, POLICY)
    assert "Nothing has been measured yet" in call("advise", tmp_path).out
    assert "no decision yet" in call("status", tmp_path).out


def test_a_report_has_the_decisions(advised, tmp_path):
    path = tmp_path / "decisions.html"
    called = call("advise", advised.control.path, "--report", path)
    assert called.code == 0
    assert "report of 1 decisions" in " ".join(called.out.split())
    (decision,) = advised.adaptation.decisions()
    assert decision.reason.replace('"', "&quot;") in path.read_text()
    document = call("advise", advised.control.path, "--report", tmp_path / "d.png", "--json").document
    assert document["report"] == str(tmp_path / "d.png")
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_that_cannot_be_written_is_refused(advised, tmp_path):
    called = call("advise", tmp_path / "none", "--report", "decisions.pdf")
    assert called.code == 2
    assert '--report cannot be "decisions.pdf"' in called.err and ".html or .png" in called.err
    called = call("advise", advised.control.path, "--report", tmp_path / "none" / "decisions.html")
    assert (called.code, called.err.count("\n")) == (1, 1)
    other = tmp_path / "other"
    reported(control_of(other, "(o p) s"), "(o p) s")
    called = call("advise", other, "--report", tmp_path / "decisions.html")
    assert called.code == 1
    assert called.err.startswith("[M3013] there are no decisions to report")
    assert not (tmp_path / "decisions.html").exists()


def test_a_query_that_does_not_exist_has_no_advice(tmp_path):
    called = call("advise", tmp_path / "none")
    assert called.code == 1
    assert "there is no query" in called.err


def test_status_says_which_migrations_the_query_decided_by_itself(tmp_path):
    driver = Driver(tmp_path, POLICY)
    driver.takes(batches=1, sizes=sizes("ps"))
    shown = call("status", tmp_path).out
    assert "auto, decisions: 1, changes: 1" in shown
    assert "decision 1" in shown
    RemoteQuery(tmp_path).migrate("(o s) p")
    driver.takes(batches=2, plan="(o s) p", commands=[driver.outcome(1), driver.outcome(2)])
    again = Driver(tmp_path)
    assert again.adaptation.decisions() == driver.adaptation.decisions()
    shown = call("status", tmp_path).out
    assert "auto, decisions: 1, changes: 1, pinned: a person chose the plan" in shown
    advice = call("advise", tmp_path).out
    assert f"midstream run --resume {tmp_path} --adapt auto" in advice


def test_options_become_a_policy():
    assert chosen_adaptation(None, {}) is None
    assert chosen_adaptation("off", {}) == "off"
    assert chosen_adaptation("auto", {}) == Adaptation()
    given = {"regret": "2", "sample_rows": "64", "strategies": "jisc,gen-mig"}
    expected = Adaptation(mode="advise", regret=2.0, sample_rows=64, strategies=("jisc", "gen-mig"))
    assert chosen_adaptation("advise", given) == expected


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("atuo", {}, '--adapt cannot be "atuo"'),
        (None, {"regret": "2"}, "--adapt-option needs --adapt"),
        ("off", {"regret": "2"}, "--adapt-option needs --adapt"),
        ("auto", {"regert": "2"}, 'no --adapt-option "regert"'),
        ("auto", {"mode": "off"}, 'no --adapt-option "mode"'),
        ("auto", {"regret": "much"}, 'regret must be a number, not "much"'),
        ("auto", {"sample_rows": "2.5"}, 'sample_rows must be a whole number, not "2.5"'),
        ("auto", {"sample_rows": "3"}, "sample_rows must be a whole number of at least 16"),
        ("auto", {"strategies": "jizc"}, "no migration strategy 'jizc'"),
    ],
)
def test_bad_options_are_refused(mode, options, message):
    with pytest.raises(BadArgument, match=message):
        chosen_adaptation(mode, options)


def test_run_refuses_them_before_anything_starts(tmp_path):
    called = call("run", "-q", "SELECT ts FROM a [NOW]", "-s", f"a={tmp_path}", "--adapt", "atuo")
    assert called.code == 2
    assert 'Did you mean "auto"?' in called.err
