"""The commands as functions, with the same words: `train`, `compare`, `evaluate`, `explain` and `report` return what they made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    Settings have the names of the command's options: those of `TrainOptions` and every one of TRL's. `verbose` shows the progress.
    """
    from rich.console import Console

    from delta_rlvr.training.progress import Teller
    from delta_rlvr.training.request import RunRequest
    from delta_rlvr.training.session import train

    return train(RunRequest(settings), Teller(Console() if verbose else None))


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
    """The same training for each method and seed, and a table with a test paired by seed. Settings are those of `train`. With
    `learning_rates` each method is compared at the best of them, chosen on other seeds. `parallel`: runs at a time. In a run of
    several processes, None on ranks other than the first."""
    from rich.console import Console

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
        console=Console() if verbose else None,
    )


def evaluate(
    benchmarks: str | Sequence[str], model: str = "builtin", *, verbose: bool = False, **settings: Any
) -> EvaluationResult:
    """Sample a model on benchmarks and grade its answers. Settings are the fields of `EvaluationRequest`; the result is also written
    to `output`."""
    from rich.console import Console

    from delta_rlvr.evaluate.evaluation import EvaluationRequest, evaluate
    from delta_rlvr.evaluate.progress import ConsoleProgress

    request = EvaluationRequest(model, _listed(benchmarks), **settings)
    return evaluate(request, ConsoleProgress(Console(), request.reward is not None) if verbose else None)


def explain(model: str, rollouts: str | Path, **settings: Any) -> Explained:
    """The weights that methods would give the tokens of rollouts in a file; `write_page` of what comes back makes the page. Settings
    are those of `delta_rlvr.report.explain.explain`."""
    from delta_rlvr.report.explain import explain

    return explain(model, rollouts, **settings)


def report(runs: str | Path | Sequence[str | Path], output: str | Path | None = None, **settings: Any) -> Path:
    """One self-contained page for runs; its path. Settings are those of `delta_rlvr.report.write_report`."""
    from delta_rlvr.report import write_report

    return write_report([runs] if isinstance(runs, str | Path) else runs, output, **settings)
