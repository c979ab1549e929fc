"""The held-out score of a run: before, after, and what the change is worth."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.commands.options import TrainOptions
from delta_rlvr.commands.progress import Teller
from delta_rlvr.evaluate import EvaluationResult, compare_results, evaluate_policy
from delta_rlvr.evaluate.display import ConsoleProgress
from delta_rlvr.evaluate.runner import Grade
from delta_rlvr.tasks import Problem, Task
from delta_rlvr.tasks.problem_set import ProblemSet


def heldout_problems(options: TrainOptions, task: Task) -> list[Problem]:
    """The problems that a run is scored on: as many as were asked for, or all there are."""
    count = options.eval_problems
    if isinstance(task, ProblemSet):
        count = min(count, len(task.heldout))
    return task.problems("heldout", count, 0) if count else []


class HeldoutScore:
    """Scores the policy in memory on held-out problems."""

    def __init__(
        self,
        options: TrainOptions,
        config: DeltaTrainerConfig,
        task: Task,
        trainer: DeltaTrainer,
        teller: Teller,
        grade: Grade,
    ):
        self.grade = grade
        self.options, self.config, self.task, self.trainer = options, config, task, trainer
        self.teller = teller
        self.folder = Path(str(config.output_dir)) / "evaluations"
        self.problems = heldout_problems(options, task)
        if options.eval_problems and not self.problems:
            teller.say("the task holds out no problem: there is no held-out score")
        if self.problems and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            teller.say(
                "sharded weights are not scored in memory: run `delta-rlvr evaluate` on the checkpoints"
            )
            self.problems = []

    def score(self, when: str) -> EvaluationResult | None:
        """Sample, grade, and keep the result in the run folder: on the first rank, while the others wait."""
        result = None
        if self.problems and self.trainer.accelerator.is_main_process:
            self.teller.say(f"held-out accuracy {when} training, {len(self.problems)} problems:")
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            model.eval()
            result = evaluate_policy(
                model,
                self.trainer.processing_class,
                self.problems,
                samples=self.options.eval_samples,
                temperature=self.config.temperature,
                max_tokens=self.config.max_completion_length or self.task.max_tokens,
                seed=0,
                grade=self.grade,
                batch_size=128,
                progress=ConsoleProgress(self.teller.console),
                label=f"{self.options.model} {when} training",
            )
            result.write(self.folder / f"heldout_{when}.json")
        self.trainer.accelerator.wait_for_everyone()
        return result

    def load(self, when: str) -> EvaluationResult | None:
        """The score that an earlier start of the run kept."""
        path = self.folder / f"heldout_{when}.json"
        if not self.problems or not path.exists() or not self.trainer.accelerator.is_main_process:
            return None
        return EvaluationResult.load(path)


def tell_change(
    method: str, before: EvaluationResult | None, after: EvaluationResult | None, teller: Teller
) -> None:
    """Both scores, and their difference where it is one."""
    if before is None or after is None:
        return
    table = Table(title="held-out accuracy", title_justify="left")
    for heading in ("", "accuracy", "95 % interval"):
        table.add_column(heading)
    for name, result in (("before", before), ("after", after)):
        found = result.summary()
        table.add_row(name, f"{found['accuracy']:.1%}", f"{found['low']:.1%} to {found['high']:.1%}")
    teller.show(table)
    asked = [[result.summary()[key] for key in ("problems", "samples")] for result in (before, after)]
    if asked[0] != asked[1]:
        teller.say("The two scores are not of the same problems and samples: their difference is not told.")
        return
    comparison = compare_results(before, after)
    gain = comparison.difference
    other = method if method != "dapo" else "delta"
    teller.say(
        f"The change is {100 * gain.mean:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, paired by problem; "
        f"p = {comparison.paired.p:.2g}).\nIt is what this training as a whole does; what the token weighting adds is "
        f"what\n`delta-rlvr compare --methods dapo,{other} --seeds 6` tells."
    )
