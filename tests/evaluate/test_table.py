"""The table of methods and benchmarks: the paper's own, cell for cell, its test, and every form it is written in."""

import csv
import io

import numpy as np
import pytest
from rich.console import Console

from delta_rlvr.commands.evaluate_display import method_table
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.significance import mann_whitney
from delta_rlvr.evaluate.table import as_csv, as_latex, as_markdown, score_table
from evaluation_support import make_result
from paper_tables import MATH, TABLE_1_AND_9

SAMPLES = 16


def right_samples(printed, questions):
    """Scores of 16 samples a question whose mean is the printed one: the right ones lie in the first samples."""
    right = round(printed / 100 * questions * SAMPLES)
    flat = np.zeros(questions * SAMPLES, dtype=int)
    flat[:right] = 1
    return flat.reshape(SAMPLES, questions).T.tolist()


@pytest.fixture(scope="module")
def table():
    sides = {}
    for name, (*scores, _) in TABLE_1_AND_9.items():
        asked = zip(MATH.items(), scores, strict=True)
        result = make_result({one: right_samples(printed, count) for (one, count), printed in asked})
        sides[name] = [result]
    return score_table(sides)


def test_the_papers_tables_cell_for_cell(table):
    """Tables 1 and 9 print shares of 480 or 528 samples with two digits: from these shares, our cells and averages are theirs."""
    assert table.columns == (*MATH, "average")
    assert table.questions == (30, 30, 30, 30, 30, 33, 30, 213)
    for name, printed in TABLE_1_AND_9.items():
        ours = [float(table.shown(cell)) for cell in table.rows[name]]
        np.testing.assert_allclose(ours, printed, atol=0.0101)  # a digit of rounding


def test_marks_are_the_papers_test():
    generator = np.random.default_rng(0)

    def drawn(chance, questions):
        return (generator.random((questions, SAMPLES)) < chance).astype(int).tolist()

    rows = {"dapo": (0.2, 0.2), "delta": (0.5, 0.2)}
    sides = {name: [make_result({"one": drawn(a, 30), "two": drawn(b, 90)})] for name, (a, b) in rows.items()}
    table = score_table(sides)
    one, two, average = table.rows["delta"]
    passes = {name: results[0].passes(["one"]) for name, results in sides.items()}
    assert one.p == mann_whitney(passes["delta"], passes["dapo"], alternative="greater").p < 0.05
    assert (one.above, two.above) == (True, two.p < 0.05)
    assert average.score == pytest.approx((30 * one.score + 90 * two.score) / 120)
    assert all(cell.p is None for cell in table.rows["dapo"])
    assert "16 repeated evaluations" in table.caption
    assert "the average is over all 120 questions" in table.caption


def test_seeds_of_a_method_are_one_row():
    first, second = make_result({"one": [[1, 0]]}), make_result({"one": [[1, 1]]}, seed=1)
    table = score_table({"a": [first, second], "b": [make_result({"one": [[0, 0]]})]})
    assert table.rows["a"][0].score == 0.75
    assert table.repeats == (4, 2)
    with pytest.raises(EvaluationError, match="need different seeds"):
        score_table({"a": [first, first]})


def test_every_form_has_the_same_numbers(table):
    delta = [table.shown(cell) for cell in table.rows["8B DelTA"]]
    assert delta[-1] == "28.40"
    markdown, latex = as_markdown(table), as_latex(table)
    assert "| 8B DelTA | " + " | ".join(delta) in markdown.replace("\\*", "").replace("**", "")
    assert "8B DelTA & " + " & ".join(delta) in latex.replace("$^*$", "")
    assert r"\textbf{56.88}" in latex
    assert latex.count(r"\\") == 1 + len(TABLE_1_AND_9)
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert [rows[4][name] for name in (*MATH, "average")] == delta
    assert rows[0]["p average"] == ""
    assert 0 <= float(rows[4]["p average"]) <= 1
    console = Console(file=io.StringIO(), width=160)
    console.print(method_table(table))
    (line,) = [line for line in console.file.getvalue().splitlines() if "8B DelTA" in line]
    assert [cell.strip("* ") for cell in line.split("│")[2:-1]] == delta
    assert as_latex(score_table({"a_b": [make_result({"x_y": [[1]]})]})).count(r"a\_b") == 1


def test_one_sample_is_no_test():
    table = score_table({"a": [make_result({"one": [[1]]})], "b": [make_result({"one": [[0]]})]})
    assert table.rows["b"][0].p is None
    assert "no test" in table.caption
    assert "average" not in table.caption  # one benchmark, one column
