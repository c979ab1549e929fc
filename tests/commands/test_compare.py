"""`delta-rlvr compare`: the table against scipy and numbers by hand, and a comparison that is interrupted and goes on."""

import json
import os
import signal
import statistics

import numpy as np
import pytest
from command_line import metrics, run, run_info, start
from scipy import stats

from delta_rlvr.commands.compare import comparison_rows, sentence

OPTIONS = ["--per_device_train_batch_size", 8, "--num_generations", 4, "--steps", 2, "--save_steps", 2]
OPTIONS += ["--eval_problems", 6, "--eval_samples", 2, "--rollouts_every", 0]

DAPO = [0.50, 0.52, 0.47, 0.55, 0.51, 0.49]
DELTA = [0.56, 0.57, 0.55, 0.58, 0.57, 0.53]  # above by 6, 5, 8, 3, 6, 4 points: 32 in all, 5 1/3 on average
GRPO = [0.49, 0.53, 0.48, 0.54, 0.52, 0.48]


def test_rows_by_hand_and_by_scipy():
    dapo, delta, grpo = comparison_rows({"dapo": DAPO, "delta": DELTA, "grpo": GRPO})
    assert dapo["mean"] == pytest.approx(3.04 / 6)
    assert dapo["sd"] == pytest.approx(np.std(DAPO, ddof=1))
    assert "difference" not in dapo
    assert delta["difference"] == pytest.approx(0.32 / 6)
    # Six differences of one sign: of 64 ways to flip them 2 are as extreme. Twice that for two comparisons (Holm).
    assert delta["p_paired"] == pytest.approx(2 / 64)
    assert delta["p_holm"] == pytest.approx(4 / 64)
    # Differences -1, 1, 1, -1, 1, -1 points add up to 0: every flip is as extreme.
    assert grpo["p_paired"] == pytest.approx(1.0)
    assert grpo["p_holm"] == pytest.approx(1.0)
    for row, values in ((delta, DELTA), (grpo, GRPO)):
        flips = stats.permutation_test(
            (np.array(values) - np.array(DAPO),), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert row["p_paired"] == pytest.approx(flips.pvalue)
        everything = stats.PermutationMethod(n_resamples=np.inf)
        expected = stats.mannwhitneyu(values, DAPO, alternative="two-sided", method=everything)
        assert row["p_mann_whitney"] == pytest.approx(expected.pvalue)


def test_one_seed_has_no_spread_and_no_test():
    first, second = comparison_rows({"dapo": [0.5], "delta": [0.6]})
    assert first["sd"] is None
    assert second["difference"] == pytest.approx(0.1)
    assert "p_paired" not in second


# The smallest p that n seeds can give is 2 / 2^n, times the number of comparisons: 5 seeds 1/16, 6 seeds 1/32, 7 seeds 1/64.
@pytest.mark.parametrize(
    ("methods", "seeds", "words"),
    [
        (2, 1, "With 1 seed and 1 comparison a test paired by seed cannot come below p = 1,"),
        (2, 5, "cannot come below p = 0.0625, whatever the difference: take 6 seeds or more"),
        (3, 6, "With 6 seeds and 2 comparisons a test paired by seed cannot come below p = 0.0625"),
        (3, 6, "take 7 seeds or more"),
    ],
)
def test_too_few_seeds(methods, seeds, words):
    scores = {f"method{n}": [0.5 + n / 10 + s / 1000 for s in range(seeds)] for n in range(methods)}
    assert words in sentence(comparison_rows(scores), seeds)


def test_enough_seeds():
    told = sentence(comparison_rows({"dapo": DAPO, "delta": DELTA}), 6)
    assert told.startswith("delta is above dapo by 5.3% (p = 0.031). ")
    told = sentence(comparison_rows({"delta": DELTA, "dapo": DAPO}), 6)
    assert told.startswith("dapo is below delta by 5.3% (p = 0.031). ")
    told = sentence(comparison_rows({"dapo": DAPO, "grpo": GRPO}), 6)
    assert told.startswith("No method differs from dapo at the 5 % level")


@pytest.mark.parametrize("with_what", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_and_started_again(tmp_path, with_what):
    folder = tmp_path / "compare"
    seeds = 2 if with_what == signal.SIGKILL else 1
    given = ["compare", "--methods", "dapo,delta", "--seeds", seeds, "--output", folder, *OPTIONS]
    command = start(*given, log=tmp_path / "first.txt")
    second = folder / "delta-seed42"
    if with_what == signal.SIGKILL:
        command.kill_when(lambda: len(metrics(second)) >= 1)
        assert run_info(second)["status"] == "running"
    else:
        while not metrics(second):
            assert command.process.is_alive(), command.output
        os.kill(command.process.pid, signal.SIGINT)
        assert command.finish() == 130
        assert "interrupted; what was written is kept" in command.output
        assert run_info(second)["status"] == "interrupted"
    first = folder / "dapo-seed42"
    assert run_info(first)["status"] == "finished"
    kept = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    assert not (folder / "comparison.json").exists()

    told = run(*given, log=tmp_path / "second.txt")
    assert f"{first} is finished: kept" in told
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == kept
    assert "cannot come below p = " in told
    stored = json.loads((folder / "comparison.json").read_text())
    assert [row["method"] for row in stored["rows"]] == ["dapo", "delta"]
    for method in ("dapo", "delta"):
        finals = [
            run_info(folder / f"{method}-seed{42 + s}")["final"]["after"]["accuracy"] for s in range(seeds)
        ]
        assert stored["scores"][method] == finals
        row = next(row for row in stored["rows"] if row["method"] == method)
        assert row["mean"] == pytest.approx(statistics.fmean(finals))
        assert f"{row['mean']:.1%}" in told
        assert len(metrics(folder / f"{method}-seed42")) == 2
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")[:2000]
