"""Figures 7 and 8 of ISQD on real Spark sites, small, and what a change does to a query that it does not touch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.figures import PaperFigure, describe, new_figure, save_figure
from benchmarks.isqd.moving_devices import STILL, Feeder, Latencies, MovingDevices, Outcome, summary
from benchmarks.isqd.spark_sites import Results, SparkSites
from benchmarks.measuring import Bar
from midstream.deployment.protocol.coordinator_requests import ChangeTopology, DeployQuery
from midstream.deployment.sites.deployment_directory import DeploymentDirectory

__all__ = ["FIGURES"]

QUERIES, CHANGES = 3, 4
QUIET_S, EVERY_S, ROUND_S = 30.0, 8.0, 1.0
APPROACHES = ("ISQD", "HCQD", "HSQD")
NATIVE = "Spark alone"


def run(approach: str) -> Outcome:
    """One approach over the first changes of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        if approach == NATIVE:
            outcome = _run_native(Path(folder) / "native")
        else:
            outcome = _run_on_sites(approach, Path(folder) / "deployment")
    # At once: on a busy machine all approaches together take long.
    print(f"{approach}: {json.dumps(asdict(outcome))}", flush=True)
    return outcome


def _run_native(folder: Path) -> Outcome:
    numbers = [str(number) for number in (QUERIES, CHANGES, QUIET_S, EVERY_S, ROUND_S)]
    command = [sys.executable, "-m", "benchmarks.isqd.native_fragments", str(folder), *numbers]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Outcome(**json.loads(printed.strip().splitlines()[-1]))


def _run_on_sites(approach: str, folder: Path) -> Outcome:
    devices = MovingDevices(QUERIES)
    directory = DeploymentDirectory.create(folder, devices.topology, devices.sites())
    with SparkSites(directory, approach) as running:
        running.deploy(*(DeployQuery(tuple(devices.plans(query)), ("k",)) for query in devices.devices))
        results = {query: Results(directory, query) for query in devices.devices}
        feeder = Feeder(devices, directory.write_feed, ROUND_S)
        feeder.start()

        def latencies_so_far() -> Latencies:
            return Latencies.of(dict(feeder.arose), {query: each.look() for query, each in results.items()})

        running.wait(lambda: latencies_so_far().are_settled(time.time()), 300, "latencies do not settle")
        begun = time.time()
        time.sleep(QUIET_S)
        quiet = begun, time.time()
        before = running.counts()
        done: list[tuple[float, float]] = []
        for number in range(CHANGES):
            asked = running.ask(ChangeTopology(devices.changes[number]))
            running.wait_until_idle()
            done.append((asked, time.time()))
            time.sleep(max(0.0, asked + EVERY_S - time.time()))
        feeder.end()
        after = running.counts()
        counts = {name: after[name] - before[name] for name in ("instructions", "told", "touched")}

        try:
            running.wait(lambda: not latencies_so_far().missing, 90, "results are missing")
        except TimeoutError:
            print(f"{approach}: results are missing")
        latencies = latencies_so_far()
    # The requests themselves are no messages.
    messages = counts["instructions"] + counts["told"] - CHANGES
    return Outcome.of(latencies, quiet, done, (counts["touched"], messages))


@cache
def _isqd() -> Outcome:
    return run("ISQD")


def figure_7_on_spark() -> bool:
    """Deployment and event-time latency of all approaches."""
    outcomes = {"ISQD": _isqd(), **{name: run(name) for name in (*APPROACHES[1:], NATIVE)}}
    drawing, axes = new_figure("ISQD, figures 7 and 8 on Spark: 3 queries of 4 sources, 1 mobile", 1, 2)
    places = range(len(outcomes))
    axes[0][0].bar(places, [summary(o.deployments)["mean"] for o in outcomes.values()], 0.4, label="until confirmed")
    axes[0][0].scatter(places, [summary(o.flows)["mean"] for o in outcomes.values()], color="black", label="data flow")
    axes[0][1].boxplot([o.during for o in outcomes.values()], positions=list(places), showfliers=False)
    for panel in axes[0]:
        panel.set_xticks(list(places), list(outcomes))
    describe(axes[0][0], "a change", "", "s, mean")
    describe(axes[0][1], "event-time latency during the changes", "", "s", legend=False)
    figures: dict[str, Any] = {}
    for name, o in outcomes.items():
        deployment, during, quiet = summary(o.deployments), summary(o.during), summary(o.quiet)
        figures |= {
            f"{name}: deployment per change, mean s": deployment["mean"],
            f"{name}: until data flow again, mean s": summary(o.flows)["mean"],
            f"{name}: latency during changes, mean s": during["mean"],
            f"{name}: latency during changes, median s": during["median"],
            f"{name}: latency during changes, p95 s": during["p95"],
            f"{name}: latency quiet, mean s": quiet["mean"],
            f"{name}: latency, during / quiet, mean": during["mean"] / quiet["mean"],
            f"{name}: fragments touched per change": o.touched,
            f"{name}: messages per change": o.messages,
            f"{name}: results missing": o.missing,
            f"{name}: results repeated": o.repeated,
        }
    for name in ("HCQD", "HSQD", NATIVE):
        for what in ("deployment per change, mean s", "latency during changes, mean s"):
            figures[f"{name} / ISQD: {what[:-2]}"] = figures[f"{name}: {what}"] / figures[f"ISQD: {what}"]
    holds = all(
        figures[f"ISQD: {what}"] < figures[f"HCQD: {what}"] < figures[f"HSQD: {what}"]
        for what in ("deployment per change, mean s", "latency during changes, mean s")
    )
    seen = "; ".join(
        f"{name} {figures[f'{name}: deployment per change, mean s']:.1f} s a change, mean latency"
        f" {figures[f'{name}: latency during changes, mean s']:.1f} s"
        f" (quiet {figures[f'{name}: latency quiet, mean s']:.1f} s)"
        for name in outcomes
    )
    figure = PaperFigure(
        "isqd_figure_07_on_spark",
        "ISQD, figs. 7 and 8 (real, on Spark)",
        "deployment and latency: ISQD lowest, then HCQD, then HSQD (with few sources)",
        f"real; 4 Spark sites on one machine, {QUERIES} queries of 4 sources, 1 mobile, {CHANGES} changes at least"
        f" {EVERY_S:g} s apart, a row per source and {ROUND_S:g} s",
    )
    bars = [
        Bar("HCQD / ISQD: deployment per change, mean", 1.0, at_least=True),
        Bar("HSQD / ISQD: deployment per change, mean", 1.0, at_least=True),
        Bar("HCQD / ISQD: latency during changes, mean", 1.0, at_least=True),
        Bar("HSQD / ISQD: latency during changes, mean", 1.0, at_least=True),
    ]
    series = {n: {"deployments": o.deployments, "flows": o.flows, "during": o.during} for n, o in outcomes.items()}
    return save_figure(figure, drawing, figures, holds, seen + ".", series, *bars)


def untouched_branch_on_spark() -> bool:
    """The latency of a query that no change touches."""
    outcome = _isqd()
    quiet, during = summary(outcome.still_quiet), summary(outcome.still_during)
    drawing, axes = new_figure("A query that no change touches, on Spark")
    axes[0][0].boxplot([outcome.still_quiet, outcome.still_during], showfliers=False)
    axes[0][0].set_xticks([1, 2], ["quiet", "during changes"])
    describe(axes[0][0], "event-time latency", "", "s", legend=False)
    figures: dict[str, Any] = {
        "latency quiet, median s": quiet["median"],
        "latency during changes, median s": during["median"],
        "latency quiet, p95 s": quiet["p95"],
        "latency during changes, p95 s": during["p95"],
        "during / quiet, median": during["median"] / quiet["median"],
        "during / quiet, p95": during["p95"] / quiet["p95"],
        "results": quiet["values"] + during["values"],
    }
    seen = (
        f"median {quiet['median']:.2f} s quiet, {during['median']:.2f} s during changes;"
        f" p95 {quiet['p95']:.2f} s and {during['p95']:.2f} s."
    )
    figure = PaperFigure(
        "isqd_untouched_branch_on_spark",
        f'ISQD, branch "{STILL}" (real, on Spark)',
        "(claim of the paper) what a change does not concern runs on undisturbed",
        f"real; as figure 7 on Spark; the query has devices, an edge node and a site of its own, its sink is the"
        f" cloud's; {CHANGES} changes",
    )
    series = {"quiet": outcome.still_quiet, "during": outcome.still_during}
    bars = [Bar("during / quiet, median", 1.1), Bar("during / quiet, p95", 1.1)]
    return save_figure(figure, drawing, figures, bars[0].is_met(figures), seen, series, *bars)


FIGURES = {"figure_7_on_spark": figure_7_on_spark, "untouched_branch_on_spark": untouched_branch_on_spark}
