"""The table of methods and benchmarks, as the paper's Table 1: scores, their average over questions, and marks for significance."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from delta_rlvr.evaluate.compare import named_as, question_means, repeated_scores
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.metrics import average_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.significance import SIGNIFICANCE, mann_whitney
from delta_rlvr.score_units import ScoreUnit, score_unit
from delta_rlvr.specs import shown_spec

AVERAGE = "average"
MARK = "*"


@dataclass(frozen=True)
class Cell:
    """The score of a method on a benchmark."""

    score: float
    p: float | None = None
    """The p-value of the paper's test against the first method: one-sided Mann-Whitney U over repeated evaluations. None for the first
    method, and without repeats."""

    @property
    def above(self) -> bool:
        """Whether the score is above that of the first method by the paper's test."""
        return self.p is not None and self.p < SIGNIFICANCE


@dataclass(frozen=True)
class ScoreTable:
    """A row per method; the last column is the average."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    questions: tuple[int, ...]
    """The number of questions of each column."""
    repeats: tuple[int, ...]
    """The number of repeated evaluations (passes over the questions) of each method."""
    samples: int
    unit: ScoreUnit

    def shown(self, cell: Cell) -> str:
        return self.unit.finer.plain(cell.score)

    def best(self, place: int) -> float:
        """Return the highest score of a column, rounded as shown."""
        return max(float(self.shown(cells[place])) for cells in self.rows.values())

    @property
    def caption(self) -> str:
        first, scale = next(iter(self.rows)), "percent" if self.unit.sign else self.unit.score
        scores = f"avg@{self.samples} in {scale}"
        if len(self.columns) > 1:
            scores += f"; the average is over all {self.questions[-1]} questions"
        if not any(cell.p is not None for cells in self.rows.values() for cell in cells):
            return f"{scores}; no test: it needs two or more samples per question"
        counts = "/".join(map(str, dict.fromkeys(self.repeats)))
        return (
            f"{scores}; {MARK} above {first} over {counts} repeated evaluations (one-sided Mann-Whitney U, p < {SIGNIFICANCE:g}, not "
            "adjusted for the number of tests)"
        )


def score_table(sides: Mapping[str, Sequence[EvaluationResult]], benchmarks: Sequence[str] | None = None) -> ScoreTable:
    """Return the table of results that `compare_many` accepts: one or more of each method, the baseline first."""
    reference = next(iter(sides.values()))[0]
    chosen = list(benchmarks or reference.benchmarks())
    columns = [[name] for name in chosen] + ([chosen] if len(chosen) > 1 else [])
    rows: dict[str, tuple[Cell, ...]] = {}
    baseline: list[list[float]] = []
    counts, repeats = [], []
    for name, results in sides.items():
        side = [named_as(reference, result) for result in results]
        passes = [repeated_scores(side, column) for column in columns]
        repeats.append(len(passes[-1]))
        means = [list(question_means(side, column).values()) for column in columns]
        counts.append([len(each) for each in means])
        if counts[-1] != counts[0]:
            raise EvaluationError(
                f"{name} has another number of questions than the first: complete the evaluation first"
            )
        rows[name] = tuple(
            Cell(average_at_k(each), _p(seen, base))
            for each, seen, base in zip(means, passes, baseline or [[]] * len(columns), strict=True)
        )
        baseline = baseline or passes
    headings = [shown_spec(name) for name in chosen] + ([AVERAGE] if len(chosen) > 1 else [])
    samples = sum(result.document["settings"]["samples"] for result in next(iter(sides.values())))
    unit = score_unit(reference.own_reward)
    return ScoreTable(tuple(headings), rows, tuple(counts[0]), tuple(repeats), samples, unit)


def _p(seen: Sequence[float], baseline: Sequence[float]) -> float | None:
    if len(seen) < 2 or len(baseline) < 2:
        return None
    return mann_whitney(seen, baseline, alternative="greater").p


def as_markdown(table: ScoreTable) -> str:
    lines = [("method", *table.columns), ("---", *["---:"] * len(table.columns))]
    lines += _texts(table, "**{}**".format, "\\" + MARK)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{table.caption}\n"


def as_latex(table: ScoreTable) -> str:
    """Return the table for LaTeX with the package booktabs."""
    lines = [("method", *table.columns), *_texts(table, r"\textbf{{{}}}".format, f"$^{MARK}$")]
    heading, *body = [" & ".join(map(_escaped, line)) + r" \\" for line in lines]
    caption = "% " + table.caption
    parts = [caption, rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule", heading, r"\midrule"]
    return "\n".join([*parts, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"


def as_csv(table: ScoreTable) -> str:
    """Return the scores, followed by the p-values, as CSV."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(("method", *table.columns, *(f"p {column}" for column in table.columns)))
    for name, cells in table.rows.items():
        p_values = ("" if cell.p is None else f"{cell.p:.6g}" for cell in cells)
        lines.writerow((name, *(table.shown(cell) for cell in cells), *p_values))
    return written.getvalue()


FORMATS: dict[str, Callable[[ScoreTable], str]] = {".md": as_markdown, ".tex": as_latex, ".csv": as_csv}
"""The writers of tables, by the ending of the file."""
WRITTEN: dict[str, bytes] = {
    ".md": rb"\| method \|[^\n]*\n\| --- \|[^\n]*\n(\|[^\n]*\n)+\navg@[^\n]*\n",
    ".tex": rb"% avg@[^\n]*\n\\begin\{tabular\}(?s:.*)\\end\{tabular\}\n",
    ".csv": rb'method,[^\n]*,"?p (?s:.*)',
    ".json": rb'(?s)\s*\[\s*\{\s*"baseline":.*"paired_adjusted":.*',
}
"""The patterns of what `--compare` writes, by the ending of the file: nothing else is replaced."""


def _texts(table: ScoreTable, bold: Callable[[str], str], mark: str) -> list[tuple[str, ...]]:
    """Return the cells of each row, with the best of a column in bold and those above the first method marked."""
    return [
        (
            name,
            *(
                (bold(text) if float(text) == table.best(place) else text) + (mark if cell.above else "")
                for place, cell in enumerate(cells)
                for text in [table.shown(cell)]
            ),
        )
        for name, cells in table.rows.items()
    ]


def _escaped(text: str) -> str:
    """Escape the special characters of LaTeX in names; cells already hold commands."""
    return text if "$" in text or "\\" in text else "".join("\\" + c if c in "_%&#" else c for c in text)
