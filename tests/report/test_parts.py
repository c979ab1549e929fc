"""What the sections are made of: numbers worked by hand, and a second path where there is one."""

import json

import numpy as np
import pytest

from command_line import change_info
from delta_rlvr.evaluate.seeds import seed_table
from delta_rlvr.report import write_report
from delta_rlvr.report.clouds import clouds, default_minimum
from delta_rlvr.report.comparison import comparison
from delta_rlvr.report.discriminator import overlap, step_view, summary
from delta_rlvr.report.dynamics import POINTS, columns, notes, panels
from delta_rlvr.report.groups import compare_settings, group_runs, run_labels, without_repeats
from delta_rlvr.report.page import _title
from delta_rlvr.report.shading import nice
from delta_rlvr.report.tokenview import token_view
from delta_rlvr.runs import RunDescription, RunWriter, TokenSums, read_run
from report_pages import unpacked


def bare_run(
    path, *, method="delta", seed=0, after=None, interval=0.05, settings=None, rule=None, rewards=(), task="t"
):
    description = RunDescription("minimal", method, seed, "m", task, settings or {}, rule)
    with RunWriter.create(path, description) as writer:
        for step, reward in enumerate(rewards, start=1):
            writer.log({"step": step, "reward": reward})
        if after is not None:
            final = {"accuracy": after, "low": after - interval, "high": after + interval}
            writer.update(final={"after": final})
    return read_run(path)


def scored_runs(folder, scores):
    """A run for each score of a method, seed by seed."""
    return [
        bare_run(folder / f"{method}{seed}", method=method, seed=seed, after=after)
        for method, values in scores.items()
        for seed, after in values
    ]


def evaluated_run(
    path,
    *,
    method="delta",
    seed=0,
    of="test",
    questions=30,
    prompt="{question}\n",
    reward="my.py:last",
    sampled_with=0,
    started=None,
    **settings,
):
    """A run of two steps of 4.5 seconds that `delta-rlvr evaluate` scored on rows of a file."""
    folder = bare_run(path, method=method, seed=seed).path
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "reward": 0.5, "time": 4.5 * step}) + "\n" for step in (1, 2))
    )
    (folder / "run.json").write_text(json.dumps(read_run(folder).info | {"steps": 2}))
    digest = f"{of} {questions} {prompt}"
    benchmark = {"digest": digest, "source": {"file": f"{of}.jsonl"}, "prompt": prompt, "extract": "whole"}
    benchmark |= {"own_reward": True, "load": {"name": f"{of}.jsonl", "reward": reward}}
    defaults = {"samples": 4, "max_tokens": 100, "temperature": 1.0, "top_p": 1.0, "seed": sampled_with, "stop": []}
    document = {
        "complete": True,
        "average": {"score": 0.25, "low": 0.2, "high": 0.3, "questions": questions},
        "settings": defaults | settings,
        "benchmarks": {of: benchmark},
        "samples": [{"benchmark": of, "problem": f"{of} {number}", "sample": 0} for number in range(questions)],
        "run": {"started": started} if started else {},
    }
    (folder / "evaluations").mkdir()
    (folder / "evaluations" / "heldout_after.json").write_text(json.dumps(document))
    return read_run(folder)


def test_the_title_names_a_task_without_its_prompt(tmp_path):
    run = bare_run(tmp_path, task="data/problems.jsonl?template_text=%7Bquestion%7D%0A")
    assert _title([run]) == "delta · seed 0 on data/problems.jsonl"


class TestGroups:
    def test_runs_that_differ_in_the_seed_belong_together(self, tmp_path):
        runs = [bare_run(tmp_path / f"{m}{s}", method=m, seed=s) for m in ("delta", "dapo") for s in (0, 1)]
        groups = group_runs(runs)
        assert [(group.label, group.members) for group in groups] == [("delta", (0, 1)), ("dapo", (2, 3))]

    def test_another_setting_is_another_group_and_is_named(self, tmp_path):
        runs = [bare_run(tmp_path / str(k), seed=k, rule={"refinements": k, "scope": "batch"}) for k in (1, 2)]
        assert [group.label for group in group_runs(runs)] == ["delta (refinements 1)", "delta (refinements 2)"]

    def test_a_repeated_seed_makes_no_band(self, tmp_path):
        runs = [bare_run(tmp_path / name, seed=0) for name in ("a", "b")]
        assert [group.members for group in group_runs(runs)] == [(0,), (1,)]

    def test_settings_that_differ_and_agree(self, tmp_path):
        runs = [bare_run(tmp_path / str(lr), settings={"lr": lr, "batch": 8}) for lr in (1, 2)]
        differing, agreeing = compare_settings(runs)
        assert differing == {"lr": [1, 2]}
        assert agreeing["batch"] == 8

    def test_a_rule_that_others_do_not_have_is_one_setting(self, tmp_path):
        rule = {"lambda_min": 0.8, "refinements": 1}
        runs = [bare_run(tmp_path / m, method=m, rule=r) for m, r in (("dapo", None), ("delta", rule))]
        differing, _ = compare_settings(runs)
        assert differing == {"method": ["dapo", "delta"], "rule": [None, "lambda_min=0.8, refinements=1"]}


class TestComparison:
    def test_seeds_are_compared_as_by_the_command(self, tmp_path):
        scores = {"delta": (0.60, 0.61, 0.62, 0.63, 0.64), "dapo": (0.50, 0.51, 0.52, 0.53, 0.54)}
        runs = scored_runs(tmp_path, {method: enumerate(values) for method, values in scores.items()})
        result = comparison(runs, group_runs(runs))
        assert result["groups"][0]["mean"] == pytest.approx(0.62)
        # Student's t with 4 degrees of freedom: 2.7764 * sd / sqrt(5), sd = sqrt(0.001 / 4).
        assert result["groups"][0]["high"] - 0.62 == pytest.approx(2.77645 * (0.001 / 4 / 5) ** 0.5, rel=1e-4)
        by_seed = {method: dict(enumerate(values)) for method, values in scores.items()}
        table = seed_table(by_seed)
        assert (result["verdict"], result["sentence"]) == (table.verdict, table.basis)
        (test,) = result["tests"]
        # Five differences of one sign: 2 of 32 sign flips are as extreme.
        assert (test["pair"], test["p"], test["p_adjusted"]) == ("dapo against delta", "0.062", "0.062")
        assert result["gap"] == "95 % interval"

    def test_few_seeds_are_shown_one_by_one(self, tmp_path):
        runs = scored_runs(tmp_path, {"delta": [(1, 0.60), (0, 0.62)], "dapo": [(1, 0.53), (0, 0.50)]})
        result = comparison(runs, group_runs(runs))
        first = result["groups"][0]
        assert (first["low"], first["high"]) == (None, None)
        # In the order of the seeds, as the differences are, and not of the scores or of the runs that were given.
        assert (first["seeds"], first["each"]) == ([0, 1], [0.62, 0.60])
        assert first["interval"] == "an interval needs 5 seeds"
        assert result["tests"][0]["difference"] == "-9.5 (-12.0 and -7.0)"
        assert result["gap"] == "one number per seed, as an interval needs 5 seeds"

    def test_runs_without_a_seed_and_groups_of_one_name_stand_apart(self, tmp_path):
        runs = []
        for place, after in (("a/run", 0.6), ("b/run", 0.5)):
            run = bare_run(tmp_path / place, after=after)
            info = json.loads((run.path / "run.json").read_text())
            del info["seed"]
            (run.path / "run.json").write_text(json.dumps(info))
            runs.append(read_run(run.path))
        result = comparison(runs, group_runs(runs))
        assert result["verdict"].startswith("Cannot tell delta (b/run) from delta (a/run): 1 seed")

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"task": "u"}, "their scores are of 2 tasks or rewards (t; u)"),
            (
                {"settings": {"reward": "mine.py:f"}},
                "their scores are of 2 tasks or rewards (t; t judged by mine.py:f)",
            ),
        ],
    )
    def test_scores_of_other_tasks_or_rewards_are_not_compared(self, tmp_path, other, words):
        runs = [bare_run(tmp_path / "a", method="dapo", after=0.5), bare_run(tmp_path / "b", after=0.7, **other)]
        result = comparison(runs, group_runs(runs))
        assert words in result["verdict"]
        assert result["tests"] == []

    def test_scores_of_versions_of_a_reward_are_compared_with_a_warning(self, tmp_path):
        runs = [bare_run(tmp_path / method, method=method, after=0.5) for method in ("dapo", "delta")]
        for run in runs:
            run.info["settings"] = {"reward": "mine.py:f", "reward_sha256": run.info["method"]}
        assert "The file of the reward was edited between the runs" in comparison(runs, group_runs(runs))["verdict"]

    def test_runs_of_different_length_are_compared_with_a_warning(self, tmp_path):
        runs = [bare_run(tmp_path / method, method=method, after=0.5) for method in ("dapo", "delta")]
        for run, steps in zip(runs, (2, 3), strict=True):
            run.info["steps"] = steps
        assert comparison(runs, group_runs(runs))["verdict"].endswith(" different lengths (2 and 3 steps).")

    def test_runs_without_a_score_are_named(self, tmp_path):
        runs = [
            bare_run(tmp_path / "a", method="dapo", after=0.5),
            bare_run(tmp_path / "b", seed=1, after=0.7),
            bare_run(tmp_path / "c", seed=2),
        ]
        result = comparison(runs, group_runs(runs))
        assert result["sentence"].endswith(" Left out, without a score: delta · seed 2.")
        assert [group.get("scored") for group in result["groups"]] == [1, 1]

    def test_labels_that_several_runs_share_have_their_folder(self, tmp_path):
        runs = [bare_run(tmp_path / name, task=name) for name in ("a", "b")]
        assert run_labels(runs) == ["delta · seed 0 (a)", "delta · seed 0 (b)"]
        assert run_labels(runs[:1]) == ["delta · seed 0"]

    def test_a_run_that_was_made_twice_counts_once(self, tmp_path):
        """A second comparison, after an edit of the rule, makes the baselines again; the rule's two versions stand apart."""
        made = {}
        for folder, version in (("one", "a" * 64), ("two", "b" * 64)):
            for method in ("dapo", "mine.py:Rule"):
                settings = {"show_methods": folder}
                if method != "dapo":
                    settings["method_sha256"] = version
                place = tmp_path / folder / method.replace(":", "-")
                score = {"dapo": 0.5, "one": 0.6, "two": 0.7}[folder if method != "dapo" else method]
                made[folder, method] = bare_run(place, method=method, after=score, settings=settings, rewards=(0.5,))
                with (place / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps({"step": 2, "loss": score}) + "\n")
        runs = [read_run(run.path) for run in made.values()]
        once = without_repeats(runs)
        assert [run.path.relative_to(tmp_path).as_posix() for run in once] == [
            "one/dapo", "one/mine.py-Rule", "two/mine.py-Rule"
        ]  # fmt: skip
        labels = [group.label for group in group_runs(once)]
        assert labels == ["dapo", "mine.py:Rule (one/mine.py-Rule)", "mine.py:Rule (two/mine.py-Rule)"]

    def test_nothing_to_compare_is_said(self, tmp_path):
        runs = [bare_run(tmp_path / "a")]
        assert comparison(runs, group_runs(runs))["verdict"].startswith("No run has a held-out score")

    def test_runs_of_a_script_are_compared_by_their_rewards(self, tmp_path):
        # Every second step has no reward of its own; what one run trained longer than the others does not count.
        rewards = {
            ("dapo", 1): (0.1, None, 0.3, None, 9.0),
            ("dapo", 2): (0.2, None, 0.4),
            ("delta", 1): (0.3, None, 0.5),
            ("delta", 2): (0.3, None, 0.6),
        }
        runs = [bare_run(tmp_path / f"{m}{s}", method=m, seed=s, rewards=values) for (m, s), values in rewards.items()]
        result = comparison(runs, group_runs(runs))
        assert result["reward_steps"] == 3
        assert [run["after"]["accuracy"] for run in result["runs"]] == pytest.approx([0.2, 0.3, 0.4, 0.45])
        assert [group["mean"] for group in result["groups"]] == pytest.approx([0.25, 0.425])
        assert result["verdict"].startswith("Cannot tell delta from dapo: 2 seeds, ")
        assert "these are mean rewards over the first 3 steps of training. With 2 seeds" in result["sentence"]
        # What gives them scores is apart from the sentence, a line per run that can be copied.
        assert "evaluate" not in result["sentence"]
        first, *others = result["how_to_score"]["commands"].splitlines()
        assert first == (
            f"delta-rlvr evaluate --model {tmp_path}/dapo1/model --benchmarks FILE "
            f"--output {tmp_path}/dapo1/evaluations/heldout_after.json"
        )
        assert len(others) == 3
        # Paired by seed: 0.40 - 0.20 and 0.45 - 0.30.
        assert result["tests"][0]["difference"] == "+0.175 (+0.200 and +0.150)"

    def test_an_evaluation_in_the_run_folder_is_its_held_out_score(self, tmp_path):
        runs = [bare_run(tmp_path / m, method=m, rewards=(0.5,)) for m in ("dapo", "delta")]
        for run, score in zip(runs, (0.25, 0.75), strict=True):
            (run.path / "evaluations").mkdir()
            average = {"score": score, "low": score, "high": score, "questions": 8}
            document = {"complete": True, "average": average, "settings": {"samples": 4}}
            (run.path / "evaluations" / "heldout_after.json").write_text(json.dumps(document))
        document["average"]["score"] = 0.125
        (runs[0].path / "evaluations" / "heldout_before.json").write_text(json.dumps(document))
        runs = [read_run(run.path) for run in runs]
        result = comparison(runs, group_runs(runs))
        assert [one["before"] and one["before"]["accuracy"] for one in result["runs"]] == [0.125, None]
        assert [group["mean"] for group in result["groups"]] == [0.25, 0.75]
        # All questions scored the same: the two ends are no interval.
        assert result["runs"][0]["after"] == {
            "accuracy": 0.25, "low": None, "high": None, "problems": 8, "samples": 4, "step": None, "own_reward": False,
            "interval_note": None
        }  # fmt: skip

    def test_a_held_out_score_in_the_folder_wins_over_trls_own_evaluation(self, tmp_path):
        runs = [bare_run(tmp_path / m, method=m, rewards=(0.5,)) for m in ("dapo", "delta")]
        trl = {"own_reward": True, "metric": "eval_reward"}
        for run, reward in zip(runs, (0.9, 0.6), strict=True):
            final = {"before": {"accuracy": 0.1, "step": 0} | trl, "after": {"accuracy": reward, "step": 40} | trl}
            (run.path / "run.json").write_text(json.dumps(run.info | {"final": final}))
        read = [read_run(run.path) for run in runs]
        result = comparison(read, group_runs(read))
        assert result["verdict"].startswith("Cannot tell delta from dapo")
        assert (
            "TRL's last eval_reward: the script's rewards, weighted and added up, on its eval_dataset, at step 40."
            in (result["sentence"])
        )
        assert result["unit"]["score"] == "TRL eval_reward"
        alone = comparison(read[:1], group_runs(read[:1]))["verdict"]
        assert alone.startswith(
            "dapo goes from a TRL eval_reward of 0.100 to 0.900 on the eval_dataset (step 40): +0.800 of reward"
        )
        (runs[1].path / "evaluations").mkdir()
        average = {"score": 0.75, "low": 0.7, "high": 0.8, "questions": 8}
        document = {"complete": True, "average": average, "settings": {"samples": 4}}
        (runs[1].path / "evaluations" / "heldout_after.json").write_text(json.dumps(document))
        read = [read_run(run.path) for run in runs]
        result = comparison(read, group_runs(read))
        # The other run's eval_reward measures another thing, so that it is no score beside this one.
        assert [run["after"] and run["after"]["accuracy"] for run in result["runs"]] == [None, 0.75]
        assert [run["before"] for run in result["runs"]] == [None, None]
        assert "eval_reward" not in result["verdict"] + result["sentence"]
        assert "Left out, without a score: dapo · seed 0." in result["sentence"]

    def test_scores_of_different_evaluations_are_not_compared(self, tmp_path):
        dapo = evaluated_run(tmp_path / "dapo", method="dapo", samples=4, max_tokens=100, temperature=1.0)
        delta = evaluated_run(tmp_path / "delta", samples=2, max_tokens=30, temperature=0.5, questions=25, of="other")
        result = comparison([dapo, delta], group_runs([dapo, delta]))
        assert result["verdict"] == (
            "These runs are not compared: their held-out evaluations differ in problems (30 of test.jsonl; 25 of other.jsonl), "
            "samples (4; 2), temperature (1; 0.5) and max tokens (100; 30)."
        )
        assert result["tests"] == []

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({}, ""),
            ({"eval_dataset_sha256": "b", "eval_rows": 12}, "eval_dataset (40 rows; 12 rows)."),
            ({"reward_settings_sha256": "b"}, "reward functions or their settings."),
            ({"reward_sha256": None}, ""),
            ({"reward_weights": [1.0, 10.0]}, "reward functions or their settings."),
        ],
    )
    @pytest.mark.parametrize("evaluated", [True, False])
    def test_mean_rewards_of_different_rewards_or_rows_are_not_compared(self, tmp_path, other, words, evaluated):
        same = {"eval_dataset_sha256": "a", "eval_rows": 40, "reward_sha256": "a", "reward_settings_sha256": "a"}
        same |= {"reward": "reward", "reward_weights": [1.0, 1.0]}
        final = (
            {"after": {"accuracy": 0.5, "own_reward": True, "metric": "eval_reward", "step": 3}} if evaluated else {}
        )
        for method, settings in (("dapo", same), ("delta", same | other)):
            run = bare_run(tmp_path / method, method=method, rewards=(0.5,))
            (run.path / "run.json").write_text(json.dumps(run.info | {"settings": settings, "final": final}))
        runs = [read_run(tmp_path / method) for method in ("dapo", "delta")]
        result = comparison(runs, group_runs(runs))
        if words and (evaluated or "rows" not in words):
            scores = "eval_rewards" if evaluated else "rewards"
            assert result["verdict"] == f"These runs are not compared: their {scores} differ in {words}"
            assert result["tests"] == []
        else:
            assert result["verdict"].startswith("Cannot tell delta from dapo")

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"of": "other"}, "in problems (30 of test.jsonl; 30 of other.jsonl)."),
            ({"prompt": "Q: {question}\n"}, "in prompt template ({question}\\n; Q: {question}\\n)."),
            ({"reward": "my.py:other"}, "in reward (my.py:last; my.py:other)."),
            ({"top_p": 0.7}, "in top-p (1; 0.7)."),
            ({"stop": ["\n"]}, "in stop texts (none; \\n)."),
        ],
    )
    def test_what_differs_between_evaluations_is_named(self, tmp_path, other, words):
        runs = [evaluated_run(tmp_path / "0"), evaluated_run(tmp_path / "1", seed=1, **other)]
        assert comparison(runs, group_runs(runs))["verdict"].endswith(words)

    def test_seeds_and_paths_are_no_difference_of_evaluations(self, tmp_path):
        dapo = evaluated_run(tmp_path / "dapo", method="dapo", reward="/elsewhere/my.py:last")
        delta = evaluated_run(tmp_path / "delta", sampled_with=1)
        result = comparison([dapo, delta], group_runs([dapo, delta]))
        assert result["verdict"].startswith("Cannot tell delta from dapo: 1 seed")

    def test_a_held_out_score_before_the_last_step_is_not_used(self, tmp_path):
        run = evaluated_run(tmp_path / "delta", started="2026-11-19T22:34:35+00:00")
        resumed = [{"step": 1, "time": "2026-11-19T22:38:11+00:00", "settings_changed": {}}]
        for changed, old in (
            ({"started": "2026-11-19T22:29:46+00:00"}, False),
            ({"started": "2026-11-19T22:29:46+00:00", "resumed": resumed}, True),
            # Resumed, but no step was left to take.
            ({"started": "2026-11-19T22:29:46+00:00", "resumed": [resumed[0] | {"step": 2}]}, False),
            # Scored while the run trained: its second step ended 9 seconds after its start.
            ({"started": "2026-11-19T22:34:26+00:00"}, False),
            ({"started": "2026-11-19T22:34:27+00:00"}, True),
        ):
            (run.path / "run.json").write_text(json.dumps(run.info | changed))
            (read,) = runs = [read_run(run.path)]
            result = comparison(runs, group_runs(runs))
            if old:
                assert result["verdict"] == (
                    "delta has no held-out score; its mean reward over the first 2 steps of training is 0.500. "
                    "Not used: the held-out score of delta · seed 0, scored before the last step."
                )
                assert any("delete it and its samples, and evaluate again" in problem for problem in read.problems)
            else:
                assert result["verdict"] == "delta ends at a mean reward of 0.250 on held-out problems."
                assert not any("scored before" in problem for problem in read.problems)

    @pytest.mark.parametrize(
        ("document", "words"), [({"complete": False}, "samples are missing"), ({"accuracy": 1.0}, "not a result")]
    )
    def test_an_evaluation_that_is_no_score_is_named(self, tmp_path, document, words):
        run = bare_run(tmp_path / "a", rewards=(0.5,))
        (run.path / "evaluations").mkdir()
        (run.path / "evaluations" / "heldout_after.json").write_text(json.dumps(document))
        runs = [read_run(run.path)]
        verdict = comparison(runs, group_runs(runs))["verdict"]
        assert "has no held-out score; its mean reward over the first step of training is" in verdict
        assert any("heldout_after.json" in problem and words in problem for problem in runs[0].problems)

    def test_evaluations_give_their_numbers_and_keep_their_samples(self, tmp_path):
        run = bare_run(tmp_path / "a")
        (run.path / "evaluations").mkdir()
        result = {"accuracy": 0.5, "by": {"aime": {"mean": 0.25}}, "samples": ["long"] * 1000, "empty": None}
        (run.path / "evaluations" / "aime.json").write_text(json.dumps(result))
        runs = [read_run(run.path)]
        found = comparison(runs, group_runs(runs))["evaluations"]
        assert found == [{"aime": [("accuracy", 0.5), ("by.aime.mean", 0.25)]}]


class TestClouds:
    def test_means_by_hand(self):
        sums = TokenSums()
        sums.add([1, 1, 2], [1.2, 1.0, 0.8], [1, -1, -1])
        sums.add([1], [1.4], 1)
        table = clouds(sums)
        assert table["id"] == [1, 2]  # most frequent first
        assert table["count"] == [3, 1]
        assert table["mean"] == [1.2, 0.8]  # (1.2 + 1.4 + 1.0) / 3
        assert table["mean_positive"] == [1.3, None]
        assert table["mean_negative"] == [1.0, 0.8]
        assert table["tokens"] == 4

    def test_no_token_gives_no_cloud(self):
        assert clouds(TokenSums()) is None

    @pytest.mark.parametrize(
        ("tokens", "most", "expected"), [(100, 90, 1), (1000, 900, 5), (1_234_567, 10**6, 200), (1000, 3, 3)]
    )
    def test_default_minimum(self, tokens, most, expected):
        assert default_minimum(tokens, most) == expected

    def test_a_large_vocabulary_keeps_extremes_and_frequent_types(self):
        ids = np.arange(30_000)
        sums = TokenSums()
        for _ in range(6):
            sums.add(ids, 0.8 + ids / 75_000, 1)
        table = clouds(sums)
        assert len(table["id"]) <= 4000
        assert {0, 1, 29_998, 29_999} <= set(table["id"])
        assert table["types"] == 30_000


class TestDiscriminator:
    def test_overlap_of_known_distributions(self):
        same = np.linspace(0, 1, 960)
        assert overlap(same, same) == pytest.approx(1.0)
        assert overlap(same, same + 5) == pytest.approx(0.0)
        half = np.concatenate([same[:480], same[480:] + 7])  # one half shared, one half apart
        assert overlap(same, half) == pytest.approx(0.5, abs=0.02)

    def test_negative_margins_are_turned_around(self):
        # Both sides agree with their own centroid: margins 2 on both, so scores +2 and -2, fully apart.
        responses = [
            {"advantage": 1.0, "margin_initial": [0.0, 1.0], "margin": [2.0, 2.5]},
            {"advantage": -1.0, "margin_initial": [0.0, -1.0], "margin": [2.0, 2.5]},
            {"advantage": 0.0, "margin_initial": [9.0], "margin": [9.0]},
        ]
        view = step_view(responses, 4)
        assert view["after"]["auroc"] == 1.0
        assert view["after"]["overlap"] == 0.0
        assert view["before"]["auroc"] == 0.5  # scores {0, 1} and {0, 1}
        assert view["after"]["count_positive"] == 2
        assert "lowers the overlap of the two sides from 1.000 to 0.000 (-100 %)" in summary([view])

    @pytest.mark.parametrize("sign", [-1.0, 1.0])  # distances to the own centroid; alignments
    def test_scores_of_one_sign_have_no_common_axis(self, sign):
        sides = [
            {"advantage": side, "margin": [sign, 2 * sign], "margin_initial": [sign, sign]} for side in (1.0, -1.0)
        ]
        assert step_view(sides, 1) is None

    def test_one_side_alone_has_no_view(self):
        assert step_view([{"advantage": 1.0, "margin": [1.0, 2.0], "margin_initial": [1.0, 2.0]}], 1) is None


class TestTokenView:
    @pytest.mark.parametrize(
        ("value", "expected"), [(0.19, 0.2), (0.2001, 0.2), (0.21, 0.3), (0.9, 1.0), (4, 5), (0, 0)]
    )
    def test_nice(self, value, expected):
        assert nice(value) == expected

    def test_a_limit_thins_out_every_step_and_says_so(self, make_run, tmp_path):
        run = read_run(make_run(tmp_path / "run", steps=4, prompts=4))
        whole = token_view(run, "r0", 10**9)
        assert whole.left_out is None
        assert [len(step["prompts"]) for step in whole.steps] == [4, 4, 4]
        limit = sum(map(len, whole.blocks.values())) // 2
        part = token_view(run, "r0", limit)
        assert sum(map(len, part.blocks.values())) <= limit
        assert [step["step"] for step in part.steps] == [1, 2, 4]
        assert part.left_out.startswith(f"{len(part.blocks)} of 12 sampled prompts")

    def test_too_small_a_limit_still_shows_one_prompt(self, make_run, tmp_path):
        view = token_view(read_run(make_run(tmp_path / "run", steps=1)), "r0", 1)
        assert len(view.blocks) == 1


class TestDynamics:
    def test_weights_that_hardly_differ_have_no_correlations(self, tmp_path):
        """The second step's weights have a standard deviation of 0.4 % of their mean: their ranks are of rounding."""
        with RunWriter.create(tmp_path / "run", RunDescription("minimal", "delta", 0, "m", "t")) as writer:
            for step, std in enumerate((0.2, 0.004, 0.3), start=1):
                line = {"weight_signal_mean": 1.0, "weight_signal_std": std, "rank_positive": 0.5}
                writer.log({"step": step, "saturated": 0.1, **line})
        run = read_run(tmp_path / "run")
        table = columns(run, panels([run]))
        assert table["rank_positive"] == [0.5, None, 0.5]
        assert table["saturated"] == [0.1] * 3

    def test_a_run_of_such_weights_has_no_panel_of_them(self, tmp_path):
        with RunWriter.create(tmp_path / "run", RunDescription("minimal", "delta", 0, "m", "t")) as writer:
            for step in (1, 2):
                line = {"weight_signal_mean": 1.0, "weight_signal_std": 0.004, "rank_positive": 0.5}
                writer.log({"step": step, "reward": 0.5, **line})
        assert [panel["title"] for panel in panels([read_run(tmp_path / "run")])] == ["Reward"]

    def test_panels_hold_only_what_was_measured(self, tmp_path):
        with RunWriter.create(tmp_path / "run", RunDescription("minimal", "dapo", 0, "m", "t")) as writer:
            for step in range(1, 2 * POINTS):
                writer.log({"step": step, "reward": step / 10, "centroid_gap": None, "note": "no group has a signal"})
        run = read_run(tmp_path / "run")
        shown = panels([run])
        assert [panel["title"] for panel in shown] == ["Reward"]
        table = columns(run, shown)
        assert len(table["step"]) <= POINTS + 1
        assert table["step"][-1] == 2 * POINTS - 1
        assert table["reward"][0] == 0.1
        assert notes(run) == ["step 1: no group has a signal"]


def test_the_page_holds_no_raw_markup(make_run, tmp_path):
    markup = "</script><script>alert(1)</script>"
    run = change_info(make_run(tmp_path / "run", steps=1), task=markup)
    page = write_report([run], tmp_path / "report.html")
    assert "<script>alert(1)" not in page.read_text()
    assert unpacked(page)["page"]["comparison"]["agreeing"]["task"] == markup


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "x.html")
    with pytest.raises(ValueError, match="give a finite number above 0"):
        write_report([tmp_path], tmp_path / "x.html", megabytes=0)
