"""What a command says: words on a terminal, or one JSON document for machines.

With ``--json`` the document is all that stands on standard output; words then go to standard error. Progress always
goes to standard error.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from midstream.errors import MidstreamError

__all__ = ["Output", "escape"]


class Output:
    """The two ways out, chosen by what the user asked for."""

    def __init__(self, as_json: bool = False, debug: bool = False) -> None:
        self.as_json = as_json
        self.debug = debug
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self.words = self.errors if as_json else Console(highlight=False, soft_wrap=True)
        warnings.showwarning = self._warn

    def say(self, *what: RenderableType) -> None:
        """Words for people: the result of the command. Text may hold rich's markup: ``escape`` what is not ours."""
        self.words.print(*what)

    def note(self, *what: RenderableType) -> None:
        """Words beside the result, for example what is being waited for."""
        self.errors.print(*what)

    def document(self, content: dict[str, Any]) -> None:
        """The result for machines; nothing, unless it was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(content, default=str, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def failure(self, problem: MidstreamError) -> None:
        """One clear message; for machines, the same in its parts."""
        self.errors.print(Text(str(problem)), style="red" if self.errors.is_terminal else "")
        self.document(
            {
                "error": {
                    "code": problem.code,
                    "message": problem.message,
                    "detail": problem.detail,
                    "hint": problem.hint,
                }
            }
        )

    def _warn(self, message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Warnings that concern the user; those about the code that calls are for its authors."""
        if self.debug or not issubclass(category, DeprecationWarning | FutureWarning | ResourceWarning):
            self.errors.print(Text(f"warning: {message}"))
