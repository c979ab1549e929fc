"""The same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from delta_rlvr.evaluate.metrics import pass_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.seeds import SeedTable, few_problems, gap_text, seed_table, too_few_seeds
from delta_rlvr.files import locked, write_json
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.runs.layout import EVALUATIONS
from delta_rlvr.score_units import ScoreUnit, score_unit
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.terminal import say
from delta_rlvr.testing import try_rule
from delta_rlvr.training.plan import Making, Plan, folder_name, place_of, runs_at_a_time, scored_info
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.request import RunRequest
from delta_rlvr.training.tuning import TunedRate, check_rates, tuned_sentence
from delta_rlvr.words import counted

MOST_SEEDS = 1000
ENTROPY_STEPS = 10
"""A run's entropy at its end is the mean over so many last steps."""


@dataclass(frozen=True)
class Further:
    """What a method's runs came to beside the score that decides, as means over its seeds; None where it was not measured."""

    method: str
    learning_rate: float | None
    sampled: float
    greedy: float | None
    greedy_gap: str
    """The difference to the first method, as a table shows it."""
    pass_at: float | None
    entropy: float | None
    """Nats per token, at the end of training."""
    best: float | None = None
    """The best score during training (`eval_every`)."""


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison that is done."""

    folder: Path
    """Of the runs, one in each folder below it; `comparison.json` holds the table."""
    table: SeedTable
    """The held-out score of each method, its difference to the first one, and a test paired by seed."""
    title: str
    report: Path
    further: Sequence[Further] = ()
    pass_at: int | None = None
    """The k of the pass@k among these."""
    tuned: str | None = None
    """What was tuned, and how; None where nothing was."""


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
    """The run that is asked for, with each method and seed. The seeds count up from the request's. Finished runs in `output` are kept,
    and an unfinished one is resumed. None on ranks other than the first.

    With `learning_rates` every method first runs at each of them, on the `tuning_seeds` seeds after those of the comparison, and is
    then compared at the rate with the best held-out score. `pass_at`: the k of pass@k (default: all samples of a problem).
    `parallel`: runs at a time, each a process (default: as many as there are GPUs; 1 on a CPU). `only`: make the run of this number and
    conclude nothing; `listed`: is given the plan, and nothing is made. A run in which no rewards differed stops the rest, unless
    `ask` is answered with yes or `without_signal` is given."""
    console, folder = console or Console(quiet=True), Path(output)
    _check_methods(methods)
    rates = check_rates(learning_rates) if learning_rates else []
    for name, number in (("seeds", seeds), ("tuning_seeds", tuning_seeds)):
        if type(number) is not int or not 1 <= number <= MOST_SEEDS:
            raise ValueError(f"{name}={number}: give how many seeds, at least 1 and {MOST_SEEDS} at most")
    for name in ("method", "resume"):
        if name in request.given:
            raise ValueError(f"`{name}` is not for compare: it runs `methods`, and resumes by itself")
    if rates and "learning_rate" in request.asked:
        raise ValueError("give `learning_rates` to choose from, or one `learning_rate`, not both")
    # What a file that `train` was given says and a comparison decides by itself.
    taken = ("method", "output", "output_dir", "resume")
    unused = {name: request.from_file[name] for name in taken if name in request.from_file}
    asked, request = request, request.but(resume=False)
    # All of them, so that a method that cannot be trained with is refused here, by its own name.
    built = [request.but(method=name, output=str(folder)).build() for name in methods]
    for _, each in built:
        try_rule(each.resolved_method.rule)
    options, config = built[0]
    if "eval_greedy" not in request.asked:
        request = request.but(eval_greedy=True)
    if pass_at is not None and not 1 <= pass_at <= options.eval_samples:
        raise ValueError(
            f"pass_at={pass_at}: held-out problems have {options.eval_samples} samples each; give 1 to as many"
        )
    if "show_methods" not in request.asked:
        # So that the page can shade every run by every method: a user rule, too.
        weighing = [name for name in methods if not get_method(name).rule.constant]
        request = request.but(show_methods=",".join(dict.fromkeys([*config.shown_methods, *weighing])))
    if options.eval_problems == 0:
        raise ValueError("eval_problems=0: compare needs a held-out score")
    at_a_time = runs_at_a_time(parallel, config.world_size, config.use_cpu)
    all_seeds = range(config.seed, config.seed + seeds)
    spare = range(all_seeds.stop, all_seeds.stop + tuning_seeds) if rates else range(0)
    plan = Plan(request, methods, all_seeds, folder, rates, spare, asked, pass_at)
    if listed is not None:
        listed(plan)
        return None
    console.quiet = console.quiet or config.process_index > 0
    teller = Teller(console, wording)
    say(console, _plan(len(methods), all_seeds, config.max_steps))
    if rates:
        before = f"{len(methods)} x {counted(len(rates), 'learning rate')} x {counted(tuning_seeds, 'seed')}"
        say(console, f"before them {before} to choose from: {counted(len(methods) * len(rates) * tuning_seeds, 'run')}")
    # What the end will say of the number of seeds, whatever the scores are, is better known before the time is spent.
    if too_few := too_few_seeds([seeds] * len(methods)):
        say(console, too_few)
    if unused:
        named = ", ".join(f"{name}: {value}" for name, value in unused.items())
        runs = f"It runs {', '.join(methods)} into {folder}"
        say(console, f"{request.file}: compare does not use {named}. {runs}")
    if only is not None:
        Making(plan, teller).only(only)
        return None
    making = Making(plan, teller, without_signal, ask)
    with locked(folder) if config.process_index == 0 else nullcontext():
        making.all(plan.tuning, at_a_time)
        tuned = [plan.tuned(name) for name in (methods if rates else ())]
        words = tuned_sentence(tuned, spare) if tuned else None
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
        raise ValueError(
            f"methods={listed!r}: two of them would share a folder; give one a name of its own with @register"
        )


def _plan(methods: int, seeds: Sequence[int], steps: int) -> str:
    """What is about to run. The number of seeds has a default, and `seed` is the first of them: both may be other than meant."""
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
    """The table, what can be concluded from it, and the report of all runs. `words`: what was tuned."""
    places = {method: {seed: place_of(folder, method, seed) for seed in seeds} for method in methods}
    infos = {place: scored_info(place) for by_seed in places.values() for place in by_seed.values()}
    scores = {
        method: {seed: float(infos[place]["final"]["after"]["accuracy"]) for seed, place in by_seed.items()}
        for method, by_seed in places.items()
    }
    # The runs of a comparison share all settings but method and seed, and so the problems that they are scored on.
    first = infos[places[methods[0]][seeds[0]]]
    settings = first.get("settings") or {}
    problems = first["final"]["after"].get("problems")
    asked = f", {counted(problems, 'problem')} each" if problems else ""
    unit = score_unit(custom_function(settings.get("reward")))
    starts = [(info["final"].get("before") or {}).get("accuracy") for info in infos.values()]
    compared = seed_table(scores, unit, few_problems(problems, settings.get("eval_problems")), starts)
    title = (
        f"held-out {unit.score} after training{', in %' if unit.sign else ''} ({counted(len(seeds), 'seed')}{asked})"
    )
    further = _further(places, infos, unit, pass_at)
    stored = {
        "seeds": list(seeds),
        "scores": {method: list(by_seed.values()) for method, by_seed in scores.items()},
        "rows": [asdict(row) for row in compared.rows],
        "differences": compared.few,
        "test": compared.test_name,
        "sentence": compared.sentence,
        "further": [asdict(row) for row in further],
        "pass_at": pass_at,
        **({"tuning": {one.method: one.as_dict() for one in tuned}, "tuned": words} if tuned else {}),
    }
    write_json(folder / "comparison.json", stored)
    page = write_report([*infos], folder / "report.html", note=_beside(further, pass_at, words))
    return ComparedRuns(folder, compared, title, page, further, pass_at, words)


def _further(
    places: Mapping[str, Mapping[int, Path]], infos: Mapping[Path, dict[str, Any]], unit: ScoreUnit, pass_at: int | None
) -> list[Further]:
    """The greedy score, pass@k and the entropy of each method, where its runs have them."""
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
            _mean([_last_entropy(place) for place in own.values()]),
            _mean([(infos[place]["final"].get("best") or {}).get("accuracy") for place in own.values()]),
        )
        for method, own in places.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _pass_at(place: Path, k: int) -> float | None:
    """pass@k of a run's held-out problems; None for rewards that are not right or wrong."""
    path = place / EVALUATIONS / "heldout_after.json"
    if not path.exists():
        return None
    result = EvaluationResult.load(path)
    rows = [scores for name in result.benchmarks() for scores in result.scores(name).values()]
    if result.own_reward or not rows or min(map(len, rows)) < k:
        return None
    return statistics.fmean(pass_at_k(scores, k) for scores in rows)


def _last_entropy(place: Path) -> float | None:
    values = read_run(place).series("entropy")[1][-ENTROPY_STEPS:]
    return statistics.fmean(values) if values else None


def _beside(further: Sequence[Further], pass_at: int | None, words: str | None) -> str | None:
    """For the page: what was tuned, and the scores beside the one that decides."""
    shown = []
    for row in further:
        parts = [f"greedy {100 * row.greedy:.1f} %"] if row.greedy is not None else []
        parts += [f"pass@{pass_at} {100 * row.pass_at:.1f} %"] if row.pass_at is not None else []
        parts += [f"entropy {row.entropy:.2f}"] if row.entropy is not None else []
        shown += [f"{row.method}: {', '.join(parts)}"] if parts else []
    ends = f"At the end, {'; '.join(shown)}." if shown else None
    return " ".join(filter(None, [words, ends])) or None
