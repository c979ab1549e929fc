"""An audit as one HTML page: nothing is loaded, nothing runs, and what a model wrote is text."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from html import escape

from .audit import OURS, Audit, Judged, differences, summary

EXAMPLES = 20
"""Responses shown of a kind."""
TAIL = 400
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.wide { overflow-x: auto; }
@media (max-width: 40rem) { th, td { padding: .3rem .35rem; } details table { min-width: 40rem; } }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; padding: .35rem .5rem; background: var(--soft); border-radius: .3rem; }
details { margin: .4rem 0; }
details table { table-layout: fixed; }
code, pre { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; margin: 0; }
.where { color: #888; }
"""


def page(result: Audit, title: str, trouble: str = "") -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>",
        *(f"<p><b>{escape(sentence)}</b></p>" for sentence in filter(None, [trouble, *verdict(result)])),
        f"<p>{escape(asked(result))}</p>",
        _table(summary(result), numbers=(1, 2, 3, 4)),
        "<h2>Where they disagree</h2>",
        _table(_by_pair(result), numbers=(1, 2, 3)),
    ]
    for first, second in result.pairs():
        kinds = result.disagreements(first, second)
        if kinds:
            parts.append(f"<h2>{escape(first)} / {escape(second)}</h2>")
        for (payer, kind), rows in kinds.items():
            shown = f" ({EXAMPLES} shown)" if len(rows) > EXAMPLES else ""
            parts.append(
                f"<details><summary><b>{len(rows)}</b> paid by {escape(payer)} alone: {escape(kind)}{shown}</summary>"
                "<div class=wide><table>"
                f"<tr><th>reference</th><th>{escape(first)}</th><th>{escape(second)}</th><th>response, its end</th></tr>"
                + "".join(_example(each, first, second) for each in rows[:EXAMPLES])
                + "</table></div></details>"
            )
    return "".join(parts) + "</body></html>\n"


def asked(result: Audit) -> str:
    """How many responses to how many prompts there are."""
    groups = len({each.row.group for each in result.judged})
    if all(each.row.prompted for each in result.judged):
        return f"{len(result.judged)} responses to {groups} prompts."
    by_answer = f"they are grouped by their reference answers, of which there are {groups}"
    return f"{len(result.judged)} responses. The rows name no prompt: {by_answer}."


def verdict(result: Audit) -> list[str]:
    """What each other grader in the place of ours would change, a sentence each."""
    sentences = []
    for first, second in result.pairs():
        if first != OURS:
            continue
        paid: Counter[str] = Counter()
        for (payer, _), rows in result.disagreements(first, second).items():
            paid[payer] += len(rows)
        if not paid:
            sentences.append(f"{second} and {first} agree on every response.")
            continue
        groups = result.changed_groups(first, second)
        sentences.append(
            f"Of {len(result.judged)} responses, {second} refuses {paid[first]} that {first} pays and pays {paid[second]} "
            f"that {first} refuses. The advantages of {groups} prompt{'s' * (groups != 1)} change."
        )
    return sentences


def _by_pair(result: Audit) -> list[list[str]]:
    table = [["graders", "responses", "share", "prompts whose advantages change"]]
    for first, second in result.pairs():
        count = sum(map(len, result.disagreements(first, second).values()))
        groups = result.changed_groups(first, second)
        table.append([f"{first} / {second}", str(count), f"{count / len(result.judged):.2%}", str(groups)])
    return table


def _table(rows: list[list[str]], numbers: tuple[int, ...]) -> str:
    lines = []
    for place, row in enumerate(rows):
        tag = "td" if place else "th"
        cells = (
            f"<{tag}{' class=n' if column in numbers else ''}>{escape(cell)}</{tag}>" for column, cell in enumerate(row)
        )
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "<div class=wide><table>" + "".join(lines) + "</table></div>"


def _example(each: Judged, first: str, second: str) -> str:
    cells = [f"<code>{escape(str(each.row.answer))}</code><br><span class=where>{escape(each.row.where)}</span>"]
    for name in (first, second):
        verdict = each.verdicts.get(name)
        if verdict is None:
            cells.append(f"reward {each.score(name):g}")
        else:
            cells.append(f"{verdict.score:g}: {escape(verdict.reason)}<br><code>{escape(verdict.answer or '')}</code>")
    cells.append(f"<pre>{escape(each.row.completion[-TAIL:])}</pre>")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def text(result: Audit) -> str:
    """The verdict and the tables for a terminal."""
    tables = (summary(result), _by_pair(result), differences(result))
    return "\n\n".join(
        ["\n".join([*verdict(result), asked(result)]), *(_aligned(table) for table in tables if len(table) > 1)]
    )


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
