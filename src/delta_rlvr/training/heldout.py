"""The held-out score of a run: before, during and after training, and a test of the change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from rich.table import Table
from transformers import IntervalStrategy

from delta_rlvr.adapters.trl import DeltaTrainer
from delta_rlvr.evaluate import EvaluationResult, evaluate_policy
from delta_rlvr.evaluate.bootstrap import interval_text
from delta_rlvr.evaluate.compare import paired_change, unlike
from delta_rlvr.evaluate.progress import ConsoleProgress, Progress
from delta_rlvr.evaluate.records import Grade
from delta_rlvr.evaluate.seeds import few_problems
from delta_rlvr.evaluate.settings import HELDOUT
from delta_rlvr.files import is_number
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import EVALUATIONS
from delta_rlvr.score_units import score_unit
from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.contents import content_digest
from delta_rlvr.tasks.custom_reward import custom_function, judged_by_function
from delta_rlvr.tasks.phrased_sums import PhrasedSums
from delta_rlvr.tasks.problem_set import ProblemSet
from delta_rlvr.tasks.task import HELDOUT_SAMPLING
from delta_rlvr.terminal import add_columns
from delta_rlvr.training.options import OF_EVAL_EVERY, TrainOptions
from delta_rlvr.training.progress import Teller
from delta_rlvr.words import counted

BEST_BY = OF_EVAL_EVERY["metric_for_best_model"]
"""The name in the metrics of the held-out score during training."""
GREEDY = "_greedy"
"""The suffix of files with greedy scores."""


def heldout_problems(options: TrainOptions, task: Task) -> list[Problem]:
    """Return the problems that a run is scored on: the requested number, or all there are."""
    count = options.eval_problems
    if isinstance(task, ProblemSet):
        count = min(count, len(task.heldout))
    problems = task.problems("heldout", count, 0) if count else []
    return judged_by_function(problems) if custom_function(options.reward) else problems


class HeldoutScore:
    """Scores the policy in memory on held-out problems."""

    def __init__(self, options: TrainOptions, task: Task, trainer: DeltaTrainer, teller: Teller, grade: Grade):
        self.options, self.trainer, self.teller, self.grade = options, trainer, teller, grade
        config = trainer.args
        self.folder = Path(str(config.output_dir)) / EVALUATIONS
        self.own_reward = custom_function(options.reward)
        self.unit = score_unit(self.own_reward)
        built_in = isinstance(task, PhrasedSums)
        temperature = HELDOUT_SAMPLING["temperature"] if built_in else config.temperature
        if options.eval_temperature is not None:
            temperature = options.eval_temperature
        self.drawn: dict[str, Any] = {
            **HELDOUT_SAMPLING,
            "temperature": temperature,
            "samples": options.eval_samples if temperature else 1,
            "max_tokens": config.max_completion_length or task.max_tokens,
        }
        """How responses are sampled."""
        self.ways = {"": self.drawn}
        """The sampling of every score that is taken, by the suffix of its file."""
        if options.eval_greedy and temperature:
            self.ways[GREEDY] = {**self.drawn, "temperature": 0.0, "samples": 1}
        self.further: dict[str, dict[str, Any]] = {}
        """The further scores that `run.json` keeps, by moment ("before", "after")."""
        self.problems = heldout_problems(options, task)
        if options.eval_problems and not self.problems:
            teller.say("the task has no held-out problems, so there is no held-out score")
        if self.problems and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            teller.say("sharded weights cannot be scored in memory: run `delta-rlvr evaluate` on the checkpoints")
            self.problems = []
        if options.eval_every and self.problems:
            trainer.evaluate = self.during  # type: ignore[method-assign]
        elif options.eval_every:
            config.eval_strategy = IntervalStrategy.NO

    def during(self, *_: Any, **__: Any) -> dict[str, float]:
        """Replace `trainer.evaluate`: take the score at this step and report it, so that transformers finds the best checkpoint."""
        trainer, teller = self.trainer, self.teller
        state, model = trainer.state, trainer.accelerator.unwrap_model(trainer.model)
        model.eval()
        scores = [0.0]
        if trainer.accelerator.is_main_process:
            result = self._sample(model, self.drawn, f"at step {state.global_step}", Progress())
            scores = [result.summary()["accuracy"]]
            teller.say(f"step {state.global_step}: held-out {self.unit.score} {self.unit.shown(scores[0])}")
        metrics = {BEST_BY: float(broadcast_object_list(scores)[0])}
        trainer.log(dict(metrics))
        if state.best_metric is None or metrics[BEST_BY] > state.best_metric:
            trainer.control.should_save |= trainer.args.save_strategy != "no"
        trainer.callback_handler.on_evaluate(trainer.args, state, trainer.control, metrics)
        model.train()
        return metrics

    def _sample(self, model: Any, drawn: Mapping[str, Any], moment: str, progress: Progress) -> EvaluationResult:
        result = evaluate_policy(
            model,
            self.trainer.processing_class,
            self.problems,
            **drawn,
            seed=0,
            grade=self.grade,
            batch_size=128,
            progress=progress,
            label=f"{self.options.model} {moment}",
        )
        reward = self.options.reward
        result.document["benchmarks"][HELDOUT]["reward"] = [reward or "none", reward and content_digest(reward)]
        return result

    def score(self, when: str) -> EvaluationResult | None:
        """Sample, grade and store the result in the run folder, on the first rank while the others wait."""
        result = None
        if self.problems and self.trainer.accelerator.is_main_process:
            few = len(self.problems) < self.options.eval_problems
            all_of_them = " (all that the task has)" if few else ""
            asked = counted(len(self.problems), "problem")
            self.teller.say(f"held-out {self.unit.score} {when} training, {asked}{all_of_them}:")
            rough = few_problems(len(self.problems), self.options.eval_problems)
            if rough and when == "before":
                self.teller.say(rough)
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            model.eval()
            results = {}
            for way, drawn in self.ways.items():
                if way:
                    self.teller.say("the same problems, greedily:")
                progress = ConsoleProgress(self.teller.console, own_reward=self.own_reward is not None)
                results[way] = self._sample(model, drawn, f"{when} training", progress)
            result = self._keep(when, results)
        self.trainer.accelerator.wait_for_everyone()
        return result

    def _keep(self, when: str, results: Mapping[str, EvaluationResult]) -> EvaluationResult:
        for way, result in results.items():
            result.write(self.folder / f"heldout_{when}{way}.json")
        self.further[when] = {way.strip("_"): one.summary() for way, one in results.items() if way}
        return results[""]

    def _stored(self, when: str, folder: Path) -> dict[str, EvaluationResult] | None:
        """Return the scores stored in a folder of evaluations; None unless all are there, with this problem count and sampling."""
        results = {}
        for way, drawn in self.ways.items():
            path = folder / f"heldout_{when}{way}.json"
            if not path.exists():
                return None
            results[way] = EvaluationResult.load(path)
            settings = results[way].document["settings"]
            same = all(settings[key] == value for key, value in drawn.items())
            if results[way].summary()["problems"] != len(self.problems) or not same:
                return None
        return results

    def take_over(self, folder: Path) -> EvaluationResult | None:
        """Take over the score before training from the folder of a run with the same starting weights, if it fits `_stored`."""
        results = self._stored("before", folder / EVALUATIONS) if self.problems else None
        if results is None:
            return None
        if self.trainer.accelerator.is_main_process:
            self.teller.say(
                f"held-out {self.unit.score} before training: taken from {folder.name}, which started from the same weights"
            )
            self._keep("before", results)
        self.trainer.accelerator.wait_for_everyone()
        return results[""] if self.trainer.accelerator.is_main_process else None

    def load(self, when: str) -> EvaluationResult | None:
        """Return the score that an earlier start of this run stored."""
        path = self.folder / f"heldout_{when}.json"
        if not self.problems or not path.exists() or not self.trainer.accelerator.is_main_process:
            return None
        if results := self._stored(when, self.folder):
            return self._keep(when, results)
        return EvaluationResult.load(path)


def best_score(run: RunReader) -> dict[str, Any] | None:
    """Return the best score during training (the first of equal ones) and the checkpoint saved at that step."""
    scored = [line for line in run.metrics if is_number(line.get(BEST_BY))]
    if not scored:
        return None
    best = max(scored, key=lambda line: line[BEST_BY])
    name = f"checkpoint-{best['step']}"
    kept = name if (run.path / name).is_dir() else None
    return {"step": best["step"], "accuracy": best[BEST_BY], "checkpoint": kept}


def sampling_text(before: EvaluationResult | None, after: EvaluationResult) -> str:
    """Return how the responses of both scores were sampled, in words: once, or for each of them."""
    texts = [_sampling(result) for result in (before or after, after)]
    return texts[0] if texts[0] == texts[1] else f"before: {texts[0]}; after: {texts[1]}"


def apart_text(before: EvaluationResult | None, after: EvaluationResult | None) -> str:
    """Return why two scores cannot be compared, without the full stop; "" if they can."""
    names = unlike(before, after) if before and after else ""
    return f"the two scores differ in {names}, so they cannot be compared" if names else ""


def _sampling(result: EvaluationResult) -> str:
    settings, numbers = result.document["settings"], result.summary()
    return (
        f"{counted(numbers['problems'], 'problem')}, {counted(settings['samples'], 'sample')} each, "
        f"temperature {settings['temperature']:g}, top-p {settings['top_p']:g}, up to {settings['max_tokens']} tokens"
    )


def show_change(
    own_reward: str | None,
    before: EvaluationResult | None,
    after: EvaluationResult | None,
    teller: Teller,
    *,
    compare: str | None,
    conclude: bool = True,
) -> None:
    """Show both scores, and their difference where they can be compared.

    `compare`: the command that compares methods. With it the intervals are shown too, and the command is advised if `conclude`. A run
    of a comparison has none and gets one line, since a table follows."""
    if before is None or after is None:
        return
    unit = score_unit(own_reward)
    apart = apart_text(before, after)
    if compare is None:
        scores = [score_unit(result.own_reward).shown(result.accuracy) for result in (before, after)]
        change = apart or f"{unit.signed(after.accuracy - before.accuracy)} {unit.name}"
        teller.say(f"held-out {unit.score}: {scores[0]} before training, {scores[1]} after ({change})")
        return
    teller.say(f"held-out {unit.score} ({sampling_text(before, after)}):")
    table = Table()
    alike = before.own_reward == after.own_reward
    headings = ("", unit.score if alike else "score", "95 % interval")
    add_columns(table, headings, left=headings)
    for name, result in (("before", before), ("after", after)):
        score = result.summary()
        shown = score_unit(result.own_reward).shown
        table.add_row(name, shown(score["accuracy"]), interval_text(score["low"], score["high"], shown))
    teller.show(table)
    notes = [result.summary().get("interval_note") for result in (before, after)]
    for note in dict.fromkeys(filter(None, notes)):
        teller.say(f"{note[0].upper()}{note[1:]}.")
    if apart:
        teller.say(f"T{apart[1:]}.")
        return
    teller.say(f"The change is {paired_change(before, after)}.")
    if not conclude:
        return
    teller.say(
        f"This is the effect of the whole training. To measure what the token weights add, compare methods:\n{compare}"
    )
