"""A cursor over the tokens of a query: the current token, what was expected, and nodes stamped with their position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from sqlglot import Token, TokenType, exp

from midstream.cql.unsupported import CLAUSES
from midstream.errors import NotSupported, ParseError

__all__ = ["MAX_NESTING", "Cursor", "check_text"]

MAX_NESTING = 100
"""How deep expressions and subqueries may be nested. Plans and expressions are walked recursively: without a limit a
hostile or generated query would exhaust Python's stack far from here, without a word about where."""

MAX_TEXT = 1_000_000
"""Characters a query may have; a longer one is more likely data sent to the wrong place."""

Node = TypeVar("Node", bound=exp.Expr)

_WORD = re.compile(r"[^\W\d][\w$]*")
# What may contain quotes, else what opens without closing.
_QUOTED = re.compile(r"""'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\r\n]*|(?P<open>'|"|/\*\+?|\{)""")
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def check_text(text: str) -> None:
    """Refuse what the tokenizer cannot cut into tokens: open quotes and comments, endless text, and hints."""
    if not isinstance(text, str):
        raise ParseError(
            f"the query is of type {type(text).__name__}, not text",
            hint='Write ContinuousQuery("SELECT ... FROM ...", streams=[...]).',
        )
    if len(text) > MAX_TEXT:
        raise NotSupported(f"the query has {len(text)} characters; at most {MAX_TEXT} are read", text=text, position=0)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        printable = text.encode(errors="replace").decode()
        raise ParseError("half of a character", text=printable, position=error.start) from None
    position = 0
    while found := _QUOTED.search(text, position):
        opened, place, position = found["open"], found.start(), found.end()
        if opened == "/*":
            position = _end_of_comment(text, place)
        elif opened == "/*+":
            raise NotSupported("hints are not supported", text=text, position=place)
        elif opened == "{":
            # sqlglot's tokenizer would take {# ... #} for a comment.
            raise ParseError("unexpected character '{'", text=text, position=place)
        elif opened:
            what = "string" if opened == "'" else "quoted name"
            raise ParseError(f"the {what} is not closed", hint=f"Close it with {opened}.", text=text, position=place)


def _end_of_comment(text: str, start: int) -> int:
    depth, position = 1, start + 2
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            raise ParseError("the comment is not closed", hint="Close it with */.", text=text, position=start)
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


class Cursor:
    """Reads tokens from left to right."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.index = 0
        self.nesting = 0
        behind = tokens[-1].end + 1 if tokens else 0
        self._tokens = [*tokens, Token(TokenType.SENTINEL, "", start=behind, end=behind)]
        self._check_tokens()

    def _check_tokens(self) -> None:
        previous_end, was_number = -1, False
        for token in self._tokens:
            is_word = token.token_type == TokenType.VAR
            if is_word and not _WORD.fullmatch(token.text):
                bad = next(i for i, c in enumerate(token.text) if not _WORD.fullmatch(token.text[: i + 1]))
                raise self.problem(f"unexpected character {token.text[bad]!r}", token.start + bad)
            if is_word and was_number and token.start == previous_end + 1:
                raise self.problem(f'expected a space before "{token.text}"', token.start)
            previous_end, was_number = token.end, token.token_type == TokenType.NUMBER

    @property
    def token(self) -> Token:
        return self._tokens[self.index]

    @property
    def following(self) -> Token:
        return self._tokens[min(self.index + 1, len(self._tokens) - 1)]

    @property
    def word(self) -> str:
        """The current token as an upper-case word if it is unquoted, else empty."""
        return _word(self.token)

    @property
    def following_word(self) -> str:
        return _word(self.following)

    def at(self, *kinds: TokenType) -> bool:
        return self.token.token_type in kinds

    def at_end(self) -> bool:
        return self.at(TokenType.SENTINEL)

    def advance(self) -> Token:
        token = self.token
        self.index = min(self.index + 1, len(self._tokens) - 1)
        return token

    def take(self, kind: TokenType) -> bool:
        """Consume the current token if it has this type."""
        found = self.at(kind)
        if found:
            self.advance()
        return found

    def take_word(self, *words: str) -> str:
        """Consume the current token if it is one of the words, and return that word."""
        word = self.word
        if word and word in words:
            self.advance()
            return word
        return ""

    def expect(self, kind: TokenType, what: str) -> Token:
        if not self.at(kind):
            self.refuse(what)
        return self.advance()

    def expect_word(self, word: str) -> Token:
        if self.word != word:
            self.refuse(word)
        return self.advance()

    def node(self, node: Node, first: int) -> Node:
        """The node, stamped with the offset of its first character."""
        meta: dict[str, Any] = node.meta
        meta["start"] = first
        meta["depth"] = 0 if isinstance(node, exp.Query) else self._depth(node)
        if meta["depth"] > MAX_NESTING:
            raise self.unsupported("the expression is too deep", first, hint=f"At most {MAX_NESTING} levels are read.")
        return node

    def _depth(self, node: exp.Expr) -> int:
        """The height of the tree. A chain of ANDs, or of ORs, is one level, since it is flattened later."""
        same = type(node) if isinstance(node, exp.Connector) else None
        return max(
            (child.meta.get("depth", 0) + (type(child) is not same) for child in node.iter_expressions()), default=0
        )

    def enter(self) -> None:
        """One level deeper; the caller leaves it with ``self.nesting -= 1``."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.unsupported("the query is nested too deeply", hint=f"At most {MAX_NESTING} levels are read.")

    def problem(self, message: str, position: int | None = None, *, hint: str | None = None) -> ParseError:
        """A syntax error; at the current token unless a position is given."""
        place = self.token.start if position is None else position
        return ParseError(message, hint=hint, text=self.text, position=place)

    def unsupported(self, message: str, position: int | None = None, *, hint: str | None = None) -> NotSupported:
        """SQL that CQL does not support; at the current token unless a position is given."""
        place = self.token.start if position is None else position
        return NotSupported(message, hint=hint, text=self.text, position=place)

    def refuse(self, expected: str) -> NoReturn:
        """Refuse the current token: by name if it is known SQL, else as different from what was expected."""
        if self.word in CLAUSES:
            what, hint = CLAUSES[self.word]
            raise self.unsupported(f"{what} not supported", hint=hint)
        if self.at_end():
            raise self.problem(f"expected {expected}, but the query ends")
        raise self.problem(f"expected {expected}, found {self.shown()}")

    def shown(self) -> str:
        """The current token, for a message."""
        source = self.text[self.token.start : self.token.end + 1]
        return source if source[:1] in "'\"" else f'"{source}"'


def _word(token: Token) -> str:
    return token.text.upper() if token.token_type == TokenType.VAR else ""
