"""Output of a command: text on a terminal, or one JSON document.

With ``--json`` standard output has only the document; text then goes to standard error. Progress always goes to
standard error.
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
    """Writes text or JSON, as the user chose."""

    def __init__(self, as_json: bool = False, debug: bool = False) -> None:
        self.as_json = as_json
        self.debug = debug
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self.words = self.errors if as_json else Console(highlight=False, soft_wrap=True)
        warnings.showwarning = self._warn

    def say(self, *what: RenderableType) -> None:
        """Print the result of the command as text. It may contain rich markup: ``escape`` foreign text."""
        self.words.print(*what)

    def note(self, *what: RenderableType) -> None:
        """Print a message that is not part of the result, for example progress."""
        self.errors.print(*what)

    def document(self, content: dict[str, Any]) -> None:
        """Print the result as JSON, if ``--json`` is given."""
        if self.as_json:
            sys.stdout.write(json.dumps(content, default=str, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def failure(self, problem: MidstreamError) -> None:
        """Print the error as one message; with ``--json`` also as a document with its parts."""
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
        """Print warnings that concern the user; warnings for developers only with ``--debug``."""
        if self.debug or not issubclass(category, DeprecationWarning | FutureWarning | ResourceWarning):
            self.errors.print(Text(f"warning: {message}"))
