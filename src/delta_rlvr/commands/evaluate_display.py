"""The tables and notes that `delta-rlvr evaluate` prints."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from delta_rlvr.evaluate.benchmarks import BENCHMARKS, TASK_QUESTIONS
from delta_rlvr.evaluate.bootstrap import interval_text
from delta_rlvr.evaluate.compare import Comparison
from delta_rlvr.evaluate.data import VARIABLE, local_file
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.table import MARK, ScoreTable
from delta_rlvr.score_units import score_unit
from delta_rlvr.specs import shown_spec
from delta_rlvr.tasks.registry import BUILT_IN
from delta_rlvr.terminal import add_columns

_NEARLY_ALL = 0.9
_COLUMNS = 80
_GRADERS = ("math", "code", "choice")


def listed() -> list[str]:
    """Return the lines that list all benchmarks by grader, with the number of questions and where the data is."""
    column = max(map(len, [*BENCHMARKS, *BUILT_IN])) + 2
    lines = [f"{VARIABLE} = {os.environ.get(VARIABLE, '(not set)')}"]

    def entry(name: str, questions: str, text: str) -> None:
        lead = f"  {name:<{column}}{questions:>5}  "
        lines.extend(
            textwrap.wrap(
                text,
                _COLUMNS,
                initial_indent=lead,
                subsequent_indent=" " * len(lead),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    by_grader = sorted(BENCHMARKS.values(), key=lambda one: _GRADERS.index(one.template.grader))
    for grader, group in groupby(by_grader, key=lambda one: one.template.grader):
        lines += ["", f"graded as {grader}: questions, file below ${VARIABLE}, else from the hub"]
        for one in group:
            here = "here" if local_file(one.files) else "not here"
            entry(one.name, str(one.questions), f"{one.files[0]} ({here}), else {one.hub}")
    lines += ["", "built in, endless (--limit asks for more or fewer):"]
    for name in BUILT_IN:
        entry(name, str(TASK_QUESTIONS), "its own grader")
    lines += ["", "your own:"]
    entry("FILE", "all", "any .jsonl, .json, .csv or .parquet of {problem, answer}")
    entry("task:SPEC", "", "the held-out problems of any task that `train` takes")
    return lines


def result_table(result: EvaluationResult) -> Table:
    """Return the table of scores (in percent, or mean custom rewards) with their intervals."""
    document = result.document
    k = document["settings"]["samples"]
    unit = score_unit(result.own_reward)
    shown, ends = unit.finer.plain, unit.plain
    scale = "in percent" if unit.sign else f"avg@{k} and its interval: {unit.score}; the rest in percent"
    drawn = f"{k} samples per question{_sampling(document['settings'])}"
    table = Table(
        title=escape(str(document["model"].get("name", ""))),
        caption=f"{scale}; 95 % intervals by bootstrap over questions; {drawn}",
        title_justify="left",
        caption_justify="left",
    )
    metrics_at_k = (f"avg@{k}", "interval", f"pass@{k}", f"maj@{k}")
    headings = ("benchmark", "questions", *metrics_at_k, "cut off", "no answer")
    add_columns(table, headings, left=("benchmark",))
    for name, numbers in document["benchmarks"].items():
        if numbers["score"] is None:
            table.add_row(escape(shown_spec(name)), f"0/{numbers['questions_asked']}", *"------")
            continue
        metrics = numbers["metrics"]
        asked, here = numbers["questions_asked"], numbers["questions"]
        table.add_row(
            escape(shown_spec(name)),
            str(here) if here == asked else f"{here}/{asked}",
            shown(numbers["score"]),
            interval_text(numbers["low"], numbers["high"], ends, " .. "),
            _percent(metrics.get(f"pass@{k}")),
            _percent(metrics.get(f"maj@{k}")),
            _percent(numbers["truncated"]),
            _percent(numbers["without_answer"]),
        )
    average = document["average"]
    if len(document["benchmarks"]) > 1:
        table.add_section()
        table.add_row(
            "average (by questions)",
            str(average["questions"]),
            shown(average["score"]),
            interval_text(average["low"], average["high"], ends, " .. "),
        )
    return table


def unjudged(numbers: Mapping[str, Any]) -> str | None:
    """Return a note about responses without a reward, which count 0."""
    if not numbers.get("own_reward") or not numbers["reasons"]:
        return None
    reasons = "; ".join(f"{count} times: {reason}" for reason, count in [*numbers["reasons"].items()][:3])
    return (
        f"{sum(numbers['reasons'].values())} of {numbers['samples']} responses have no reward and count 0 ({reasons})"
    )


def unanswered(numbers: Mapping[str, Any]) -> str | None:
    """Return a note if nearly all responses have no answer: the score then says more about the prompt than about the model."""
    share, template = numbers.get("without_answer"), numbers.get("template")
    of_a_task = (numbers.get("source") or {}).get("task") is not None
    if share is None or share < _NEARLY_ALL or (template is None and not of_a_task):
        return None
    if numbers["truncated"] >= _NEARLY_ALL:
        return "nearly all responses were cut off before an answer: raise --max-tokens"
    if of_a_task:
        return (
            "nearly all responses have no answer where the grader looks for it. The prompt was the task's own: if training used "
            "--template, --template_text or --extract, give the same here"
        )
    prompt = str(numbers["prompt"]).replace("{{", "{").replace("}}", "}").replace("\n", "\\n")
    which = "your own" if template == "own" else f"the template {template!r}"
    return (
        f"nearly all responses have no answer where the grader looks for it ({numbers['extract']}). The prompt was {which}: {prompt} "
        "(If the model was trained on another prompt, give it: --template NAME, or --template_text TEXT with --extract PLACE. For a "
        "custom reward: --reward FILE.py:NAME)"
    )


def _sampling(settings: Mapping[str, Any]) -> str:
    """Return the sampling settings that the result knows, in words."""
    words = {"temperature": "temperature {:g}", "top_p": "top-p {:g}", "max_tokens": "up to {} tokens"}
    known = {key: text for key, text in words.items() if settings.get(key) is not None}
    return "".join(f", {text.format(settings[key])}" for key, text in known.items())


def method_table(scores: ScoreTable) -> Table:
    """Return the table of methods and benchmarks, with the best of each benchmark in bold."""
    table = Table(title="methods x benchmarks", caption=scores.caption, title_justify="left", caption_justify="left")
    add_columns(table, ("method", *scores.columns), left=("method",))
    for name, cells in scores.rows.items():
        texts = []
        for place, cell in enumerate(cells):
            text = scores.shown(cell)
            style = "bold" if float(text) == scores.best(place) else ""
            texts.append(Text(text + (MARK if cell.above else " "), style))
        table.add_row(escape(name), *texts)
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return the table that compares each candidate with the baseline."""
    baseline = comparisons[0]
    unit = baseline.unit
    table = Table(
        title=f"against {escape(baseline.baseline)} ({unit.finer.plain(baseline.baseline_score)})",
        caption="p-values adjusted by Holm; A = chance that an evaluation of the candidate beats one of the baseline",
        title_justify="left",
        caption_justify="left",
    )
    headings = ("score", unit.difference, "interval", "p by question", "p repeated (U)", "A")
    add_columns(table, ("candidate", *headings), left=("candidate",))
    for comparison in comparisons:
        repeated, effect = comparison.repeated_adjusted, comparison.effect
        table.add_row(
            escape(comparison.candidate),
            unit.finer.plain(comparison.candidate_score),
            unit.finer.signed(comparison.difference.mean),
            interval_text(comparison.difference.low, comparison.difference.high, unit.signed, " .. "),
            f"{comparison.paired_adjusted:.2g}",
            "-" if repeated is None else f"{repeated:.2g}",
            "-" if effect is None else f"{effect.superiority:.2f}",
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
