"""The benchmark as a whole: the command on a tiny setting, resume, what its tables and figure say, and the policies it makes."""

import itertools
import json
import math
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from delta_evidence.bench import PlannedBatch
from delta_evidence.commands.planted_display import sentences
from delta_evidence.planted.bench import CreditBench
from delta_evidence.planted.figure import bench_figure
from delta_evidence.planted.policies import Continuation, is_variant, make_variant, told_solutions
from delta_evidence.planted.settings import PlantedSettings
from delta_evidence.planted.table import agreement_file, bench_result, select, value
from delta_evidence.shots import line_ends, with_shots
from delta_rlvr.cli import main
from delta_rlvr.models import load_policy
from delta_rlvr.runs import read_run
from delta_rlvr.tasks import get_task
from delta_rlvr.tasks.phrased_sums import Slips
from rounding import EXACT

TINY = ["--quick", "--tasks", "phrased-sums", "--prompts", "4", "--group", "4"]
TINY += ["--methods", "delta,fipo", "--device", "cpu"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    assert main(["credit-bench", *TINY, "--output", str(folder)]) == 0
    return folder


def test_the_command_writes_what_it_promises(bench, tmp_path):
    result = json.loads((bench / "credit_bench.json").read_text())
    rows = {row["method"]: row for row in select(result)}
    assert list(rows) == ["dapo", "surprise", "delta", "fipo", "oracle-only"]
    assert value(rows["dapo"], "wrong_auroc").mean == 0.5
    assert value(rows["oracle-only"], "right_auroc").mean == 1
    assert value(rows["oracle-only"], "mass_share").mean == 1
    assert value(rows["oracle-only"], "cosine").mean == pytest.approx(1)
    assert value(rows["dapo"], "cosine_gain").mean == 0
    assert value(rows["surprise"], "right_gain").mean == 0
    # 1 - p knows nothing of the reward
    shuffled = {row["method"]: row for row in select(result, condition="shuffled")}
    assert value(shuffled["surprise"], "rank_correlation").mean == pytest.approx(1)
    assert value(shuffled["delta"], "rank_correlation").mean < 0.9
    # the agreement is in the run folder's own form, and its reader takes it
    written = json.loads((bench / "proxy_agreement.json").read_text())
    assert written["yardstick"] == "full gradient"
    assert set(written["proxies"]["output_row"]) == {
        "margin_rank_correlation",
        "weight_rank_correlation",
        "update_cosine",
    }
    assert {"output_row", "topk_hidden", "head"} <= set(written["proxies"])
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    shutil.copy(bench / "proxy_agreement.json", tmp_path)
    assert read_run(tmp_path).proxy_agreement == written
    ET.fromstring((bench / "credit_bench.svg").read_text())


def test_proxies_are_measured_where_a_rule_has_one(tmp_path, capsys):
    given = [*TINY, "--methods", "entropy", "--batches", "1"]
    assert main(["credit-bench", *given, "--output", str(tmp_path)]) == 0
    assert "Proxies against" not in capsys.readouterr().out
    assert not (tmp_path / "proxy_agreement.json").exists()


def test_a_lost_batch_is_measured_again_and_alike(bench, capsys):
    lost = bench / PlannedBatch("builtin", "phrased-sums", 1).path
    before, kept = lost.read_text(), bench / PlannedBatch("builtin", "phrased-sums", 0).path
    untouched = kept.stat().st_mtime_ns
    lost.unlink()
    assert main(["credit-bench", *TINY, "--output", str(bench)]) == 0
    assert "2 rollout batches, 1 to measure" in capsys.readouterr().out
    assert lost.read_text() == before
    assert kept.stat().st_mtime_ns == untouched


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--seed", "1"], "seed was 0 and is now 1"),
        (["--methods", "delta"], "methods was"),
        (["--methods", "delta,fipo,entropy"], "measure all anew into another --output"),
        (["--methods", "detla"], "did you mean"),
        (["--tasks", "phrased-sums,phrased-sums"], "one comes twice"),
        (["--group", "1"], "--group 1"),
        (["--seed", "-1"], "--seed -1"),
        (["--tasks", "reasoning-gym:chain_sum"], "does not know its decisive tokens"),
        (["--policies", "builtin,confident?steps=9"], "seed=N"),
    ],
)
def test_mistakes_are_told_before_anything_runs(bench, given, told, capsys):
    assert main(["credit-bench", *TINY, *given, "--output", str(bench)]) == 2
    assert told in capsys.readouterr().err


def test_an_interrupted_benchmark_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(CreditBench, "measure_and_keep", interrupted)
    assert main(["credit-bench", *TINY, "--output", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert f"interrupted; batches so far are kept in {tmp_path}; the same command resumes" in said


# ------------------------------------------------------------------ tables by hand


def document(policy, number, records, mixed=1.0):
    facts = {"accuracy": 0.0 if mixed == 0 else 0.4, "mixed_groups": mixed, "length": 10.0}
    facts |= {f"{side}_decisive_share": 0.1 for side in ("right", "wrong")}
    return {
        "policy": policy,
        "task": "phrased-sums",
        "number": number,
        "facts": facts,
        "records": [
            {"method": name, "condition": "clean", "right_auroc": right, "wrong_auroc": wrong}
            for name, right, wrong in records
        ],
        "agreement": [],
    }


SETTINGS = PlantedSettings(policies=("a", "b"), tasks=("phrased-sums",))


def test_means_over_cells_and_paired_gains_by_hand():
    documents = [
        document("a", 0, [("surprise", 0.6, 0.8), ("delta", 0.7, 0.9)]),
        document("a", 1, [("surprise", 0.8, 0.8), ("delta", 0.9, 0.7)]),
        document("b", 0, [("surprise", 0.5, 0.5), ("delta", 0.4, 0.6)]),
        document("b", 1, [("surprise", 0.5, 0.7), ("delta", 0.4, 0.8)]),
    ]
    result = bench_result(documents, SETTINGS)
    delta = next(row for row in select(result) if row["method"] == "delta")
    # cells 0.8 and 0.4; gains +0.1 in a and -0.1 in b, each without any spread
    assert value(delta, "right_auroc").mean == pytest.approx(0.6)
    gain = value(delta, "right_gain")
    assert gain.mean == pytest.approx(0)
    assert gain.high - gain.low == pytest.approx(0, abs=EXACT)
    # wrong: gains +0.1 -0.1 +0.1 +0.1: cells 0 and 0.1
    assert value(delta, "wrong_gain").mean == pytest.approx(0.05)
    only_a = next(row for row in select(result, "policy a") if row["method"] == "delta")
    assert value(only_a, "right_gain").mean == pytest.approx(0.1)
    assert result["notes"] == []


def test_cells_without_a_mixed_group_are_named_and_left_out():
    documents = [
        document("a", 0, [("surprise", 0.6, 0.8)]),
        document("a", 1, [("surprise", 0.8, 0.8)]),
        document("b", 0, [], mixed=0.0),
        document("b", 1, [], mixed=0.0),
    ]
    result = bench_result(documents, SETTINGS)
    assert value(select(result)[0], "right_auroc").mean == pytest.approx(0.7)
    assert len(result["notes"]) == 1
    assert result["notes"][0].startswith("b on phrased-sums: no group has both")
    assert agreement_file(result["agreement"]) is None
    nothing = bench_result(documents[2:], SETTINGS)
    assert select(nothing) == []
    assert "nothing to show" in bench_figure(nothing)


def test_weights_without_an_effect_are_named():
    """A rule whose every weight is 0 stood in the table like any other."""
    documents = [document("a", number, [("mine.py:Zero", 0.5, 0.5), ("delta", 0.6, 0.8)]) for number in range(2)]
    for found in documents:
        for record, std in zip(found["records"], (0.0, 0.1), strict=True):
            record |= {"weight_signal_mean": std, "weight_signal_std": std}
    assert bench_result(documents, SETTINGS)["notes"] == ["mine.py:Zero: every weight is 0: nothing is learnt"]


def test_agreement_that_could_not_be_measured_is_left_out():
    """A file has null where a correlation was undefined."""
    documents = [document("a", number, [("surprise", 0.6, 0.8)]) for number in range(3)]
    for found, correlation in zip(documents, (None, 0.5, 0.7), strict=True):
        measures = {"margin_rank_correlation": None, "weight_rank_correlation": correlation}
        setting = {"proxy": "head", "scope": "batch", "refinements": 1, "tokens": 9}
        found["agreement"] = [{**setting, "update_cosine": 1.0, **measures}]
    (row,) = bench_result(documents, SETTINGS)["agreement"]
    assert row["weight_rank_correlation"] == pytest.approx(0.6)
    assert row["weight_rank_correlation_range"] == [0.5, 0.7]
    assert math.isnan(row["margin_rank_correlation"])
    assert all(math.isnan(end) for end in row["margin_rank_correlation_range"])


def test_sentences_say_only_what_the_intervals_support():
    def run(delta):
        return bench_result(
            [
                document(policy, number, [("surprise", 0.6, 0.8), ("delta", right, 0.3 + 0.01 * number)])
                for (policy, number), right in zip(itertools.product("ab", range(2)), delta, strict=True)
            ],
            SETTINGS,
        )

    sure = sentences(run([0.70, 0.71, 0.70, 0.71]))
    assert "On right responses delta finds" in sure[0]
    assert "Above 1 - p on the same rollouts: delta." in sure[0]
    assert "Below chance: delta." in sure[1]
    assert "No weight is shown to be above 1 - p there." in sure[1]
    alone = bench_result([document("a", 0, [("surprise", 0.6, 0.8)])], SETTINGS)
    assert sentences(alone) == [
        "Some policy and task has fewer than two batches to measure: no intervals, and nothing is concluded here."
    ]
    unsure = sentences(run([0.50, 0.90, 0.50, 0.90]))
    assert "delta finds" in unsure[0]
    assert "No weight is shown to be above 1 - p there." in unsure[0]


def test_what_is_found_by_the_reward_is_what_shuffling_takes_away():
    def run(shuffled):
        documents = []
        for policy, number in itertools.product("ab", range(2)):
            found = document(policy, number, [("surprise", 0.6, 0.8), ("delta", 0.8 + 0.01 * number, 0.9)])
            found["records"] += [
                {"method": "surprise", "condition": "shuffled", "right_auroc": 0.6, "wrong_auroc": 0.8},
                {"method": "delta", "condition": "shuffled", "right_auroc": shuffled, "wrong_auroc": 0.9},
            ]
            documents.append(found)
        return bench_result(documents, SETTINGS)

    result = run(0.5)
    delta = next(row for row in select(result) if row["method"] == "delta")
    assert value(delta, "right_by_reward").mean == pytest.approx(0.305)
    assert value(delta, "wrong_by_reward").mean == pytest.approx(0)
    told = sentences(result)
    assert (
        "With shuffled rewards none of delta is shown to be above 1 - p on right responses. Shuffling makes delta find"
        in told[2]
    )
    assert "With shuffled rewards still above 1 - p on wrong responses: delta." in told[3]
    assert "still above 1 - p on right responses: delta." in sentences(run(0.7))[2]


def test_no_proof_without_a_paired_difference():
    """A rule that ignores rewards: +0.000 less with shuffled ones, and "what they find beyond it they find by the reward"."""
    documents = []
    for policy, number in itertools.product("ab", range(2)):
        found = document(policy, number, [("surprise", 0.6, 0.8), ("delta", 0.65 + 0.01 * number, 0.8)])
        found["records"] += [
            {"method": "surprise", "condition": "shuffled", "right_auroc": 0.6, "wrong_auroc": 0.8},
            # As often more as less: on average nothing, with an interval around 0.
            {"method": "delta", "condition": "shuffled", "right_auroc": 0.55 + 0.21 * number, "wrong_auroc": 0.8},
        ]
        documents.append(found)
    told = sentences(bench_result(documents, SETTINGS))
    assert "Whether shuffling takes anything from them, the intervals do not tell." in " ".join(told)
    assert "found by the reward" not in " ".join(told)


def test_dots_stand_where_their_values_are():
    documents = [
        document(policy, number, [("surprise", 0.5, 0.25), ("delta", 1.0, 0.0)])
        for policy, number in itertools.product("ab", range(2))
    ]
    figure = bench_figure(bench_result(documents, SETTINGS))
    large = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5"[^>]*><title>([^<]*)', figure)
    places = {told: float(x) for x, _, told in large}
    right = places["surprise: 0.500"], places["delta: 1.000"]
    wrong = places["delta: 0.000"], places["surprise: 0.250"]
    # half an axis between 0.5 and 1 on the right side, a quarter between 0 and 0.25 on the wrong one
    assert (right[1] - right[0]) == pytest.approx(2 * (wrong[1] - wrong[0]), abs=0.2)
    names = [element.text for element in ET.fromstring(figure).iter("{http://www.w3.org/2000/svg}text")]
    assert {"delta", "surprise"} <= set(names)


# ------------------------------------------------------------------ policies and shots


def test_slips_of_a_continuation_are_in_its_solutions():
    """On early-error only the first step carries: a carry that is always forgotten makes every solution wrong."""
    task = get_task("early-error")
    by_prompt = {str(problem.prompt): problem for problem in task.problems("train", 256, seed=-1005)}
    seen = 0
    for batch in itertools.islice(told_solutions(Continuation(Slips(carry=1.0), seed=5, batch=16)), 30):
        for prompt, solution in batch:
            if prompt in by_prompt:
                seen += 1
                assert task.grade(by_prompt[prompt], solution).score == 0
    assert seen >= 32


def test_a_continuation_is_seeded_and_changes_the_policy(monkeypatch):
    from delta_evidence.planted import policies

    short = Continuation(Slips(carry=0.85), steps=2, seed=7, batch=4)
    monkeypatch.setitem(policies.VARIANTS, "confident", short)
    first, second, other = (
        make_variant(spec)[0].lm_head.weight for spec in ("confident", "confident", "confident?seed=8")
    )
    start = load_policy("builtin")[0].lm_head.weight
    assert (first == second).all()
    assert not (first == other).all()
    assert not (first == start).all()
    assert is_variant("confident?seed=8")
    assert not is_variant("builtin")
    with pytest.raises(ValueError, match="seed=N"):
        make_variant("confident?steps=9")


def test_worked_shots_are_right_and_of_other_problems():
    task = get_task("distractor-facts")
    shown = with_shots(task, 2)
    asked = shown.problems("train", 5, seed=0)
    plain = task.problems("train", 5, seed=0)
    for problem, bare in zip(asked, plain, strict=True):
        *worked, question = str(problem.prompt).split("\n\n")
        assert question == bare.prompt
        assert len(worked) == 2
        for block in worked:
            numbers = [int(number) for number in re.findall(r"\d+", block.splitlines()[0])[:3]]
            assert block.splitlines()[1].endswith(f"{sum(numbers)}.")
        assert shown.grade(problem, f"The answer is {bare.answer}.").score == 1
    assert with_shots(task, 0) is task


def test_line_ends_are_the_tokens_with_a_line_break():
    tokenizer = load_policy("builtin")[1]
    ends = line_ends(tokenizer)
    assert tokenizer("\n")["input_ids"][0] in ends
    assert not ends & set(tokenizer("Add 12 and 30.")["input_ids"])


def test_settings_refuse_what_cannot_be_measured():
    for given, told in (({"policies": ()}, "policies"), ({"prompts": 1}, "prompts=1"), ({"shots": -1}, "shots=-1")):
        with pytest.raises(ValueError, match=told):
            PlantedSettings(**given)
    units = PlantedSettings(policies=("x", "y"), tasks=("late-error",)).units
    assert [unit.policy for unit in units] == ["x"] * 4 + ["y"] * 4
    assert len({unit.path for unit in units}) == len(units)


def test_a_policy_that_cannot_be_loaded_is_refused_before_anything_is_written(tmp_path):
    bench = CreditBench(PlantedSettings(policies=(str(tmp_path / "nope"),), tasks=("late-error",)), tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="nope"):
        bench.prepare()
    assert not (tmp_path / "out").exists()


def test_batches_of_a_rule_that_has_changed_since_are_refused(tmp_path):
    """A finished benchmark told the old numbers as those of the edited rule."""
    rule = tmp_path / "mine.py"
    rule.write_text((Path(__file__).parents[2] / "tests" / "own_rule" / "my_rules.py").read_text())
    bench = CreditBench(
        PlantedSettings(tasks=("phrased-sums",), methods=("dapo", f"{rule}:FirstHalf")), tmp_path / "out"
    )
    bench.prepare()
    bench.prepare()
    rule.write_text(rule.read_text() + "\n")
    with pytest.raises(ValueError, match=r"FirstHalf: its file has changed since the batches of .*another --output"):
        bench.prepare()
