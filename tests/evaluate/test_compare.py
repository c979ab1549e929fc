"""Comparison of results: the tests it uses, what it refuses, and what it says."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from delta_rlvr.cli import main
from delta_rlvr.commands.evaluate_display import comparison_table, result_table
from delta_rlvr.evaluate import EvaluationError, compare_many, compare_results
from delta_rlvr.evaluate.compare import paired_change
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.significance import mann_whitney
from delta_rlvr.training.heldout import show_change
from delta_rlvr.training.progress import Teller
from evaluation_support import make_result
from rounding import EXACT


def drawn(chance, questions=40, samples=8, seed=0):
    generator = np.random.default_rng(seed)
    levels = np.clip(generator.beta(1, 1, questions) * 0.5 + chance, 0, 1)
    return (generator.random((questions, samples)) < levels[:, None]).astype(int).tolist()


def test_by_hand():
    # Four questions of two samples: A = (0, .5, 0, 0), B = (1, 1, .5, 0). Differences 1, .5, .5, 0: mean .5.
    a = make_result({"one": [[0, 0], [1, 0], [0, 0], [0, 0]]})
    b = make_result({"one": [[1, 1], [1, 1], [0, 1], [0, 0]]})
    comparison = compare_results(a, b, names=("A", "B"))
    assert comparison.difference.mean == 0.5
    assert (comparison.baseline_score, comparison.candidate_score) == (0.125, 0.625)
    # Of the 8 sign flips of (1, .5, .5), one reaches +2 and one -2.
    assert comparison.paired.p == 0.25
    # Passes: A (1/4, 0), B (2/4, 3/4). All of B above all of A: 1 of C(4, 2) orders.
    assert comparison.repeated.p == pytest.approx(1 / 6)
    assert comparison.effect.cliffs_delta == 1.0
    assert comparison.repeats == (2, 2)
    assert "no proof of equality" in comparison.notes[0]
    assert "training" in comparison.notes[-1]
    # All resampled means lie above 0, and the test finds nothing: a reader is told that both may be.
    assert comparison.difference.low > 0
    why = "; p = 0.25. Interval by bootstrap, p by sign flips: near the limit they may disagree)"
    assert paired_change(a, b).endswith(why)
    assert paired_change(a, a).endswith("(no interval, paired by problem; p = 1)")


def test_a_clear_difference_is_told_and_a_null_one_is_not():
    base = make_result({"one": drawn(0.1, seed=0)})
    better = make_result({"one": drawn(0.45, seed=0)})
    same = make_result({"one": drawn(0.1, seed=0)})
    clear = compare_results(base, better)
    assert clear.paired.p < 0.01
    assert clear.difference.low > 0
    assert "more than chance" in clear.notes[0]
    assert compare_results(base, same).paired.p == 1.0


def test_where_nothing_varies_there_is_no_interval():
    """Every question scored the same: "+0.0 to +0.0" would read as certainty."""
    results = [make_result({"one": [[1, 0]] * 6}) for _ in range(2)]
    comparison = compare_results(*results, names=("A", "B"))
    assert "every question has the same difference (+0.0 points), so there is no interval." in comparison.notes[0]
    assert "no interval" in shown(comparison_table([comparison]))
    assert "difference, points" in shown(comparison_table([comparison]))
    rewards = shown(comparison_table([replace(comparison, own_reward=True)]))
    assert "difference" in rewards
    assert "of reward" not in rewards
    assert "no interval" in shown(result_table(results[0]))
    said = Console(file=io.StringIO(), width=200)
    show_change(None, *results, Teller(said), compare="delta-rlvr compare")
    text = said.file.getvalue()
    assert text.count("no interval") == 4
    assert text.count("Every question scored the same: resampling") == 1  # for both, once
    assert "+0.0 points (no interval, paired by problem" in text


def shown(table):
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_repeated_evaluations_are_several_results():
    runs = [
        [make_result({"one": drawn(level, 30, 2, seed=100 * side + n)}, seed=n) for n in range(5)]
        for side, level in enumerate((0.1, 0.3))
    ]
    comparison = compare_results(*runs)
    # Two samples of each of five results: ten passes over the questions.
    passes = [[score for result in side for score in result.passes()] for side in runs]
    expected = mann_whitney(passes[1], passes[0], alternative="greater").p
    assert comparison.repeated.p == pytest.approx(expected, abs=EXACT)
    assert comparison.repeats == (10, 10)
    same_seed = [runs[0][0], runs[0][0]]
    with pytest.raises(EvaluationError, match="need different seeds"):
        compare_results(same_seed, runs[1])


def test_many_candidates_are_adjusted():
    base = make_result({"one": drawn(0.1, seed=0)})
    candidates = {str(n): make_result({"one": drawn(0.1 + 0.05 * n, seed=0)}) for n in range(1, 4)}
    comparisons = compare_many(base, candidates)
    raw = [comparison.paired.p for comparison in comparisons]
    order = np.argsort(raw)
    assert comparisons[order[0]].paired_adjusted == pytest.approx(min(1, 3 * raw[order[0]]))
    assert all(c.paired_adjusted >= c.paired.p for c in comparisons)
    assert all(c.repeated_adjusted >= c.repeated.p for c in comparisons)


def test_benchmarks_are_resampled_within_themselves():
    easy = [[1, 1]] * 20
    hard = [[0, 0]] * 20
    a = make_result({"easy": easy, "hard": hard})
    b = make_result({"easy": easy, "hard": [[1, 0]] * 10 + [[0, 0]] * 10})
    comparison = compare_results(a, b)
    assert comparison.difference.mean == pytest.approx(10 * 0.5 / 40)
    only = compare_results(a, b, benchmarks=["hard"])
    assert only.questions == 20
    assert only.difference.mean == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_result({"one": [[0, 1]] * 3}, max_tokens=200), "max_tokens = 200"),
        (make_result({"one": [[0, 1]] * 3}, asked="another one"), "differ between the results"),
        (make_result({"two": [[0, 1]] * 3}, asked="another one"), "no benchmark 'one'"),
        # The length may follow from the questions: that these differ is said first.
        (make_result({"two": [[0, 1]] * 4}, max_tokens=200), "the two have different benchmarks"),
        (make_result({"one": [[0, 1]] * 4}, max_tokens=200), "of one differ between the results"),
        (make_result({"one": [[0, 1]] * 2 + [[None, None]]}), "only one has one q2"),
        (make_result({"one": [[0, 1, 1]] * 3}), "samples = 3"),
    ],
)
def test_what_does_not_compare_is_refused(other, message):
    with pytest.raises(EvaluationError, match=message):
        compare_results(make_result({"one": [[0, 1]] * 3}), other)


def test_one_set_of_questions_under_two_names():
    """A run calls its held-out problems "heldout", and `evaluate` calls them "task:phrased-sums"."""
    run = make_result({"heldout": [[0, 0], [1, 0]]})
    comparison = compare_results(run, make_result({"task:phrased-sums": [[1, 0], [1, 1]]}))
    assert comparison.difference.mean == 0.5
    assert comparison.questions == 2
    # Two sets with the same questions: which of them is meant is not guessed.
    with pytest.raises(EvaluationError, match="no benchmark 'heldout'"):
        compare_results(run, make_result({"one": [[1, 0], [1, 1]], "two": [[1, 0], [1, 1]]}))


def test_incomplete_results_still_pair_by_question():
    comparison = compare_results(make_result({"one": [[0, 1]] * 3}), make_result({"one": [[1, 1], [None, 1], [1, 1]]}))
    assert comparison.repeated is None
    assert comparison.difference.mean == pytest.approx(0.5)


def test_results_survive_their_file(tmp_path):
    result = make_result({"one": drawn(0.3)})
    result.write(tmp_path / "result.json")
    again = EvaluationResult.load(tmp_path)
    assert again.document == result.document
    assert compare_results(result, again).paired.p == 1.0


def test_only_what_a_command_writes_is_replaced(tmp_path, capsys):
    """`--compare --output` wrote over its own inputs, and over any table or text."""
    paths = [tmp_path / name / "result.json" for name in "ab"]
    for path, share in zip(paths, (0.3, 0.5), strict=True):
        make_result({"one": drawn(share)}).write(path)
        make_result({"one": drawn(share)}).write(path)
    compare = ["evaluate", "--compare", *map(str, paths), "--output"]
    foreign = {
        "run.json": "{}",
        "list.json": "[1]",
        "notes.md": "# Notes",
        "t.tex": "% a table",
        "t.csv": "method,score\na,1\n",
    }
    ours = {f"new{end}": None for end in (".md", ".tex", ".csv", ".json")}
    assert main([*compare, ",".join(str(tmp_path / name) for name in ours)]) == 0
    assert main([*compare, ",".join(str(tmp_path / name) for name in ours)]) == 0
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "own.md").write_text((tmp_path / "new.md").read_text() + "What I think of it.\n")
    for path in (*(tmp_path / name for name in (*foreign, "own.md")), *paths):
        kept = path.read_bytes()
        assert main([*compare, str(path)]) == 2
        assert "already exists and is not a comparison of evaluate: give another --output" in capsys.readouterr().err
        assert path.read_bytes() == kept
    with pytest.raises(ValueError, match="is not a result of evaluate"):
        make_result({"one": drawn(0.3)}).write(tmp_path / "run.json")
