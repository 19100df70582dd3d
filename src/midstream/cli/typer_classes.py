"""Changes to typer: help shows flags without a value, and with ``--json`` a usage error is also a JSON document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from midstream.cli.output import Output
from midstream.errors import BadArgument

__all__ = ["Command", "Group"]


class Command(TyperCommand):
    """A command whose help shows ``--watch``, not ``--watch <bool>``."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """All commands. With ``--json`` among the arguments, standard output is one JSON document in any case."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))

    def main(self, args: Sequence[str] | None = None, **options: Any) -> Any:  # type: ignore[override]
        given = sys.argv[1:] if args is None else args
        if not options.get("standalone_mode", True) or "--json" not in given:
            return super().main(args, **options)
        try:
            code = super().main(args, **{**options, "standalone_mode": False})
        except typer.TyperException as problem:
            message = str(problem.format_message()) if hasattr(problem, "format_message") else str(problem)
            Output(as_json=True).failure(BadArgument(message.rstrip("."), hint="Run with --help for usage."))
            code = 2
        sys.exit(code or 0)


def _with_plain_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params
