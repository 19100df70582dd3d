"""Output of a command: text on a terminal, or one JSON document.

With ``--json`` standard output has only the document; text then goes to standard error. Progress always goes to
standard error.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from midstream.errors import MidstreamError

__all__ = ["Output", "SafeConsole", "counted", "escape"]


_CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""What is shown instead of control characters. Names and messages may come from anybody: a terminal would obey them."""
_C1_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON leaves as they are."""


class SafeConsole(Console):
    """A console on which text cannot control the terminal; only rich's own styles and movements do."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(_CONTROLS), segment.style)


class Output:
    """Writes text or JSON, as the user chose."""

    def __init__(self, as_json: bool = False, debug: bool = False) -> None:
        self.as_json = as_json
        self.debug = debug
        self.errors = SafeConsole(stderr=True, highlight=False, soft_wrap=True)
        self.words = self.errors if as_json else SafeConsole(highlight=False, soft_wrap=True)
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
            sys.stdout.write(json.dumps(content, default=str, ensure_ascii=False).translate(_C1_CONTROLS) + "\n")
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


def counted(number: int, one: str, several: str) -> str:
    """A number and what it counts.

    >>> counted(1, "batch", "batches"), counted(2_000, "batch", "batches")
    ('1 batch', '2,000 batches')
    """
    return f"{number:,} {one if number == 1 else several}"
