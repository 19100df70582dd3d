"""The commands of ``midstream`` and their options, declared for typer. Each command is implemented in its own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import midstream
from midstream.cli.failures import reports_failures
from midstream.cli.output import Output
from midstream.cli.places import is_remote
from midstream.cli.saved_run import MASTER, RunFile
from midstream.cli.sinks import read_sink
from midstream.cli.sources import read_dead_letters, stream_sources
from midstream.cli.typer_classes import Command, Group
from midstream.demo import OUTPUT, run_demo
from midstream.errors import BadArgument, PathProblem

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Run windowed SQL on Spark and replace the plan of a running query.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Query = Annotated[Path | None, typer.Argument(metavar="QUERY.cql", help="File with the query.")]
Text = Annotated[str | None, typer.Option("--query", "-q", metavar="TEXT", help="The query text, instead of a file.")]
Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        "-s",
        metavar="NAME=PLACE",
        help="Where a stream's rows come from: a directory, file or glob of parquet, csv or json files "
        "(orders=data/orders, or with the format orders=json:data/orders), a Delta table (orders=data/table), a Kafka "
        "topic (orders=kafka:localhost:9092/orders), or a Spark format (orders=rate).",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME.KEY=VALUE", help="Set a Spark source option; KEY=VALUE sets it for all streams."
    ),
]
Schemas = Annotated[
    list[str] | None,
    typer.Option(
        "--schema",
        metavar="NAME=DDL",
        help='The columns, as Spark DDL: orders="ts timestamp, id long". Default: inferred from the files.',
    ),
]
EventTimes = Annotated[
    list[str] | None,
    typer.Option(
        "--event-time",
        metavar="NAME=COLUMN",
        help="The event-time column; COLUMN alone sets it for all streams. Default: the only timestamp, or the column "
        "named ts, time, timestamp or event_time.",
    ),
]
Lateness = Annotated[
    list[str] | None,
    typer.Option(
        "--lateness",
        metavar="NAME=TIME",
        help="How far out of order rows may arrive: 30s, 5 minutes; TIME alone sets it for all streams. Default: 0.",
    ),
]
PlanName = Annotated[
    str | None, typer.Option("--plan", metavar="PLAN", help='A join order, "(o p) s", or the number of a plan, "#2".')
]
Cells = Annotated[int | None, typer.Option("--cells", min=1, help="Number of cells over which rows are partitioned.")]
Control = Annotated[Path, typer.Argument(metavar="CONTROL_DIR", help="The control directory of the query.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Spark's log.")]


@app.callback(invoke_without_command=True)
def about(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"midstream {midstream.__version__}")
        raise typer.Exit


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream run orders.cql -s orders=data/orders -s payments=data/payments --sink delta:out --until-end\n\n"
    "  midstream run orders.cql -s orders=json:in/orders -s payments=json:in/payments --lateness 30s\n\n"
    "  midstream run --resume orders.control --adapt auto\n\n"
    "A row that does not match its columns stops the query; with --option orders.mode=PERMISSIVE it is read as NULL. "
    "CSV files have a header, unless --schema is given and the first line does not have its names.\n\n"
    "Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted.",
)
@reports_failures
def run(
    query_file: Query = None,
    text: Text = None,
    streams: Streams = None,
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="FORMAT:PATH",
            help="Where results go: delta:PATH (recommended), kafka:HOST:PORT/TOPIC, parquet:DIR, csv:DIR, json:DIR, "
            "console, noop or another Spark format.",
        ),
    ] = "console",
    options: Options = None,
    schemas: Schemas = None,
    event_times: EventTimes = None,
    lateness: Lateness = None,
    sink_options: Annotated[
        list[str] | None,
        typer.Option(
            "--sink-option",
            metavar="KEY=VALUE",
            help="Set a Spark sink option; of delta: partition_by=COLUMN,..., delta.PROPERTY=VALUE, "
            "storage.OPTION=VALUE, append=true; of kafka: key=COLUMN.",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            "--dead-letters",
            metavar="DIR|kafka:HOST:PORT/TOPIC",
            help="Where messages of Kafka topics go that cannot be read. Default: they are only counted.",
        ),
    ] = None,
    plan: PlanName = None,
    just_in_time: Annotated[
        bool, typer.Option("--just-in-time", help="Make partial results only when a join above can use them.")
    ] = False,
    adapt: Annotated[
        str | None,
        typer.Option(
            "--adapt",
            metavar="off|advise|auto",
            help="auto: the query changes its plan by itself; advise: it only says what it would do. Default: off, or "
            "as before.",
        ),
    ] = None,
    adapt_options: Annotated[
        list[str] | None,
        typer.Option("--adapt-option", metavar="KEY=VALUE", help="Set an option of Adaptation: regret=2."),
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end", help="Read the available input, end the streams and stop. Default: run until Ctrl-C."
        ),
    ] = False,
    control: Annotated[
        Path | None, typer.Option("--control", help="The control directory. Default: QUERY.control.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Spark's checkpoint directory. Default: beside the control directory."),
    ] = None,
    cells: Cells = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master. Default: local\\[2,4].")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Set a Spark configuration property.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="CONTROL_DIR", help="Resume a stopped run.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run a query on Spark. A run with existing control and checkpoint directories resumes where it stopped."""
    from midstream.cli.adaptation import chosen_adaptation
    from midstream.cli.run import run as run_query

    chosen = _pairs("--conf", settings or [])
    adaptation = chosen_adaptation(adapt, _pairs("--adapt-option", adapt_options or []))
    if resume is not None:
        others = {
            "QUERY": query_file, "--query": text, "--stream": streams, "--option": options, "--schema": schemas,
            "--event-time": event_times, "--lateness": lateness, "--sink-option": sink_options, "--plan": plan,
            "--dead-letters": dead_letters, "--just-in-time": just_in_time, "--control": control,
            "--checkpoint": checkpoint, "--cells": cells,
        }  # fmt: skip
        given = [name for name, value in others.items() if value] + (["--sink"] if sink != "console" else [])
        if given:
            raise BadArgument(
                f"--resume uses the options the run was started with and does not accept {given[0]}",
                hint="It accepts --until-end, --adapt, --master and --conf. Use midstream migrate to change the plan.",
            )
        before = RunFile.read(resume)
        asked = RunFile(
            before.query, before.streams, before.sink, before.control, before.checkpoint, before.plan, before.cells,
            master or before.master, {**before.settings, **chosen}, before.just_in_time, before.dead_letters,
        )  # fmt: skip
        return run_query(asked, until_end, Output(as_json, debug), adaptation)
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
        just_in_time,
        read_dead_letters(dead_letters, sources),
    )
    return run_query(asked, until_end, Output(as_json, debug), adaptation)


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
        bool, typer.Option("--plans", help="List the equivalent plans with the names that --plan accepts.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Maximum number of plans to list.")] = 20,
    cells: Cells = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show a query's plan, the equivalent plans and how rows are partitioned, without starting Spark."""
    from midstream.cli.explain import explain as explain_query

    written = _query_text(query_file, text)
    sources = stream_sources(streams or [], options or [], schemas or [], event_times or [], lateness or [])
    return explain_query(written, sources, Output(as_json, debug), plan, plans, limit, cells)


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    '  midstream migrate orders.control "o (p s)"\n\n'
    '  midstream migrate orders.control "#2" --strategy gen-mig --variant reference-point\n\n'
    "Prints submitted, running, completed; or refused with the reason, in which case the query is unchanged.\n\n"
    "Exit codes: 0 done, 1 refused, 2 invalid usage, 3 submitted, but not completed (or running) yet: the query is not "
    "running, or needs more rows or more time.",
)
@reports_failures
def migrate(
    control: Control,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help='A join order, "a (b c)", or the number of a plan, "#2".')
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", help="Migration strategy: jisc, moving-state, gen-mig, parallel-track or pause-drain-resume."
        ),
    ] = "jisc",
    as_published: Annotated[
        bool, typer.Option("--as-published", help="For jisc and parallel-track: run exactly as in the paper.")
    ] = False,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="For gen-mig: coalesce (default), reference-point or positive-negative."),
    ] = None,
    shortened: Annotated[
        bool, typer.Option("--shortened", help="For gen-mig: split at the latest end of the rows seen.")
    ] = False,
    wait_for: Annotated[
        str, typer.Option("--wait-for", metavar="running|completed", help="The state to wait for.")
    ] = "completed",
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Maximum seconds to wait.")] = 60.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Replace the plan of a query that runs in another process, and report the outcome."""
    from midstream.cli.migrate import WaitFor
    from midstream.cli.migrate import migrate as migrate_query

    if wait_for not in ("running", "completed"):
        raise BadArgument(f'cannot wait for "{wait_for}"', hint="Use --wait-for running or --wait-for completed.")
    given = {"as_published": as_published, "variant": variant, "shortened": shortened}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    return migrate_query(control, plan, strategy, options, timeout, Output(as_json, debug), WaitFor(wait_for))


@app.command(
    "just-in-time",
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream just-in-time orders.control on\n\n"
    "  midstream just-in-time orders.control off\n\n"
    "Exit codes: 0 done, 1 refused (the query is unchanged), 2 invalid usage, 3 submitted, but not in effect yet.",
)
@reports_failures
def just_in_time(
    control: Control,
    choice: Annotated[
        str,
        typer.Argument(
            metavar="on|off", help="on: hold rows back until a join above can use them; off: join them at once."
        ),
    ],
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Maximum seconds to wait.")] = 60.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Switch just-in-time processing of a running query on or off, with its next micro-batch."""
    from midstream.cli.just_in_time import switch_just_in_time

    if choice not in ("on", "off"):
        raise BadArgument(f'just-in-time processing cannot be "{choice}"', hint="Write on or off.")
    return switch_just_in_time(control, choice == "on", timeout, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream status orders.control --watch")
@reports_failures
def status(
    control: Control,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show a running query's plan, rates, state, migrations, watermark and late rows."""
    from midstream.cli.status import status as show_status

    return show_status(control, watch, Output(as_json, debug))


@app.command(
    "advise",
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream advise orders.control\n\n"
    "  midstream advise orders.control --report decisions.html\n\n"
    "The query must have been started with --adapt advise or --adapt auto.",
)
@reports_failures
def advise_on(
    control: Control,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html|FILE.png",
            help="Also write a report of all decisions: costs and the time lost by micro-batch, and the reasons.",
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show which plan would be cheapest for a running query by what it measured, and why it changes its plan or not."""
    from midstream.cli.adaptation import advise

    return advise(control, report, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream verify orders.control")
@reports_failures
def verify(control: Control, as_json: AsJson = False, debug: Debug = False) -> int:
    """Recompute the result of a finished run with DuckDB and report missing and repeated rows."""
    from midstream.cli.verify import verify as verify_run

    return verify_run(control, Output(as_json, debug))


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream vacuum out --dry-run\n\n"
    "  midstream vacuum s3://bucket/out --storage-option aws_region=eu-west-1\n\n"
    "A query may write to the table meanwhile: files that could still be committed stay. A running query also removes "
    "such files by itself, from time to time.",
)
@reports_failures
def vacuum(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A Delta table that midstream run has written.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    with_backfills: Annotated[
        bool,
        typer.Option(
            "--with-backfills", help="Also remove what killed backfills left. Only while no backfill is running."
        ),
    ] = False,
    storage_options: Annotated[
        list[str] | None,
        typer.Option("--storage-option", metavar="KEY=VALUE", help="Set an option of the table's storage."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Remove files that failed attempts left in a Delta table."""
    from midstream.cli.vacuum import vacuum as vacuum_table

    options = _pairs("--storage-option", storage_options or [])
    return vacuum_table(table, options, dry_run, with_backfills, Output(as_json, debug))


DeploymentPlace = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory of the deployment.")]


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream deploy trains.toml trains.deployment\n\n"
    "  midstream deploy --resume trains.deployment\n\n"
    "  midstream deploy --resume --only coordinator trains.deployment\n\n"
    "Each site is a Spark application of its own. Interrupt it to stop them; --resume continues where they were.",
)
@reports_failures
def deploy(
    places: Annotated[
        list[Path], typer.Argument(metavar="[FILE] DIRECTORY", help="The deployment file, and a new directory for it.")
    ],
    resume: Annotated[bool, typer.Option("--resume", help="Continue the deployment of the directory.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="Run only this site, or only the coordinator, here.")
    ] = None,
    remove_feeds: Annotated[
        bool, typer.Option("--remove-feeds", help="Remove files of rows when their site has taken them for certain.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Deploy queries over a topology of sensors, edge nodes and cloud, and run its sites on this machine."""
    from midstream.cli.deploy import deploy as run_deployment

    if len(places) > 2:
        raise BadArgument("too many arguments", hint="Write midstream deploy FILE DIRECTORY.")
    file = places[0] if len(places) == 2 else None
    return run_deployment(file, places[-1], only, resume, remove_feeds, Output(as_json, debug))


topology_app = typer.Typer(cls=Group, help="Show a topology, or change that of a running deployment.")
app.add_typer(topology_app, name="topology")


@topology_app.command(
    "apply", cls=Command, epilog="Example:\n\n  midstream topology apply trains.deployment moves.toml"
)
@reports_failures
def apply_topology_events(
    directory: DeploymentPlace,
    events: Annotated[Path, typer.Argument(metavar="EVENTS", help="A file with batches of events, TOML or JSON.")],
    timed: Annotated[bool, typer.Option("--timed", help="Keep to the times of the batches.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Maximum seconds to wait for each batch.")] = 120.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Apply batches of topology events, and report when the queries have followed."""
    from midstream.cli.topology import apply_events

    return apply_events(directory, events, timed, timeout, Output(as_json, debug))


@topology_app.command("show", cls=Command, epilog="Example:\n\n  midstream topology show topology.toml --picture t.png")
@reports_failures
def show_topology(
    place: Annotated[Path, typer.Argument(metavar="PLACE", help="A topology file, or the directory of a deployment.")],
    picture: Annotated[Path | None, typer.Option("--picture", metavar="FILE.png", help="Draw it, too.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the nodes and links of a topology; of a deployment, the picture has what runs where."""
    from midstream.cli.topology import show_topology as show

    return show(place, picture, Output(as_json, debug))


deployment_app = typer.Typer(cls=Group, help="Look at a running deployment.")
app.add_typer(deployment_app, name="deployment")


@deployment_app.command("status", cls=Command, epilog="Example:\n\n  midstream deployment status trains.deployment -w")
@reports_failures
def show_deployment(
    directory: DeploymentPlace,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show nodes, fragments, versions, generations and what waits."""
    from midstream.cli.deployment_status import deployment_status

    return deployment_status(directory, watch, Output(as_json, debug))


@app.command(cls=Command, epilog="Example:\n\n  midstream bench j4")
@reports_failures
def bench(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="j4, window_growth, jisc_2014, ...")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run benchmarks; only inside a clone of the repository."""
    from midstream.cli.bench import bench as run_benchmarks

    return run_benchmarks(names, Output(as_json, debug))


@app.command(
    cls=Command,
    epilog="Examples:\n\n"
    "  midstream demo\n\n"
    "  midstream demo --no-spark --strategy gen-mig\n\n"
    "  midstream demo --no-adapt\n\n"
    "Exit codes: 0 the results are exact and the plan was replaced, 1 not so, 2 invalid usage.",
)
@reports_failures
def demo(
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt/--no-adapt",
            help="The query changes its plan by itself, or the demo calls migrate some batches after the release.",
        ),
    ] = True,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="The only migration strategy to use. Default: the one that the query expects to be cheapest; with "
            "--no-adapt, jisc.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Run on Spark or in this process.")] = True,
    report: Annotated[Path, typer.Option("--output", help="Directory of the report.")] = OUTPUT,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run a query whose plan turns bad: it notices, says why, and replaces its plan while it runs."""
    output = Output(as_json, debug)
    code = run_demo(strategy=strategy, spark=spark, output=report, console=output.words, adapt=adapt)
    output.document({"state": "failed" if code else "finished", "report": str(report)})
    return code


def _query_text(file: Path | None, text: str | None) -> str:
    if (file is None) == (text is None):
        raise BadArgument(
            "the query is missing" if file is None else "the query is given twice",
            hint="Pass either a file or --query TEXT.",
        )
    if file is None:
        return str(text)
    try:
        return file.read_text()
    except OSError as problem:
        looks_like_text = "select" in str(file).lower()
        raise PathProblem(
            f'cannot read the query file "{file}": {(problem.strerror or str(problem)).lower()}',
            hint="Pass the text of a query with --query." if looks_like_text else None,
        ) from None


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, found, value = text.partition("=")
        if not found or not key:
            raise BadArgument(f'cannot read {option} "{text}"', hint=f"Write {option} key=value.")
        pairs[key] = value
    return pairs
