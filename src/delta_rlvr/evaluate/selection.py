"""Selection of a checkpoint by a rule that is fixed in advance. The paper's rule is the best AIME25 avg@8."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.metrics import average_at_k, pass_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.files import now, write_json
from delta_rlvr.hints import near_path, several_runs
from delta_rlvr.runs.layout import EVALUATIONS
from delta_rlvr.score_units import score_unit
from delta_rlvr.tasks.sources.rows import label_of
from delta_rlvr.words import command_line

PAPER_RULE = "aime25:avg@8"
SELECTION = "selection.json"

_RULE = re.compile(r"(?P<benchmark>.+):(?P<metric>avg|pass)@(?P<k>\d+)")
VERL = "verl"
"""The folder below the run folder in which the recipes put verl's checkpoints."""
_OF_VERL = "global_step_"
_CHECKPOINT = re.compile(rf"(checkpoint-|{_OF_VERL})(\d+)")


@dataclass(frozen=True)
class SelectionRule:
    """The score by which checkpoints are compared."""

    benchmark: str
    metric: str
    """"avg" or "pass"."""
    k: int
    """Samples per question: the first k if a result has more."""

    @classmethod
    def parse(cls, text: str) -> SelectionRule:
        """Read a rule from "benchmark:metric@k", as in aime25:avg@8."""
        match = _RULE.fullmatch(text)
        if match is None or int(match["k"]) < 1:
            raise EvaluationError(f"rule {text!r} is not of the form BENCHMARK:avg@K or BENCHMARK:pass@K")
        return cls(match["benchmark"], match["metric"], int(match["k"]))

    def __str__(self) -> str:
        return f"{self.benchmark}:{self.metric}@{self.k}"

    def score(self, result: EvaluationResult) -> float:
        """Return the score of one result, which must have k samples of every question."""
        # The result of a file has a shorter name than the rule, that of a task may have further settings.
        asked_for = self.benchmark.removeprefix("task:")
        there = result.benchmarks()
        names = [asked_for, label_of(Path(asked_for.partition("?")[0]))]
        names += [one for one in there if one.startswith(asked_for)]
        name = next((one for one in names if one in there), asked_for)
        scores = result.scores(name)
        asked = result.document["benchmarks"][name]["questions_asked"]
        if len(scores) != asked or any(len(values) < self.k for values in scores.values()):
            raise EvaluationError(f"a result does not have {self.k} samples of every question of {name}")
        chosen = {"avg": average_at_k, "pass": pass_at_k}[self.metric]
        return average_at_k([chosen(values[: self.k], self.k) for values in scores.values()])


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a run whose weights can be loaded."""

    name: str
    """The name of its folder: checkpoint-80 (TRL), global_step_20 (verl)."""
    model: Path
    """The folder with the weights."""


def checkpoints(run: Path, say: Callable[[str], None] = lambda text: None) -> dict[int, Checkpoint]:
    """Return the checkpoints of a run by step: TRL's, or verl's from the folder `verl`. One that cannot be loaded (incomplete after
    a crash, or unmerged shards) is reported and left out."""
    if not run.is_dir():
        raise EvaluationError(f"{run} is not a folder: give a run folder{near_path(run)}")
    by_step, unusable = {}, []
    for path in (*run.iterdir(), *(run / VERL).glob("*")):
        match = _CHECKPOINT.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        model = path / "actor" / "huggingface" if match[1] == _OF_VERL else path
        if reason := _unusable(model):
            unusable.append((int(match[2]), f"{path} {reason}, and is left out"))
        else:
            by_step[int(match[2])] = Checkpoint(path.name, model)
    for step, sentence in unusable:
        # Beside verl's checkpoints the run folder has folders of ours for the same steps.
        if step not in by_step:
            say(sentence)
    if not by_step:
        raise EvaluationError(
            several_runs(run)
            or f"{run} has no checkpoint-N or {VERL}/global_step_N folder with complete weights: there is nothing to select from"
        )
    return dict(sorted(by_step.items()))


def _unusable(model: Path) -> str | None:
    """Return why the weights in a folder cannot be loaded; None if they can."""
    weights = [*model.glob("*.safetensors"), *model.glob("*model*.bin")]  # TRL saves training_args.bin, too
    if not weights:
        shards = model.parent
        if model.name == "huggingface" and any(shards.glob("model_world_size_*.pt")):
            merge = command_line(
                *("python", "-m", "verl.model_merger", "merge", "--backend", "fsdp"),
                *("--local_dir", shards, "--target_dir", model),
            )
            return f"has only verl's shards, which cannot be loaded (`{merge}` merges them)"
        return "has no weights"
    for index in model.glob("*.index.json"):
        try:
            named = set(json.loads(index.read_bytes())["weight_map"].values())
        except ValueError:
            return f"is incomplete: {index.name} cannot be read"
        if missing := sorted(name for name in named if not (model / name).is_file()):
            return f"is incomplete: {missing[0]} is missing"
    for path in weights:
        if path.suffix == ".safetensors" and not _whole(path):
            return f"is incomplete: {path.name} is cut off"
    return None


def _whole(path: Path) -> bool:
    """Return whether a file of weights is as long as its header says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            return True
    except (SafetensorError, OSError):
        return False


def selection_result_path(run: Path, rule: SelectionRule, checkpoint: str) -> Path:
    """Return the path of the result by which a checkpoint is judged."""
    plain = re.sub(r"[^A-Za-z0-9@.-]+", "_", str(rule))
    return run / EVALUATIONS / f"select_{plain}_{checkpoint}.json"


def select_checkpoint(
    run: Path,
    rule: SelectionRule,
    evaluate: Callable[[Checkpoint, Path], EvaluationResult],
    *,
    check: Callable[[Checkpoint], object] = lambda checkpoint: None,
    say: Callable[[str], None] = lambda text: None,
    differences: Callable[[EvaluationResult], list[str]] = lambda result: [],
) -> dict[str, Any]:
    """Evaluate every checkpoint without a complete result, select one, and write `selection.json` to the run folder.

    `evaluate(checkpoint, path)` makes a result and stores it at `path`; before the first, `check` refuses a checkpoint that cannot be
    sampled. Complete results with `differences` are refused.
    The best score wins, and the earliest step among equal ones.
    An earlier selection by another rule is kept in the file and reported: a rule chosen after the scores are known biases the result.
    """
    scores: dict[int, float] = {}
    own_reward = False
    earlier = _earlier(run / SELECTION)
    by_step = checkpoints(run, say)
    paths = {step: selection_result_path(run, rule, checkpoint.name) for step, checkpoint in by_step.items()}
    stored = {step: EvaluationResult.load(path) for step, path in paths.items() if path.is_file()}
    for step, result in stored.items():
        if result.complete and (changed := differences(result)):
            raise EvaluationError(
                f"{paths[step]} was made with other settings: {'; '.join(changed)}. Give the same settings, or move that file and the "
                f"others of {rule} to another folder"
            )
    missing = [step for step in by_step if step not in stored or not stored[step].complete]
    for step in missing:
        check(by_step[step])
    for step, path in paths.items():
        result = evaluate(by_step[step], path) if step in missing else stored[step]
        if not result.complete:
            raise EvaluationError(f"{path} is incomplete: run the same command again before choosing")
        scores[step], own_reward = rule.score(result), result.own_reward
    best = max(scores, key=lambda step: (scores[step], -step))
    choice = {
        "rule": str(rule),
        "step": best,
        "checkpoint": by_step[best].name,
        "model": str(by_step[best].model.relative_to(run)),
        "score": scores[best],
        "scores": {str(step): score for step, score in scores.items()},
        "ties": "the earliest step",
        "time": now(),
    }
    others = [old for old in earlier if old.get("rule") != str(rule)]
    for old in others:
        say(
            f"an earlier selection used {old.get('rule')} ({old.get('checkpoint')}): report the rule that was fixed in advance, not "
            "the one with the better score"
        )
    write_json(run / SELECTION, {"schema": 1, "choices": [*others, choice]})
    shown = score_unit(own_reward).finer.plain
    say(
        f"{by_step[best].name} by {rule}: {shown(scores[best])}. As the best of several, this score is biased upward: evaluate the "
        "checkpoint on other benchmarks."
    )
    return choice


def _earlier(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        return [dict(choice) for choice in json.loads(path.read_bytes())["choices"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path} cannot be read ({error}): move it away") from None
