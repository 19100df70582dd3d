"""What reports have in common: how plots look, and self-contained HTML pages with plots and tables.

Plots are drawn with matplotlib, which midstream itself does not need: whoever has a figure has it installed.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PLOT_SETTINGS", "html_page", "html_table", "inline_svg"]

PLOT_SETTINGS: Any = {
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 9,
    "axes.titlesize": 10,
    "svg.fonttype": "none",
}
"""For matplotlib's ``rc_context``, around drawing and saving."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.2rem; padding: .6rem 1rem; border-left: .4rem solid; background: #f6f6f6; }
.exact { border-color: #2e7d32; } .wrong { border-color: #c62828; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child, th.words, td.words { text-align: left; } td { vertical-align: top; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; } svg { width: 100%; height: auto; }
.plans { display: flex; flex-wrap: wrap; gap: 1rem; }
"""


def inline_svg(figure: Figure) -> str:
    """The figure as an svg element for an HTML page, without the XML prolog; the same figure gives the same text."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :]


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[str] = ()) -> str:
    """A table of text. Columns whose headings are in ``words`` are left-aligned; no headings: no head."""
    kinds = [' class="words"' if heading in words else "" for heading in headings]
    lines = []
    if headings:
        cells = zip(kinds, headings, strict=True)
        lines.append("".join(f"<th{kind}>{html.escape(heading)}</th>" for kind, heading in cells))
    for row in rows:
        cells = zip(kinds or [""] * len(row), row, strict=True)
        lines.append("".join(f"<td{kind}>{html.escape(cell)}</td>" for kind, cell in cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def html_page(title: str, body: str) -> str:
    """A page that loads nothing: ``body`` is HTML, ``title`` is text."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>midstream: {html.escape(title)}</title><style>{_STYLE}</style></head>
<body>
<h1>{html.escape(title)}</h1>
{body}
</body>
</html>
"""
