"""The study's own parts: held-out scores, run independence, noise, protocols, resuming, and the table."""

from __future__ import annotations

import json
import math
import runpy
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from delta_evidence.judging import Asked, Judge, _light
from delta_evidence.learning.curves import curves_figure
from delta_evidence.learning.heldout import Decoding, HeldoutSettings, heldout_scores
from delta_evidence.learning.outcome import DIAGNOSTICS, Outcome
from delta_evidence.learning.protocol import ArmSettings, Protocol, Run, TrainingSettings, read_protocols
from delta_evidence.learning.runner import Study
from delta_evidence.learning.session import Machine
from delta_evidence.learning.table import StudyTable, markdown, sentences, study_table
from delta_evidence.learning.training import StackedTraining
from delta_evidence.rollouts import Batch, flip
from delta_evidence.weighing import BatchWeigher, study_method
from delta_rlvr.cli import main
from delta_rlvr.evaluate import evaluate_policy
from delta_rlvr.evaluate.seeds import SeedComparison
from delta_rlvr.models import load_policy
from delta_rlvr.objectives import group_advantages
from delta_rlvr.tasks import Problem, get_task
from delta_rlvr.tasks.problem_set import ProblemSet
from rounding import MODEL, rounding
from stacks import bundled_collector

# The same stack is held to its shapes in test_against_train.py and test_sampling.py.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")

TASK = get_task("phrased-sums")


@pytest.mark.parametrize("decoding", [Decoding(1.0, 3), Decoding(0.6, 2), Decoding(0.0)], ids=str)
def test_held_out_scores_are_those_of_evaluate_policy(decoding: Decoding) -> None:
    made, model, tokenizer = bundled_collector(2)
    with torch.no_grad():  # the second policy differs
        for weight in made.policy.parameters():
            weight[1] += 0.02 * torch.randn(weight[1].shape, generator=torch.Generator().manual_seed(1))
    settings = HeldoutSettings(problems=12)
    found = heldout_scores(made, [TASK, TASK], settings, decoding, limits=[64, 64], rows_at_once=20)
    for run in range(2):
        made.policy.load_into(run, model)
        expected = evaluate_policy(
            model,
            tokenizer,
            settings.questions(TASK),
            samples=decoding.samples,
            temperature=decoding.temperature,
            max_tokens=64,
            grade=TASK.grade,
            batch_size=7,
        )
        assert found[run].accuracy == pytest.approx(expected.accuracy)
        if decoding.samples > 1:
            assert found[run].pass_at["2"] == pytest.approx(
                expected.document["benchmarks"]["heldout"]["metrics"]["pass@2"]
            )
        else:
            assert found[run].pass_at == {}
    assert found[0] != found[1]


def one_batch(arms: dict[str, ArmSettings]) -> tuple[StackedTraining, list[Any]]:
    """A run of each arm with the same seed, after one batch of two updates; how far its weights went."""
    made, _, _ = bundled_collector(len(arms))
    start = [weight.detach().clone() for weight in made.policy.parameters()]
    settings = TrainingSettings(steps=2, prompts=4, group=4, updates=2)
    training = StackedTraining(made, [Run("phrased-sums", arm, 7) for arm in arms], settings, arms=arms)
    training.train()
    moved = [
        torch.cat(
            [
                (weight[run] - before[run]).flatten()
                for weight, before in zip(made.policy.parameters(), start, strict=True)
            ]
        ).detach()
        for run in range(len(arms))
    ]
    return training, moved


def test_each_arm_has_its_own_learning_rate() -> None:
    rates = (2e-5, 5e-4, 1e-4)
    _, together = one_batch({str(rate): ArmSettings("delta", learning_rate=rate) for rate in rates})
    for rate, moved in zip(rates, together, strict=True):
        _, (alone,) = one_batch({"delta": ArmSettings(learning_rate=rate)})
        # Weights are near 1, and so are rounded to about 1e-7; Adam's first steps are as long as the learning rate. Where a gradient
        # is all but 0 they may go either way.
        assert (moved - alone).norm() < 0.02 * alone.norm()
        assert alone.abs().max() == pytest.approx(2 * rate, rel=0.3)


def test_an_entropy_bonus_is_the_entropys_gradient() -> None:
    made, model, _ = bundled_collector(2)
    settings = TrainingSettings(steps=1, prompts=3, group=4, updates=1)
    runs = [Run("phrased-sums", arm, 3) for arm in ("dapo", "penalty")]
    arms = {"penalty": ArmSettings("dapo", entropy_bonus=-0.3)}
    training = StackedTraining(made, runs, settings, arms=arms, rows_at_once=10)
    rollouts = made.collect([training._asked(place, 0) for place in range(2)], group=4)
    weights, _ = training.weigh(rollouts, 0)
    part = {
        name: torch.stack([getattr(batch, name) for batch in rollouts])
        for name in ("prompt_ids", "prompt_mask", "completion_ids", "mask", "logps", "advantages")
    } | {"weights": weights}
    batch = rollouts[0]
    plain, penalised = training._forward_and_backward(part, [one.mask.sum() for one in rollouts], 10).tolist()
    # The first update's entropy is that of the rollouts.
    assert penalised - plain == pytest.approx(
        0.3 * batch.entropy[batch.mask].mean().item(), rel=rounding(MODEL, size=10.0)
    )
    # The same by autograd through transformers: the difference of the two gradients is 0.3 times that of the mean entropy.
    ids = torch.cat([batch.prompt_ids, batch.completion_ids], dim=1)
    valid = torch.cat([batch.prompt_mask, batch.mask], dim=1)
    first = batch.prompt_ids.shape[1]
    places = (valid.cumsum(1) - 1).clamp(min=0)
    logps = model(input_ids=ids, attention_mask=valid, position_ids=places).logits.float().log_softmax(-1)
    entropy = -(logps.exp() * logps).sum(-1)[:, first - 1 : -1]
    entropy[batch.mask].mean().backward()
    found = made.policy.norm.grad
    assert found is not None
    expected = model.model.norm.weight.grad
    torch.testing.assert_close(found[1] - found[0], 0.3 * expected, atol=1e-3 * expected.norm().item(), rtol=1e-3)


def test_a_run_does_not_depend_on_what_runs_beside_it() -> None:
    settings = TrainingSettings(steps=2, prompts=4, group=4, updates=2)
    alone, _, _ = bundled_collector(1)
    beside, _, _ = bundled_collector(3)
    run = Run("phrased-sums", "delta", 7)
    others = [Run("long-filler", "dapo", 3), run, Run("phrased-sums", "oracle", 8, reward_noise=0.3)]
    first = StackedTraining(alone, [run], settings).train()
    second = StackedTraining(beside, others, settings).train()
    assert first[0][0].accuracy == second[1][0].accuracy
    assert first[0][0].losses == pytest.approx(second[1][0].losses, abs=rounding(MODEL * 2, size=3.0))
    # After the first step: Adam divides by the gradient's size, so that entries that are all but 0 may step either way.
    assert first[0][0].gradient_norms == pytest.approx(second[1][0].gradient_norms, rel=1e-3)
    gaps = [
        (a[0] - b[1]).abs().max() for a, b in zip(alone.policy.parameters(), beside.policy.parameters(), strict=True)
    ]
    assert max(gaps) < 2e-4


def test_whole_prompts_are_the_same_update_read_once() -> None:
    # One update has all responses in either split: the same gradient, by way of prompts that are read once or eight times.
    norms = {}
    for split in ("responses", "prompts"):
        made, _, _ = bundled_collector(1)
        settings = TrainingSettings(steps=1, prompts=3, group=4, updates=1, split=split)  # type: ignore[arg-type]
        statistics = StackedTraining(made, [Run("phrased-sums", "delta", 3)], settings, rows_at_once=5).train()
        norms[split] = statistics[0][0].gradient_norms
    assert norms["prompts"] == pytest.approx(norms["responses"], rel=rounding(MODEL))


def test_mini_batches_of_prompts_hold_whole_groups() -> None:
    made, _, _ = bundled_collector(1)
    settings = TrainingSettings(steps=2, prompts=4, group=3, updates=2, split="prompts")
    parts = list(StackedTraining(made, [Run("phrased-sums", "dapo", 3)], settings)._mini_batches(0))
    assert sorted(torch.cat(parts, dim=1)[0].tolist()) == list(range(12))
    for part in parts:
        groups = part[0].view(-1, 3)
        assert torch.equal(groups - groups[:, :1], torch.arange(3).expand(2, 3))
        assert (groups[:, 0] % 3 == 0).all()
    with pytest.raises(ValueError, match="do not split evenly"):
        TrainingSettings(steps=3, prompts=4, group=3, updates=3, split="prompts")
    with pytest.raises(ValueError, match="choose responses or prompts"):
        TrainingSettings(split="groups")  # type: ignore[arg-type]


def test_two_methods_with_one_seed_see_the_same_problems_and_draws() -> None:
    made, _, _ = bundled_collector(2)
    problems = TASK.problems("train", 3, 5)
    first, second = made.collect(
        [Batch(TASK, problems, 5, 64), Batch(TASK, problems, 5, 64, reward_noise=0.4)], group=4
    )
    assert first.texts == second.texts
    assert torch.equal(first.correct, second.correct)
    assert not torch.equal(second.rewards, second.correct)


def test_a_limit_cuts_a_response_and_no_other() -> None:
    made, _, _ = bundled_collector(2)
    problems = TASK.problems("train", 2, 5)
    long, short = made.collect([Batch(TASK, problems, 5, 64), Batch(TASK, problems, 5, 9)], group=2)
    assert short.mask.sum(1).max() == 9
    assert torch.equal(long.completion_ids[:, :9], short.completion_ids[:, :9])
    assert not short.mask[:, 9:].any()


def test_advantages_by_hand() -> None:
    # Group 1: mean 1/4, std (ddof 1) of (1, 0, 0, 0) = 1/2: (3/4)/(1/2 + 1e-4) and -(1/4)/(1/2 + 1e-4). Group 2 is all alike.
    found = group_advantages(torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1]), 4)
    expected = [1.49970, -0.49990, -0.49990, -0.49990, 0, 0, 0, 0]
    assert found.tolist() == pytest.approx(expected, abs=5e-6)  # the digits above


def test_noise_flips_its_share_and_always_the_same() -> None:
    correct = torch.arange(20_000) % 2 * 1.0
    flipped = flip(correct, 0.2, seed=3, number=1)
    # 20,000 draws: more than three standard deviations of their share (0.0028).
    assert (flipped != correct).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert torch.equal(flipped, flip(correct, 0.2, seed=3, number=1))
    assert not torch.equal(flipped, flip(correct, 0.2, seed=3, number=2))
    assert torch.equal(flip(correct, 0.0, seed=3, number=1), correct)
    with pytest.raises(ValueError, match="reward_noise"):
        flip(correct, 1.5, seed=3, number=1)


def test_outcomes_say_what_the_weights_did() -> None:
    settings = TrainingSettings(steps=12, prompts=4, group=4, updates=2)
    made, _, _ = bundled_collector(2)
    runs = [Run("phrased-sums", "dapo", 3), Run("phrased-sums", "delta", 3)]
    with made.judge:
        plain, weighed = StackedTraining(made, runs, settings).train()
    assert [batch.number for batch in weighed if batch.diagnostics] == [0, 5]
    first, second = plain[0].diagnostics, weighed[0].diagnostics
    # Both saw the same rollouts. Without weights the share of the update is what it is, and nothing correlates or saturates.
    assert first["update_share_positive"] == first["update_share_plain"]
    assert second["update_share_plain"] == pytest.approx(first["update_share_plain"], rel=rounding(MODEL))
    spread = {"weight_positive_mean", "weight_negative_mean", "weight_gini", "weight_effective_share"}
    assert first.keys() == spread | {"update_share_positive", "update_share_plain"}
    assert (first["weight_gini"], first["weight_effective_share"]) == (0.0, 1.0)
    assert second.keys() == set(DIAGNOSTICS)
    kept = Outcome.of(runs[1], weighed, before=0.5, after=0.5)
    assert kept.diagnostics["batch"] == [0, 5]
    # Outcomes keep four digits.
    assert kept.diagnostics["saturated"][0] == pytest.approx(second["saturated"], rel=1e-3)
    assert Outcome.from_dict(json.loads(json.dumps(kept.as_dict()))) == kept


def test_oracle_weights_by_hand() -> None:
    made, _, _ = bundled_collector(1)
    rollouts = made.collect([Batch(TASK, TASK.problems("train", 4, 1), 1, 64, decisive=True)], group=4)[0]
    assert rollouts.decisive is not None
    weigher = BatchWeigher(rollouts, made.policy.head[0], number=0)
    weights = weigher.weights(study_method("oracle-wide").rule)
    sided = rollouts.mask & (rollouts.advantages != 0)[:, None]
    count, known = int(rollouts.mask.sum()), int((rollouts.decisive & sided).sum())
    total = 1.5 * known + 0.5 * (count - known)
    torch.testing.assert_close(
        weights[rollouts.decisive & sided], torch.full((known,), 1.5 * count / total), atol=rounding(), rtol=rounding()
    )
    assert weights[rollouts.mask].mean().item() == pytest.approx(1.0, abs=rounding(count))
    only = weigher.weights(study_method("oracle-only").rule)
    assert (only > 0).sum() == known


def test_judging_in_processes_is_the_same() -> None:
    made, _, tokenizer = bundled_collector(2)
    problems = TASK.problems("train", 2, 5)
    batches = [Batch(TASK, problems, seed, 64, decisive=True) for seed in (1, 2)]
    alone = made.collect(batches, group=3)
    with Judge(tokenizer, workers=2) as judge:
        made.judge = judge
        beside = made.collect(batches, group=3)
    for first, second in zip(alone, beside, strict=True):
        assert first.texts == second.texts
        assert torch.equal(first.correct, second.correct)
        assert first.decisive is not None
        assert second.decisive is not None
        assert torch.equal(first.decisive, second.decisive)


class SlowToRead:
    """Whoever reads it from a pickle waits."""

    SECONDS = 3.0

    def __reduce__(self) -> Any:
        return time.sleep, (self.SECONDS,)


def test_processes_that_judge_start_at_once_and_hold_nobody_up() -> None:
    # More than a pipe holds, behind something that takes time to read.
    tokenizer = SimpleNamespace(all_special_ids=(), first=SlowToRead(), then="x" * (1 << 20))
    began = time.monotonic()
    with Judge(tokenizer, workers=3) as judge:
        assert judge._pool is not None
        assert len(judge._pool._processes) == 3
        assert time.monotonic() - began < SlowToRead.SECONDS


def test_processes_are_not_sent_the_problems_that_nobody_asked() -> None:
    problems = [Problem(f"p/{number}", f"What is {number}?", str(number), "math") for number in range(20)]
    task = ProblemSet.split("p", problems, shots=2)
    asked = Asked(task, task.train[:2], 1, [[1], [2]])
    sent = _light(asked)
    assert isinstance(sent.task, ProblemSet)
    assert (sent.task.train, sent.task.heldout) == ((), ())
    answers = [str(problem.answer) for problem in asked.problems]
    assert [verdict.score for verdict in sent.task.grade_batch(asked.problems, answers)] == [1.0, 1.0]


# ---------------------------------------------------------------- protocols


TINY = {
    "question": "does it run",
    "tasks": ["phrased-sums"],
    "arms": {"dapo": 2, "delta": 1},
    "training": {"steps": 2, "prompts": 2, "group": 2, "updates": 2},
    "heldout": {"problems": 2, "samples": 1},
}


def write(folder: Path, **changes: Any) -> Path:
    """A protocol's file, but for what is changed; without the keys that are None."""
    place = folder / "tiny.yaml"
    written = {key: value for key, value in (TINY | changes).items() if value is not None}
    place.write_text(yaml.safe_dump(written, sort_keys=False))
    return place


def protocol_of(folder: Path, **changes: Any) -> Protocol:
    (protocol,) = read_protocols(write(folder, **changes))
    return protocol


def primary_on(task: str | list[str], end_point: Any = "held_out") -> dict[str, Any]:
    return {"arm": "delta", "task": task, "end_point": end_point}


def test_runs_come_seed_by_seed(tmp_path: Path) -> None:
    protocol = protocol_of(tmp_path)
    assert [(run.arm, run.seed) for run in protocol.runs()] == [("dapo", 0), ("delta", 0), ("dapo", 1)]
    protocol = protocol_of(tmp_path, tasks=["phrased-sums", "late-error"], arms={"dapo": 3}, seeds_in_turn=2)
    found = [(run.task[0], run.seed) for run in protocol.runs()]
    assert found == [("p", 0), ("p", 1), ("l", 0), ("l", 1), ("p", 2), ("l", 2)]


def test_variants_change_what_they_say(tmp_path: Path) -> None:
    variants = {"a": {}, "b": {"reward_noise": 0.1, "training": {"learning_rate": 0.001}}}
    plain, noisy = read_protocols(write(tmp_path, variants=variants))
    assert (plain.name, noisy.name) == ("tiny/a", "tiny/b")
    assert (noisy.reward_noise, noisy.training.learning_rate, noisy.training.group) == (0.1, 0.001, 2)
    assert plain.training.learning_rate == 5e-4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("arms: {dapo: 2, detla: 1}", "delta"),
        ("arms: {delta: 1}", "baseline 'dapo'"),
        ("arms: {dapo: 0}", "number of seeds"),
        ("trainig: {}", "no setting trainig"),
        ("training: {lr: 1}", "no setting lr"),
        ("training: {steps: 3, updates: 2}", "multiple of updates"),
        ("primary: {arm: grpo, task: phrased-sums}", "primary"),
        ("primary: {arm: delta, task: phrased-sums, end_point: speed}", "choose held_out, over_training"),
        ("primary: {arm: delta, task: phrased-sums, end_point: {batches_to: 50}}", "an accuracy above 0"),
        ("primary: {arm: delta, task: phrased-sums, end_point: {to: 0.5}}", "no setting to"),
        ("primary: {arm: delta, task: [phrased-sums, late-error]}", "primary"),
        ("tasks: [no-such-task]", "no-such-task"),
        ("tasks: phrased-sums", "tasks: give a list"),
        ("arms: [dapo, delta]", "number of seeds each"),
        ("training: {steps: 1e2}", "steps: give a whole number, not 100.0"),
        ("training: {prompts: four}", "prompts: give a whole number, not 'four'"),
        ("question: null", "add `question:`, one line that the study answers"),
        ("tasks: null", "add `tasks:`, as in"),
        ("primary: {arm: delta}", "primary: add `task:`"),
        ("heldout: {also: [{samples: 2}]}", "also: add `temperature:`"),
        ("variants: {a: 3}", r"variants\.a: give key"),
        ("arms: {dapo: 2, fast: {seeds: 2, method: detla}}", "delta"),
        ("arms: {dapo: 2, fast: {seeds: 2, method: dapo, learning_rate: -1.0}}", "learning_rate=-1"),
        ("arms: {dapo: 2, fast: {seeds: 2, method: dapo, learning_rate: fast}}", "give a number"),
        ("arms: {dapo: 2, fast: {seeds: 2, method: dapo, entropy: 1.0}}", "no setting entropy"),
        ("arms: {dapo: 2, fast: {method: dapo}}", "number of seeds"),
        ("heldout: {also: [{temperature: -0.5}]}", r"temperature=-0\.5: give 0"),
        ("heldout: {also: [{temperature: 0, samples: 2}]}", "1 where decoding is greedy"),
        ("heldout: {also: [{temperature: 0}, {temperature: 0}]}", "comes twice"),
        ("heldout: {also: [{temperature: 0, after: [2]}]}", "after batch 2; there are 1"),
        ("primary: {arm: delta, task: phrased-sums, end_point: {temperature: 0}}", "scores at none"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_protocols(write(tmp_path, **yaml.safe_load(change)))


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path)
    place.write_text(place.read_text().replace("  steps: 2\n", "  steps: 2\n  steps: 4\n"))
    with pytest.raises(ValueError, match=r"tiny\.yaml: steps is given twice \(lines 8 and 9\)"):
        read_protocols(place)


def test_only_keys_that_can_be_written_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no setting arm_settings; there are name, question") as raised:
        read_protocols(write(tmp_path, arm_settings={}))
    assert "arm_settings" not in str(raised.value).partition("; there are ")[2]


def test_numbers_may_be_written_without_a_point(tmp_path: Path) -> None:
    place = write(tmp_path)
    place.write_text(
        place.read_text().replace("arms:", "reward_noise: 1e-1\narms:\n  grpo: {seeds: 1, learning_rate: 2E-5}", 1)
    )
    (protocol,) = read_protocols(place)
    assert (protocol.reward_noise, protocol.settings("grpo").learning_rate) == (0.1, 2e-5)


def test_a_rule_is_sought_beside_its_protocol(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    rules = (Path(__file__).parents[2] / "tests" / "own_rule" / "my_rules.py").read_text()
    (tmp_path / "mine.py").write_text(rules)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "there.py").write_text(rules)
    monkeypatch.chdir(elsewhere)
    arms = {"dapo": 1, "mine.py:FirstHalf": 1, "own": {"seeds": 1, "method": "there.py:FirstHalf"}}
    protocol = protocol_of(tmp_path, arms=arms)
    methods = [protocol.method(arm) for arm in protocol.arms]
    assert methods == ["dapo", f"{tmp_path}/mine.py:FirstHalf", "there.py:FirstHalf"]
    study = Study(protocol, tmp_path / "out")
    study.write_protocol(Machine())
    kept = json.loads((tmp_path / "out" / "protocol.json").read_text())
    assert kept["contents"].keys() == {"mine.py:FirstHalf", "there.py:FirstHalf"}
    assert "folder" not in kept["protocol"]
    # Without the files the kept outcomes still give their table; runs are refused.
    study._keep([outcome(arm, 0, 0.4, 0.4) for arm in arms])
    (tmp_path / "mine.py").unlink()
    command = ["study", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "out")]
    assert main([*command, "--table"]) == 0
    assert "mine.py:FirstHalf" in capsys.readouterr().out
    (tmp_path / "out" / "runs.jsonl").unlink()
    assert main(command) == 2
    assert "mine.py: there is no such file" in capsys.readouterr().err


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path, capsys: Any) -> None:
    place, folder = write(tmp_path), tmp_path / "out"
    assert main(["study", str(place), "--output", str(folder), "--runs-at-once", "1"]) == 0
    lines = (folder / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 3
    # A study that was stopped after its first run finds the other two again, equal to the last digit that is kept.
    (folder / "runs.jsonl").write_text(lines[0] + "\n")
    capsys.readouterr()
    assert main(["study", str(place), "--output", str(folder), "--runs-at-once", "2"]) == 0
    assert "3 runs, 2 to go" in capsys.readouterr().out
    again = (folder / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["curve"] for line in again] == [json.loads(line)["curve"] for line in lines]
    write(tmp_path, arms={"dapo": 3, "delta": 1})
    for given, told in (
        (["--dtype", "bfloat16"], "holds runs in float32"),
        (["--export", "detla"], "detla is not among the arms dapo, delta"),
        (["--runs-at-once", "0"], "--runs-at-once 0: give at least 1"),
    ):
        assert main(["study", str(place), "--output", str(folder), *given]) == 2
        assert told in capsys.readouterr().err
    assert (folder / "runs.jsonl").read_text().splitlines() == again


def test_a_study_with_a_name_of_its_own_has_its_variants_in_its_folder(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    place = write(tmp_path, name="other", variants={"a": {}, "b": {"reward_noise": 0.1}})
    for variant, score in (("a", 0.4), ("b", 0.2)):
        for folder in (tmp_path / "runs" / "other" / variant, tmp_path / "out" / variant):
            folder.mkdir(parents=True)
            (folder / "runs.jsonl").write_text(json.dumps(outcome("dapo", 0, score, 0.0).as_dict()) + "\n")
    for given in ([], ["--output", "out"]):
        assert main(["study", str(place), "--table", *given]) == 0
        told = capsys.readouterr().out
        assert "40.0" in told
        assert "20.0" in told


def test_exported_weights_of_two_settings_of_a_task_stand_apart(tmp_path: Path) -> None:
    tasks = ["long-filler?filler=1", "long-filler?filler=2"]
    training = {"steps": 2, "prompts": 8, "group": 4, "updates": 2}
    protocol = protocol_of(tmp_path, tasks=tasks, arms={"dapo": 1}, training=training)
    Study(protocol, tmp_path / "out").go(Machine(), lambda _: None, export=["dapo"])
    folders = sorted(place.name for place in (tmp_path / "out" / "models").iterdir())
    assert folders == [f"dapo-long-filler%3Ffiller%3D{number}-seed0" for number in (1, 2)]
    first, second = (load_policy(str(tmp_path / "out" / "models" / name))[0] for name in folders)
    assert not torch.equal(first.model.norm.weight, second.model.norm.weight)


# ---------------------------------------------------------------- the table


def outcome(arm: str, seed: int, after: float, curve: float, task: str = "phrased-sums") -> Outcome:
    return Outcome(Run(task, arm, seed), 0.3, after, [curve, curve], [1.0], [50.0], [0.9], [0.1], [0.2])


def test_a_task_that_no_run_ever_solved_says_why() -> None:
    runs = [replace(outcome(arm, seed, 0.0, 0.0), before=0.0) for arm in ("dapo", "delta") for seed in (0, 1)]
    protocol = Protocol("p", "q", ("phrased-sums",), {"dapo": 2, "delta": 2})
    (said,) = sentences(study_table(protocol, runs))
    assert said.startswith("phrased-sums: not one response of any run was right")
    assert "responses are cut before the answer (max_tokens)" in said
    runs[0] = replace(runs[0], curve=[0.0, 0.01])
    assert not any("not one response" in text for text in sentences(study_table(protocol, runs)))


def test_a_table_by_hand(tmp_path: Path) -> None:
    arms = {"dapo": 6, "delta": 6, "grpo": 6, "sapo": 5}
    protocol = protocol_of(tmp_path, arms=arms, primary=primary_on("phrased-sums"))
    found = []
    for seed in range(6):
        found.append(outcome("dapo", seed, 0.50 + 0.01 * seed, 0.4))
        found.append(outcome("delta", seed, 0.60 + 0.01 * seed + 0.001 * (seed - 2.5), 0.5 + 0.001 * seed))
        found.append(outcome("grpo", seed, 0.50 + 0.01 * seed + (0.02 if seed % 2 else -0.02), 0.4 + 0.003 * seed))
        if seed < 5:
            found.append(outcome("sapo", seed, 0.40 + 0.01 * seed + 0.001 * (seed - 2), 0.3 + 0.002 * seed))
    table = study_table(protocol, found)
    dapo, delta, grpo, sapo = table.tasks[0].columns[0].rows
    assert (dapo.mean, dapo.pairs) == (pytest.approx(0.525), 0)
    assert delta.difference is not None
    assert delta.difference.mean == pytest.approx(0.1)
    # Six pairs, all of one sign: 2 of 64 flips are as extreme.
    assert delta.p_paired == pytest.approx(2 / 64)
    assert delta.p_holm is None  # the primary comparison stands alone
    assert sapo.pairs == 5
    assert sapo.p_paired == pytest.approx(2 / 32)
    assert sapo.p_holm == pytest.approx(4 / 32)  # the smaller of two
    assert grpo.p_holm == pytest.approx(1.0)
    assert "+10.0 points" in sentences(table)[0]
    assert "| sapo | 5 | 42.0 ± 1.7 | -10.0" in markdown(table)


def test_the_end_point_is_what_the_primary_comparison_is_on(tmp_path: Path) -> None:
    found = [
        Outcome(Run("phrased-sums", arm, seed), 0.3, after, curve, [1.0], [50.0], [0.9], [0.1], [0.2])
        for arm, after, curve in (
            ("dapo", 0.6, [0.0, 0.0, 0.0, 0.0, 0.4, 0.8, 0.8, 0.8]),
            ("delta", 0.5, [0.0, 0.0, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8]),
            ("grpo", 0.6, [0.0] * 8),
        )
        for seed in range(3)
    ]

    def primary(end_point: Any) -> tuple[StudyTable, SeedComparison]:
        arms, declared = dict.fromkeys(("dapo", "delta", "grpo"), 3), primary_on("phrased-sums", end_point)
        table = study_table(protocol_of(tmp_path, arms=arms, primary=declared), found)
        assert table.primary is not None
        return table, table.primary

    # Held-out 0.5 - 0.6; mean of the curve (0.4 + 5 x 0.8) / 8 = 0.55 less (0.4 + 3 x 0.8) / 8 = 0.35.
    assert primary("held_out")[1].difference.mean == pytest.approx(-0.1)  # type: ignore[union-attr]
    table, over_training = primary("over_training")
    assert over_training.difference.mean == pytest.approx(0.2)  # type: ignore[union-attr]
    assert over_training.p_holm is None
    assert table.tasks[0].columns[0].rows[1].p_holm is not None  # held-out is now one of the others
    assert "accuracy over training, 3 pairs: +20.0 points" in sentences(table)[0]
    assert "| +20.0 | 0.250 | primary |" in markdown(table)
    assert table.as_dict()["primary"]["end_point"] == "accuracy over training"
    # Means over five batches reach 0.5 in batch 4 (0.4 + 3 x 0.8 over 5: 0.56) for delta, for dapo in batch 6 (0.4 + 3 x 0.8 over 5),
    # and never for grpo: one more than there are batches.
    table, batches = primary({"batches_to": 0.5})
    assert batches.difference.mean == pytest.approx(-2.0)  # type: ignore[union-attr]
    assert [row.mean for row in table.tasks[0].columns[2].rows] == [6.0, 4.0, 9.0]
    assert "rollout batches to 50 %, 3 pairs: -2.0 batches" in sentences(table)[0]


def test_scores_during_training_have_columns_of_their_own(tmp_path: Path) -> None:
    also = [{"temperature": 0, "after": [2, 4]}, {"temperature": 0.6, "samples": 5}]
    protocol = protocol_of(
        tmp_path,
        arms={"dapo": 3, "delta": 3},
        training=TINY["training"] | {"steps": 8},
        heldout={"also": also},
        primary=primary_on("phrased-sums", {"temperature": 0}),
    )

    def scored(arm: str, seed: int, gain: float) -> Outcome:
        greedy = [
            {"temperature": 0.0, "batch": 2, "accuracy": 0.2 + gain, "pass_at": {}},
            {"temperature": 0.0, "batch": 4, "accuracy": 0.6, "pass_at": {}},
        ]
        low = {"temperature": 0.6, "batch": 4, "accuracy": 0.5, "pass_at": {"2": 0.6, "4": 0.7 + gain}}
        return replace(outcome(arm, seed, 0.5, 0.4), heldout=[*greedy, low])

    found = [scored("dapo", seed, 0.0) for seed in range(3)]
    found += [scored("delta", seed, 0.1 + 0.01 * seed) for seed in range(3)]
    table = study_table(protocol, found)
    assert [column.measure.key for column in table.tasks[0].columns] == [
        "heldout", "speed", "greedy_over", "greedy_end", "t0.6_end", "t0.6_pass_4"
    ]  # fmt: skip
    means = [column.rows[1].difference.mean for column in table.tasks[0].columns]  # type: ignore[union-attr]
    assert means == pytest.approx([0, 0, 0.055, 0, 0, 0.11])
    assert table.primary is table.tasks[0].columns[2].rows[1]
    assert "held-out accuracy over training, greedy, 3 pairs: +5.5 points" in sentences(table)[0]
    assert Outcome.from_dict(json.loads(json.dumps(found[3].as_dict()))) == found[3]


def test_the_best_rate_of_each_method_by_hand(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Scores that are quadratics in the log of the rate, with peaks at 2, beyond the grid, and, of the penalised, at 1."""
    arms: dict[str, Any] = {}
    peaks = {("dapo", 0): 2.0, ("delta-scalar", 0): 9.0, ("dapo", 0.01): 1.0, ("dapo", 0.02): 1.0}
    entropies = {("dapo", 0): 0.4, ("delta-scalar", 0): 0.2, ("dapo", 0.01): 0.21, ("dapo", 0.02): 0.1}
    found = []
    for (method, penalty), peak in peaks.items():
        for rate in (0.5, 1.0, 4.0):
            name = f"{method}{penalty or ''}{rate:g}"
            own = {"seeds": 2, "method": method, "learning_rate": rate, "entropy_bonus": -penalty}
            arms[name] = own
            for seed in range(2):
                score = 0.5 - 0.05 * math.log(rate / peak) ** 2 + (0.01 if seed else -0.01)
                at = [{"temperature": 0.0, "batch": batch, "accuracy": score, "pass_at": {}} for batch in (1, 2)]
                entropy = [entropies[method, penalty] * (1 + seed)]
                found.append(replace(outcome(name, seed, 0.5, 0.4), heldout=at, entropy=entropy))
    training, heldout = ({"steps": 4, "prompts": 2, "group": 2}, {"also": [{"temperature": 0, "after": [1, 2]}]})
    protocol = protocol_of(tmp_path, arms=arms, baseline="dapo1", training=training, heldout=heldout)
    study = Study(protocol, tmp_path / "tune")
    study.write_protocol(Machine())
    study._keep(found)
    judge = tmp_path / "judge.yaml"
    judge.write_text("arms: {dapo: 3, delta-scalar: {seeds: 2}, less: {seeds: 2, entropy_bonus: -1}}")
    script = str(Path(__file__).parents[1] / "analysis" / "best_rates.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "tune"), "--fill", str(judge)])
    runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr()
    assert yaml.safe_load(said.out)["arms"] == {
        "dapo": {"seeds": 3, "learning_rate": 2.0},
        "delta-scalar": {"seeds": 2, "learning_rate": 4.0},
        "less": {"seeds": 2, "learning_rate": 1.0, "entropy_bonus": -0.01},
    }
    assert "delta-scalar: best at 4 (AN END OF THE GRID)" in said.err
    assert "dapo: best at 2;" in said.err
    # A run that diverged after its first score has half of it.
    study._keep([replace(one, diverged=1, heldout=one.heldout[:1]) for one in found if one.run.arm == "dapo1"])
    runpy.run_path(script, run_name="__main__")
    assert "dapo: best at 4" in capsys.readouterr().err


def test_an_unfinished_study_decides_nothing_and_names_what_ran(tmp_path: Path) -> None:
    """Half of a study named a task without a run, called pairs of two tasks seeds, and had intervals of two pairs."""
    tasks = ["phrased-sums", "late-error"]
    declared = primary_on(tasks, "over_training")
    protocol = protocol_of(tmp_path, tasks=tasks, arms={"dapo": 2, "delta": 2}, primary=declared)
    found = [
        outcome(arm, seed, 0.5, 0.4 + (arm == "delta") * (0.01 + 0.001 * seed), task)
        for task in tasks
        for arm in protocol.arms
        for seed in range(2)
    ]
    said = sentences(study_table(protocol, found[:4]))
    assert said[0].startswith("Unfinished: 4 of 8 runs are there. Decide nothing")
    assert said[1].startswith(
        "Primary comparison: delta against dapo on phrased-sums, accuracy over training, 2 pairs: +1.1"
    )
    assert "take 6 or more" in said[1]
    table = study_table(protocol, found)
    said = sentences(table)
    assert said[0].startswith("Primary comparison: delta against dapo on phrased-sums, late-error,")
    assert "4 pairs: +1.1 points, p = 0.125: so few pairs" in said[0]
    assert "| +1.1 | 0.500 | 1.000 |" in markdown(table)
    # What a retired arm planned cannot be made any more.
    retired = replace(protocol, arms={**protocol.arms, "gone": 2}, retired={"gone": "patched"})
    assert study_table(retired, found).missing == 0


def test_arms_differ_by_the_paired_test(tmp_path: Path) -> None:
    """An arm that was ahead on every seed, p = 0.03 by its pairs, was said not to differ by an unpaired test."""
    arms = {"dapo": 8, "delta": 8, "grpo": 5, "sapo": 2}
    # The seeds differ by 10 points, the arms by one: paired 2/256 (Holm: twice that), unpaired far from it. Of delta's gains, 0.65 to
    # 1.35 points, the interval is 2.365 x 0.245 / sqrt(8) = 0.2 to either side.
    found = [
        outcome(arm, seed, 0.3 + 0.1 * seed, 0.2 + 0.1 * seed + gain + spread * (seed - 3.5))
        for arm, gain, spread in (("dapo", 0.0, 0.0), ("delta", 0.01, 0.001), ("grpo", -0.1, 0.0))
        for seed in range(arms[arm])
    ]
    found += [replace(outcome("sapo", seed, 0.0, 0.1), after=None, diverged=1) for seed in range(2)]
    said = sentences(study_table(protocol_of(tmp_path, arms=arms), found))
    assert said[1] == (
        "phrased-sums, accuracy over training: arms that differ from dapo at the 5 % level (sign flips over pairs, Holm over "
        "2 comparisons): delta +1.0 (+0.8 to +1.2). Fewer than 6 pairs, which cannot show it: grpo."
    )
    few = [one for one in found if one.run.seed < 5]
    assert sentences(study_table(protocol_of(tmp_path, arms=arms), few))[2].endswith(
        "none; so few pairs cannot show any."
    )


def test_what_the_primary_leaves_to_compare(tmp_path: Path) -> None:
    """Beside a significant primary stood "arms that differ from dapo: none", of the very same arm."""
    found = [
        outcome(arm, seed, 0.5, 0.4 + gain + 0.001 * seed * (arm == "delta"))
        for arm, gain in (("dapo", 0.0), ("delta", 0.01), ("grpo", 0.0))
        for seed in range(8)
    ]
    declared = primary_on("phrased-sums", "over_training")
    two = protocol_of(tmp_path, arms={"dapo": 8, "delta": 8}, primary=declared)
    said = sentences(study_table(two, found[:16]))
    assert "more than seed-to-seed variation" in said[0]
    assert not any("accuracy over training: " in one for one in said[1:])
    three = protocol_of(tmp_path, arms={"dapo": 8, "delta": 8, "grpo": 8}, primary=declared)
    said = sentences(study_table(three, found))
    assert said[2].startswith("phrased-sums, accuracy over training: other arms that differ from dapo")
    assert said[1].startswith("phrased-sums, held-out accuracy: arms that differ")


def test_weights_without_effect_are_told_first(tmp_path: Path) -> None:
    """A rule that trained nothing led the table with a standard deviation of 0, and nothing was said."""
    protocol = protocol_of(tmp_path, arms={"dapo": 2, "delta": 2, "grpo": 2})
    kept = {"delta": (0.0, 0.0), "grpo": (5.0, 0.5)}
    found = [outcome(arm, seed, 0.5, 0.4) for arm in protocol.arms for seed in range(2)]
    found = [
        replace(
            one,
            diagnostics={"batch": [0], "weight_signal_mean": [pair[0]], "weight_signal_std": [pair[1]]}
            if (pair := kept.get(one.run.arm))
            else {},
        )
        for one in found
    ]
    table = study_table(protocol, found)
    assert sentences(table)[0] == "delta: every weight is 0: nothing is learnt."
    assert sentences(table)[1].startswith("grpo: the weights are far from one; their mean is about 5,")
    assert markdown(table).startswith("delta: every weight is 0: nothing is learnt.\n\ngrpo: ")


def test_the_start_is_named_with_its_temperature(tmp_path: Path, capsys: Any) -> None:
    """A table of greedy scores had the score at T = 1 before training in its title."""
    training = TINY["training"] | {"temperature": 0.9}
    place = write(tmp_path, training=training)
    Study(read_protocols(place)[0], tmp_path / "out")._keep([outcome("dapo", 0, 0.4, 0.4)])
    assert main(["study", str(place), "--output", str(tmp_path / "out"), "--table"]) == 0
    assert "held-out before training, at T = 0.9: 30.0 %" in " ".join(capsys.readouterr().out.split())
    assert "**phrased-sums** (held-out before training, at T = 0.9: 30.0 %)" in (tmp_path / "out/table.md").read_text()


def test_one_test_over_several_tasks(tmp_path: Path) -> None:
    tasks = ["phrased-sums", "late-error"]
    declared = primary_on(tasks, "over_training")
    protocol = protocol_of(tmp_path, tasks=tasks, arms={"dapo": 3, "delta": 3}, primary=declared)
    found = [
        outcome(arm, seed, 0.5, 0.4 + (arm == "delta") * (0.01 + 0.001 * seed), task)
        for task in protocol.tasks
        for arm in protocol.arms
        for seed in range(3)
    ]
    table = study_table(protocol, found)
    assert table.primary is not None
    # Six pairs, all of one sign: 2 of 64 flips are as extreme. Each task alone has three, and stays in Holm's family.
    assert table.primary.pairs == 6
    assert table.primary.p_paired == pytest.approx(2 / 64)
    assert [task.columns[1].rows[1].p_holm for task in table.tasks] == pytest.approx([0.5, 0.5])
    assert "on phrased-sums, late-error, accuracy over training, 6 pairs: +1.1 points" in sentences(table)[0]


def test_runs_that_diverged_are_counted_and_left_out() -> None:
    protocol = Protocol("p", "q", ("phrased-sums",), {"dapo": 3, "delta": 3})
    found = [outcome(arm, seed, 0.5, 0.4) for arm in protocol.arms for seed in range(2)]
    found += [replace(outcome(arm, 2, 0.0, 0.1), after=None, diverged=1) for arm in protocol.arms]
    table = study_table(protocol, found)
    assert [row.seeds for row in table.tasks[0].columns[0].rows] == [2, 2]
    assert table.as_dict()["tasks"][0]["diverged"] == {"dapo": [2], "delta": [2]}
    assert "phrased-sums: left out, as they diverged: delta, seeds 2." in sentences(table)
    assert "delta (2 pairs)" in curves_figure(protocol, found)


def test_retired_arms_are_read_and_not_run(tmp_path: Path) -> None:
    retired = {"gone": "an arm that was patched in"}
    protocol = protocol_of(tmp_path, arms={"dapo": 2, "gone": 1}, retired=retired)
    study = Study(protocol, tmp_path)
    assert [run.arm for run in study.missing()] == ["dapo", "dapo"]
    study._keep([outcome(arm, 0, 0.4, 0.4) for arm in ("dapo", "gone")])
    assert [row.method for row in study_table(protocol, study.outcomes()).tasks[0].columns[0].rows] == ["dapo", "gone"]


def test_a_file_that_is_not_there_is_missed_when_runs_are_made(tmp_path: Path, capsys: Any) -> None:
    place = write(tmp_path, tasks=["nowhere/problems.jsonl"])
    (protocol,) = read_protocols(place)
    assert protocol.tasks == ("nowhere/problems.jsonl",)
    assert main(["study", str(place), "--output", str(tmp_path / "out")]) == 2
    assert "nowhere/problems.jsonl: there is no such file" in capsys.readouterr().err


def test_curves_that_never_leave_zero_can_be_drawn() -> None:
    protocol = Protocol("p", "q", ("phrased-sums",), {"dapo": 2})
    figure = curves_figure(protocol, [outcome("dapo", seed, 0.0, 0.0) for seed in range(2)])
    assert "dapo (2 seeds)" in figure


def test_a_run_is_kept_once(tmp_path: Path) -> None:
    study = Study(Protocol("p", "q", ("phrased-sums",), {"dapo": 2}), tmp_path)
    study._keep([outcome("dapo", 0, 0.4, 0.4), outcome("dapo", 1, 0.5, 0.4)])
    study._keep([outcome("dapo", 0, 0.6, 0.4)])
    assert {found.run.seed: found.after for found in study.outcomes()} == {0: 0.6, 1: 0.5}
    assert len(study.outcomes()) == 2


def test_a_folder_of_another_protocol_is_refused(tmp_path: Path) -> None:
    Study(protocol_of(tmp_path), tmp_path / "out").write_protocol(Machine())
    with pytest.raises(ValueError, match="another heldout"):
        Study(protocol_of(tmp_path, heldout={"problems": 2, "samples": 2}), tmp_path / "out")
    # Another arm may come, but delta is another now.
    arms = {"dapo": 2, "delta": {"seeds": 1, "learning_rate": 0.0001}, "grpo": 1}
    with pytest.raises(ValueError, match=r"another arms\.delta:"):
        Study(protocol_of(tmp_path, arms=arms), tmp_path / "out")


def test_runs_of_a_rule_that_has_changed_since_are_not_added_to(tmp_path: Path) -> None:
    rule = tmp_path / "mine.py"
    rule.write_text((Path(__file__).parents[2] / "tests" / "own_rule" / "my_rules.py").read_text())
    arms = {"dapo": 2, f"{rule}:FirstHalf": 2}
    protocol = Protocol("p", "q", ("phrased-sums",), arms, baseline="dapo")
    Study(protocol, tmp_path / "out").write_protocol(Machine())
    Study(protocol, tmp_path / "out").write_protocol(Machine())
    rule.write_text(rule.read_text() + "\n")
    for asked in (
        lambda study: study.write_protocol(Machine()),
        Study.checked_contents,
    ):  # the second: before "0 to go"
        with pytest.raises(ValueError, match="FirstHalf: its file has changed since the runs of"):
            asked(Study(protocol, tmp_path / "out"))


def test_a_study_leaves_a_folder_of_something_else_alone(tmp_path: Path) -> None:
    """Its default folder may be that of a training."""
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="holds other files than a study's: give another --output"):
        Study(Protocol("p", "q", ("phrased-sums",), {"dapo": 2}), tmp_path).checked_contents()
