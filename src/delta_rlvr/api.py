"""The commands as Python functions with the same option names; each returns its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_rlvr.bounds import check_names, typed
from delta_rlvr.words import comma_list

if TYPE_CHECKING:
    from delta_rlvr.evaluate import EvaluationResult
    from delta_rlvr.report.explained import Explained
    from delta_rlvr.training.compare import ComparedRuns
    from delta_rlvr.training.session import TrainedRun

__all__ = ["compare", "evaluate", "explain", "report", "train"]


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    """Names with commas between them are a list, as on the command line."""
    return comma_list(names) if isinstance(names, str) else names


def train(*, verbose: bool = False, **settings: Any) -> TrainedRun:
    """Train a policy, as `delta-rlvr train` does: `train(model="builtin", method="delta", steps=20, output="runs/mine")`.

    Settings have the names of the command's options: those of `TrainOptions` and all of TRL's. `verbose` prints the progress.
    """
    from delta_rlvr.terminal import plain_console
    from delta_rlvr.training.progress import Teller
    from delta_rlvr.training.request import RunRequest
    from delta_rlvr.training.session import train

    return train(RunRequest(settings), Teller(plain_console() if verbose else None))


def compare(
    methods: str | Sequence[str],
    seeds: int = 3,
    output: str | Path = "runs/compare",
    *,
    learning_rates: Sequence[float] = (),
    tuning_seeds: int = 1,
    pass_at: int | None = None,
    parallel: int | None = None,
    verbose: bool = False,
    **settings: Any,
) -> ComparedRuns | None:
    """Train with each method and seed, and compare the methods in a table with a test paired by seed.

    Settings are those of `train`. With `learning_rates` each method is compared at its best learning rate, chosen on other seeds.
    `parallel` is the number of runs at a time. With several processes, ranks other than the first get None."""
    from delta_rlvr.terminal import plain_console
    from delta_rlvr.training.compare import compare
    from delta_rlvr.training.request import RunRequest

    return compare(
        RunRequest(settings),
        _listed(methods),
        seeds,
        output,
        learning_rates=learning_rates,
        tuning_seeds=tuning_seeds,
        pass_at=pass_at,
        parallel=parallel,
        console=plain_console() if verbose else None,
    )


def evaluate(
    benchmarks: str | Sequence[str], model: str = "builtin", *, verbose: bool = False, **settings: Any
) -> EvaluationResult:
    """Sample a model on benchmarks and grade its answers. Settings are the fields of `EvaluationRequest`; the result is written
    to `output`, too."""
    from delta_rlvr.evaluate.evaluation import EvaluationRequest, evaluate
    from delta_rlvr.evaluate.progress import ConsoleProgress
    from delta_rlvr.terminal import plain_console

    check_names(settings, {one.name for one in fields(EvaluationRequest)}, "evaluate")
    request = EvaluationRequest(model, _listed(benchmarks), **settings)
    return evaluate(request, ConsoleProgress(plain_console(), request.reward is not None) if verbose else None)


def explain(model: str, rollouts: str | Path, **settings: Any) -> Explained:
    """Return the weights that methods would give to the tokens of rollouts in a file; its `write_page` writes the page.

    Settings are those of `delta_rlvr.report.explain.explain`."""
    from delta_rlvr.report.explain import explain

    return explain(model, rollouts, **settings)


@typed
def report(runs: str | Path | Sequence[str | Path], output: str | Path | None = None, **settings: Any) -> Path:
    """Write one self-contained page about runs and return its path. Settings are those of `delta_rlvr.report.write_report`."""
    from delta_rlvr.report import write_report

    return write_report([runs] if isinstance(runs, str | Path) else runs, output, **settings)
