"""The commands of ``midstream`` and their options: what typer needs to know. What they do is in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import midstream
from midstream.cli.failures import reports_failures
from midstream.cli.output import Output
from midstream.cli.places import is_remote
from midstream.cli.run_file import MASTER, RunFile
from midstream.cli.sinks import read_sink
from midstream.cli.sources import stream_sources
from midstream.cli.typer_classes import Command, Group
from midstream.demo import OUTPUT, run_demo
from midstream.errors import BadArgument, PathProblem

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Continuous queries on Spark whose plan can be replaced while they run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Query = Annotated[Path | None, typer.Argument(metavar="QUERY.cql", help="A file with the query.")]
Text = Annotated[str | None, typer.Option("--query", "-q", metavar="TEXT", help="The query itself, instead of a file.")]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        "-s",
        metavar="NAME=PLACE",
        help="Where a stream's rows come from: a directory, file or glob of parquet, csv or json files "
        "(orders=data/orders, or with the format orders=json:data/orders), or a Spark format (orders=rate).",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME.KEY=VALUE", help="An option of a source of Spark's; KEY=VALUE for all."
    ),
]
Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", metavar="NAME=DDL", help='The columns: orders="ts timestamp, id long". Else as found.'),
]
EventTimes = Annotated[
    list[str] | None,
    typer.Option(
        "--event-time",
        metavar="NAME=COLUMN",
        help="The column of event times; COLUMN alone for all. Else the only timestamp, or the column called ts, time, "
        "timestamp or event_time.",
    ),
]
Lateness = Annotated[
    list[str] | None,
    typer.Option(
        "--lateness", metavar="NAME=TIME", help="How late a row may come: 30s, 5 minutes; TIME alone for all."
    ),
]
PlanName = Annotated[
    str | None, typer.Option("--plan", metavar="PLAN", help='A join order, "(o p) s", or the number of a plan, "#2".')
]
Cells = Annotated[int | None, typer.Option("--cells", min=1, help="Into how many cells rows are spread.")]
Control = Annotated[Path, typer.Argument(metavar="CONTROL_DIR", help="The control directory of the query.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what Spark logs.")]


@app.callback(invoke_without_command=True)
def about(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"midstream {midstream.__version__}")
        raise typer.Exit


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream run orders.cql -s orders=data/orders -s payments=data/payments --sink parquet:out --until-end\n\n"
    "  midstream run orders.cql -s orders=json:in/orders -s payments=json:in/payments --lateness 30s\n\n"
    "  midstream run --resume orders.control\n\n"
    "A row that does not fit its columns ends the query: --option orders.mode=PERMISSIVE makes it NULL instead. "
    "CSV has a header, unless a --schema is given whose names the first line does not have.\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
)
@reports_failures
def run(
    query_file: Query = None,
    text: Text = None,
    streams: Streams = None,
    sink: Annotated[
        str, typer.Option("--sink", metavar="FORMAT:PATH", help="parquet:DIR, csv:DIR, json:DIR, console, noop, ...")
    ] = "console",
    options: Options = None,
    schemas: Schemas = None,
    event_times: EventTimes = None,
    lateness: Lateness = None,
    sink_options: Annotated[
        list[str] | None, typer.Option("--sink-option", metavar="KEY=VALUE", help="An option of the sink of Spark's.")
    ] = None,
    plan: PlanName = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Read what is there, end the streams and stop; else run until Ctrl-C.")
    ] = False,
    control: Annotated[
        Path | None, typer.Option("--control", help="The control directory; QUERY.control if not given.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Spark's checkpoint; beside the control directory if not given.")
    ] = None,
    cells: Cells = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master; local\\[2,4] if not given.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="CONTROL_DIR", help="Go on with a run that was ended.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run a query on Spark. Started again with the same directories, it goes on where it ended."""
    from midstream.cli.run import run as run_query

    chosen = _pairs("--conf", settings or [])
    if resume is not None:
        others = {
            "QUERY": query_file, "--query": text, "--stream": streams, "--option": options, "--schema": schemas,
            "--event-time": event_times, "--lateness": lateness, "--sink-option": sink_options, "--plan": plan,
            "--control": control, "--checkpoint": checkpoint, "--cells": cells,
        }  # fmt: skip
        given = [name for name, value in others.items() if value] + (["--sink"] if sink != "console" else [])
        if given:
            raise BadArgument(
                f"--resume goes on with what the run began with, and does not take {given[0]}",
                hint="It takes --until-end, --master and --conf. To change the plan: midstream migrate.",
            )
        before = RunFile.read(resume)
        asked = RunFile(
            before.query, before.streams, before.sink, before.control, before.checkpoint, before.plan, before.cells,
            master or before.master, {**before.settings, **chosen},
        )  # fmt: skip
        return run_query(asked, until_end, Output(as_json, debug))
    written = _query_text(query_file, text)
    sources = stream_sources(streams or [], options or [], schemas or [], event_times or [], lateness or [])
    name = query_file.stem if query_file is not None else "query"
    control = (control or Path(f"{name}.control")).absolute()
    beside = control.with_name(f"{control.name.removesuffix('.control')}.checkpoint")
    asked = RunFile(
        written,
        tuple(sources),
        read_sink(sink, sink_options or []),
        control,
        checkpoint if checkpoint and is_remote(checkpoint) else str(Path(checkpoint or beside).absolute()),
        plan,
        cells,
        master or MASTER,
        chosen,
    )
    return run_query(asked, until_end, Output(as_json, debug))


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream explain orders.cql -s orders=data/orders -s payments=data/payments --plans\n\n"
    "  midstream explain orders.cql -s orders=json:in/orders -s payments=json:in/payments "
    '--schema orders="ts timestamp, id long" --schema payments="ts timestamp, id long" --cells 8',
)
@reports_failures
def explain(
    query_file: Query = None,
    text: Text = None,
    streams: Streams = None,
    options: Options = None,
    schemas: Schemas = None,
    event_times: EventTimes = None,
    lateness: Lateness = None,
    plan: PlanName = None,
    plans: Annotated[
        bool, typer.Option("--plans", help="Show the equivalent plans, with the names --plan takes.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="How many plans to show.")] = 20,
    cells: Cells = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show a query's plan as a tree, the plans that are equivalent, and how rows are spread. Starts no Spark."""
    from midstream.cli.explain import explain as explain_query

    written = _query_text(query_file, text)
    sources = stream_sources(streams or [], options or [], schemas or [], event_times or [], lateness or [])
    return explain_query(written, sources, Output(as_json, debug), plan, plans, limit, cells)


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    '  midstream migrate orders.control "o (p s)"\n\n'
    '  midstream migrate orders.control "#2" --strategy gen-mig --variant reference-point\n\n'
    "Answers: accepted, then begun, then ended; or refused with the reason, and the query goes on untouched.\n\n"
    "Exit codes: 0 done, 1 refused, 2 wrong usage, 3 accepted, but not ended (or begun) yet: the query does not run "
    "now, or needs more rows or more time.",
)
@reports_failures
def migrate(
    control: Control,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help='A join order, "a (b c)", or the number of a plan, "#2".')
    ],
    strategy: Annotated[
        str, typer.Option("--strategy", help="jisc, moving-state, gen-mig, parallel-track or pause-drain-resume.")
    ] = "jisc",
    as_published: Annotated[
        bool, typer.Option("--as-published", help="jisc, parallel-track: exactly as in the paper.")
    ] = False,
    variant: Annotated[
        str | None, typer.Option("--variant", help="gen-mig: coalesce, reference-point or positive-negative.")
    ] = None,
    shortened: Annotated[
        bool, typer.Option("--shortened", help="gen-mig: split at the latest end of the rows seen.")
    ] = False,
    wait_for: Annotated[
        str, typer.Option("--wait-for", metavar="begun|ended", help="That it has begun, or that it has ended.")
    ] = "ended",
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")] = 60.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Replace the plan of a query that runs in another process, and tell what became of it."""
    from midstream.cli.migrate import WaitFor
    from midstream.cli.migrate import migrate as migrate_query

    if wait_for not in ("begun", "ended"):
        raise BadArgument(f'cannot wait for "{wait_for}"', hint="Write --wait-for begun, or ended.")
    given = {"as_published": as_published, "variant": variant, "shortened": shortened}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    return migrate_query(control, plan, strategy, options, timeout, Output(as_json, debug), WaitFor(wait_for))


@app.command(cls=Command, epilog="Example:\n\n  midstream status orders.control --watch")
@reports_failures
def status(
    control: Control,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show a running query's plan, rates, state, migrations, watermark and late rows."""
    from midstream.cli.status import status as show_status

    return show_status(control, watch, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream verify orders.control")
@reports_failures
def verify(control: Control, as_json: AsJson = False, debug: Debug = False) -> int:
    """Compute a finished run's result anew with DuckDB, and compare: nothing missing, nothing repeated?"""
    from midstream.cli.verify import verify as verify_run

    return verify_run(control, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream bench j4")
@reports_failures
def bench(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="j4, window_growth, jisc_2014, ...")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run benchmarks of the repository; inside a clone only."""
    from midstream.cli.bench import bench as run_benchmarks

    return run_benchmarks(names, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream demo --strategy gen-mig")
@reports_failures
def demo(
    strategy: Annotated[str, typer.Option("--strategy", help="How the plan is replaced.")] = "jisc",
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="On Spark, or in this process.")] = True,
    report: Annotated[Path, typer.Option("--output", help="The directory for the report.")] = OUTPUT,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Watch a plan that has become bad be replaced while the query runs."""
    output = Output(as_json, debug)
    code = run_demo(strategy=strategy, spark=spark, output=report, console=output.words)
    output.document({"state": "failed" if code else "finished", "report": str(report)})
    return code


def _query_text(file: Path | None, text: str | None) -> str:
    if (file is None) == (text is None):
        raise BadArgument(
            "there is no query" if file is None else "there are two queries",
            hint="Give a file, or the text itself with --query.",
        )
    if file is None:
        return str(text)
    try:
        return file.read_text()
    except OSError as problem:
        looks_like_text = "select" in str(file).lower()
        raise PathProblem(
            f'cannot read the query file "{file}": {(problem.strerror or str(problem)).lower()}',
            hint="The text of a query is given with --query." if looks_like_text else None,
        ) from None


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, found, value = text.partition("=")
        if not found or not key:
            raise BadArgument(f'cannot read {option} "{text}"', hint=f"Write {option} key=value.")
        pairs[key] = value
    return pairs
