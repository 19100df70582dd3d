"""The tokens of CQL text; white space and comments, which may be nested, fall away."""

from __future__ import annotations

import re
from typing import NamedTuple

from midstream.testing.brute_force.syntax import BruteForceError

__all__ = ["Token", "tokens_of"]

_LEXEME = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[^\W0-9]\w*)
      | '(?P<string>(?:[^']|'')*)'
      | "(?P<quoted>(?:[^"]|"")*)"
      | (?P<symbol><=|>=|<>|!=|\|\||[-+*/%=<>(),.\[\];])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token; `kind` is number, word, string, quoted, symbol or end, `text` has quotes undone.

    `word` is a word in capitals or a symbol, and empty for everything else.
    """

    kind: str
    text: str
    position: int
    word: str = ""


def tokens_of(text: str) -> list[Token]:
    """All tokens, without white space and comments.

    >>> [token.text for token in tokens_of("1.5/* it's /* nested */ */<='it''s' -- [NOW]")]
    ['1.5', '<=', "it's", '']
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        if text.startswith("/*", position):
            position = _end_of_comment(text, position)
            continue
        match = _LEXEME.match(text, position)
        if match is None or match.lastgroup is None:
            raise BruteForceError(f"cannot read the query at {text[position : position + 20]!r}")
        kind, content = match.lastgroup, match[match.lastgroup]
        if kind in ("string", "quoted"):
            quote = text[position]
            content = content.replace(quote * 2, quote)
        if kind != "space":
            tokens.append(Token(kind, content, position, content.upper() if kind in ("word", "symbol") else ""))
        position = match.end()
    return [*tokens, Token("end", "", len(text))]


def _end_of_comment(text: str, position: int) -> int:
    depth = 0
    while True:
        opens, closes = text.find("/*", position), text.find("*/", position)
        if closes < 0:
            raise BruteForceError("a comment has no end")
        if 0 <= opens < closes:
            depth, position = depth + 1, opens + 2
        else:
            depth, position = depth - 1, closes + 2
        if depth == 0:
            return position
