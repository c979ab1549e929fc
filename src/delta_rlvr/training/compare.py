"""Comparisons: the same run for several methods and seeds, and a test of the difference."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from delta_rlvr.bounds import typed
from delta_rlvr.evaluate.compare import run_scores_unlike
from delta_rlvr.evaluate.metrics import pass_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.seeds import SeedTable, few_problems, gap_text, seed_table, too_few_seeds
from delta_rlvr.files import locked, write_json
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import COMPARISON, EVALUATIONS, RUN
from delta_rlvr.score_units import ScoreUnit, score_unit
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.terminal import say
from delta_rlvr.testing import try_rule
from delta_rlvr.training.plan import Making, Plan, folder_name, place_of, runs_at_a_time, scored_run
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.request import RunRequest
from delta_rlvr.training.tuning import TunedRate, check_rates, tuned_sentence
from delta_rlvr.weight_words import without_effect
from delta_rlvr.words import counted, rate_text

MOST_SEEDS = 1000
ENTROPY_STEPS = 10
"""The final entropy of a run is the mean over this many last steps."""


@dataclass(frozen=True)
class Further:
    """A method's further results beside its held-out score: means over its seeds, None where not measured."""

    method: str
    learning_rate: float | None
    sampled: float
    greedy: float | None
    greedy_gap: str
    """The difference to the first method in the greedy score, as text for a table."""
    pass_at: float | None
    entropy: float | None
    """Nats per token, at the end of training."""
    best: float | None = None
    """The best score during training (`eval_every`)."""


@dataclass(frozen=True)
class ComparedRuns:
    """A finished comparison."""

    folder: Path
    """The folder that holds the run folders and `comparison.json`, the table."""
    table: SeedTable
    """The held-out score of each method, its difference to the first one, and a test paired by seed."""
    title: str
    report: Path
    further: Sequence[Further] = ()
    pass_at: int | None = None
    """The k of pass@k in `further`."""
    tuned: str | None = None
    """A sentence about the tuned learning rates; None if nothing was tuned."""

    @property
    def beside(self) -> dict[str, Any] | None:
        """`further` as texts, for terminal and page; None where there is nothing beside the score that decides."""
        if all(row.greedy is None and row.best is None for row in self.further):
            return None
        unit = self.table.unit
        caption = "difference: of the greedy score; entropy: nats per token over the last steps of training"
        rows = [["method", "rate", "sampled", "greedy", "difference", f"pass@{self.pass_at}", "entropy"]]
        for row in self.further:
            rate = "-" if row.learning_rate is None else rate_text(row.learning_rate)
            sampled, greedy, passed = (
                "-" if one is None else unit.plain(one) for one in (row.sampled, row.greedy, row.pass_at)
            )
            entropy = "-" if row.entropy is None else f"{row.entropy:.2f}"
            rows.append([row.method, rate, sampled, greedy, row.greedy_gap, passed, entropy])
        if not unit.sign:
            caption += f"; pass@{self.pass_at}: none, as a custom reward is not right or wrong"
        if any(row.best is not None for row in self.further):
            caption += "; best: of the scores during training"
            rows[0].append("best")
            for shown, row in zip(rows[1:], self.further, strict=True):
                shown.append("-" if row.best is None else unit.plain(row.best))
        scale = ", in %" if unit.sign else ""
        return {"title": f"sampled and greedy {unit.score}{scale}, means over seeds", "rows": rows, "caption": caption}


@typed
def compare(
    request: RunRequest,
    methods: Sequence[str],
    seeds: int = 3,
    output: str | Path = "runs/compare",
    *,
    learning_rates: Sequence[float] = (),
    tuning_seeds: int = 1,
    pass_at: int | None = None,
    parallel: int | None = None,
    only: int | None = None,
    listed: Callable[[Plan], object] | None = None,
    without_signal: bool = False,
    ask: Callable[[str], bool] | None = None,
    console: Console | None = None,
    wording: Callable[[str], str] = str,
) -> ComparedRuns | None:
    """Make the requested run with each method and seed, and compare the methods. Seeds count up from the request's seed. Finished
    runs in `output` are kept, and an unfinished one is resumed. Returns None on ranks other than the first.

    With `learning_rates` every method first runs at each rate, on `tuning_seeds` seeds counted up from the request's seed + 1000, and
    is then compared at the rate with the best held-out score. `pass_at`: the k of pass@k (default: all samples of a problem).
    `parallel`: runs at a time, each a process (default: as many as there are GPUs; 1 on a CPU). `only`: make the run with this number
    and compare nothing. `listed` is called with the plan, and no run is made. A run in which no rewards differ stops the comparison,
    unless `ask` returns True or `without_signal` is given."""
    console, folder = console or Console(quiet=True), Path(output)
    _check_methods(methods)
    rates = check_rates(learning_rates) if learning_rates else []
    for name, number in (("seeds", seeds), ("tuning_seeds", tuning_seeds)):
        if not 1 <= number <= MOST_SEEDS:
            raise ValueError(f"{name}={number}: give how many seeds, at least 1 and {MOST_SEEDS} at most")
    for name in ("method", "resume"):
        if name in request.given:
            raise ValueError(f"`{name}` is not for compare: it runs `methods`, and resumes by itself")
    if (folder / RUN).exists():
        raise ValueError(f"output={folder} holds a run, and a comparison needs a folder of its own: give another")
    if rates and "learning_rate" in request.asked:
        raise ValueError("give `learning_rates` to choose from, or one `learning_rate`, not both")
    # Settings that a file for `train` may have, and that a comparison sets itself.
    taken = ("method", "output", "output_dir", "resume")
    unused = {name: request.from_file[name] for name in taken if name in request.from_file}
    asked, request = request, request.but(resume=False)
    # Build them all, so that a method that cannot be trained is refused here, by name.
    built = [request.but(method=name, output=str(folder)).build() for name in methods]
    for _, each in built:
        try_rule(each.resolved_method.rule)
    options, config = built[0]
    if "eval_greedy" not in request.asked:
        request = request.but(eval_greedy=True)
    if pass_at is not None and not 1 <= pass_at <= options.eval_samples:
        raise ValueError(
            f"pass_at={pass_at}: each held-out problem has {options.eval_samples} samples; give 1 to {options.eval_samples}"
        )
    if "show_methods" not in request.asked:
        # With these the page can shade every run by every compared method, user rules included.
        weighing = [name for name in methods if not get_method(name).rule.constant]
        request = request.but(show_methods=",".join(dict.fromkeys([*config.shown_methods, *weighing])))
    if options.eval_problems == 0:
        raise ValueError("eval_problems=0: compare needs a held-out score")
    at_a_time = runs_at_a_time(parallel, config.world_size, config.use_cpu)
    all_seeds = range(config.seed, config.seed + seeds)
    # Beyond every seed that a comparison may have: with more seeds the tuning runs stay those that they were.
    first_spare = config.seed + MOST_SEEDS
    spare = range(first_spare, first_spare + tuning_seeds) if rates else range(0)
    if (largest := max([*all_seeds, *spare])) >= 2**32:
        raise ValueError(
            f"seed={config.seed}: the seeds of this comparison go up to {largest}, and {2**32 - 1} is the largest"
        )
    plan = Plan(request, methods, all_seeds, folder, rates, spare, asked, pass_at)
    if listed is not None:
        listed(plan)
        return None
    console.quiet = console.quiet or config.process_index > 0
    teller = Teller(console, wording)
    say(console, _plan(len(methods), all_seeds, config.max_steps))
    if rates:
        before = f"{len(methods)} x {counted(len(rates), 'learning rate')} x {counted(tuning_seeds, 'seed')}"
        say(
            console,
            f"first, to choose learning rates: {before}: {counted(len(methods) * len(rates) * tuning_seeds, 'run')}",
        )
    # Too few seeds for any conclusion: say so before the time is spent.
    if too_few := too_few_seeds([seeds] * len(methods)):
        say(console, too_few)
    if unused:
        named = ", ".join(f"{name}: {value}" for name, value in unused.items())
        runs = f"It runs {', '.join(methods)} and writes to {folder}"
        say(console, f"{request.file}: compare does not use {named}. {runs}")
    if only is not None:
        Making(plan, teller).only(only)
        return None
    making = Making(plan, teller, without_signal, ask)
    with locked(folder) if config.process_index == 0 else nullcontext():
        making.all(plan.tuning, at_a_time)
        tuned = [plan.tuned(name) for name in (methods if rates else ())]
        way = "greedy" if options.eval_temperature == 0 else "sampled"
        words = (
            tuned_sentence(tuned, spare, f"{way} held-out {score_unit(custom_function(options.reward)).score}")
            if tuned
            else None
        )
        if words:
            say(console, words)
        making.all(plan.compared, at_a_time)
        if config.process_index > 0:
            return None
        return conclude(folder, methods, all_seeds, pass_at or options.eval_samples, tuned, words)


def _check_methods(methods: Sequence[str]) -> None:
    listed = ",".join(methods)
    if len(set(methods)) != len(methods) or len(methods) < 2:
        raise ValueError(f"methods={listed!r}: give two or more different names, as in dapo,delta")
    for name in methods:
        get_method(name)
    if len({folder_name(name) for name in methods}) != len(methods):
        raise ValueError(f"methods={listed!r}: two of them would share a folder; give one another name with @register")


def _plan(methods: int, seeds: Sequence[int], steps: int) -> str:
    """Return a sentence about the planned runs. It lists the seeds, since `seed` and `seeds` are easily confused."""
    listed = ", ".join(map(str, seeds)) if len(seeds) <= 6 else f"{seeds[0]} to {seeds[-1]}"
    length = f" of {counted(steps, 'step')}" if steps > 0 else ""
    return (
        f"{counted(methods, 'method')} x {counted(len(seeds), 'seed')} ({listed}): "
        f"{counted(methods * len(seeds), 'run')}{length}"
    )


def conclude(
    folder: Path,
    methods: Sequence[str],
    seeds: Sequence[int],
    pass_at: int | None = None,
    tuned: Sequence[TunedRate] = (),
    words: str | None = None,
) -> ComparedRuns:
    """Compare the finished runs: return the table and the conclusion, and write the report. `words`: a sentence about tuning."""
    chosen = {one.method: one.rate for one in tuned}
    places = {
        method: {seed: place_of(folder, method, seed, chosen.get(method)) for seed in seeds} for method in methods
    }
    runs = {place: scored_run(place) for by_seed in places.values() for place in by_seed.values()}
    infos = {place: run.info for place, run in runs.items()}
    scores = {
        method: {seed: float(infos[place]["final"]["after"]["accuracy"]) for seed, place in by_seed.items()}
        for method, by_seed in places.items()
    }
    # All runs share their settings but method and seed, and so their held-out problems.
    first = infos[places[methods[0]][seeds[0]]]
    settings = first.get("settings") or {}
    problems = first["final"]["after"].get("problems")
    asked = f", {counted(problems, 'problem')} each" if problems else ""
    unit = score_unit(custom_function(settings.get("reward")))
    starts = [
        None if run_scores_unlike(run.evaluations) else (run.info["final"].get("before") or {}).get("accuracy")
        for run in runs.values()
    ]
    rates = [None if tuned else (info.get("settings") or {}).get("learning_rate") for info in infos.values()]
    effects = {
        method: without_effect(line for place in by_seed.values() for line in runs[place].metrics)
        for method, by_seed in places.items()
    }
    compared = seed_table(scores, unit, few_problems(problems, settings.get("eval_problems")), starts, rates, effects)
    title = (
        f"held-out {unit.score} after training{', in %' if unit.sign else ''} ({counted(len(seeds), 'seed')}{asked})"
    )
    further = _further(places, runs, unit, pass_at)
    page = folder / "report.html"
    done = ComparedRuns(folder, compared, title, page, further, pass_at, words)
    stored: dict[str, Any] = {
        "seeds": list(seeds),
        "scores": {method: list(by_seed.values()) for method, by_seed in scores.items()},
        "rows": [row.as_dict() for row in compared.rows],
        "differences": compared.few,
        "test": compared.test_name,
        "sentence": compared.sentence,
        "further": [asdict(row) for row in further],
        "pass_at": pass_at,
        "beside": done.beside,
    }
    if tuned:
        stored |= {"tuning": {one.method: one.as_dict() for one in tuned}, "tuned": words}
        stored["runs"] = [place.name for place in infos]
    write_json(folder / COMPARISON, stored)
    write_report([*infos], page)
    return done


def _further(
    places: Mapping[str, Mapping[int, Path]], runs: Mapping[Path, RunReader], unit: ScoreUnit, pass_at: int | None
) -> list[Further]:
    """Return the greedy score, pass@k and entropy of each method, where its runs have them."""
    infos = {place: run.info for place, run in runs.items()}
    finals = {
        method: {seed: infos[place]["final"]["after"] for seed, place in own.items()} for method, own in places.items()
    }
    greedy = {
        method: {seed: float(one["greedy"]["accuracy"]) for seed, one in own.items() if "greedy" in one}
        for method, own in finals.items()
    }
    table = seed_table(greedy, unit) if all(greedy.values()) else None
    rows = {row.method: row for row in table.rows} if table else {}
    return [
        Further(
            method,
            _mean([(infos[place].get("settings") or {}).get("learning_rate") for place in own.values()]),
            statistics.fmean(float(one["accuracy"]) for one in finals[method].values()),
            rows[method].mean if method in rows else None,
            gap_text(rows[method].difference, unit) if method in rows else "-",
            _mean([_pass_at(place, pass_at) for place in own.values()]) if pass_at else None,
            _mean([_last_entropy(runs[place]) for place in own.values()]),
            _mean([(infos[place]["final"].get("best") or {}).get("accuracy") for place in own.values()]),
        )
        for method, own in places.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _pass_at(place: Path, k: int) -> float | None:
    """Return pass@k of a run's held-out problems; None for custom rewards, which are not right or wrong."""
    path = place / EVALUATIONS / "heldout_after.json"
    if not path.exists():
        return None
    result = EvaluationResult.load(path)
    rows = [scores for name in result.benchmarks() for scores in result.scores(name).values()]
    if result.own_reward or not rows or min(map(len, rows)) < k:
        return None
    return statistics.fmean(pass_at_k(scores, k) for scores in rows)


def _last_entropy(run: RunReader) -> float | None:
    values = run.series("entropy")[1][-ENTROPY_STEPS:]
    return statistics.fmean(values) if values else None
