"""The same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from delta_rlvr.evaluate.metrics import pass_at_k
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.seeds import SeedTable, few_problems, gap_text, seed_table, too_few_seeds
from delta_rlvr.files import write_json
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.runs.layout import EVALUATIONS, RUN
from delta_rlvr.score_units import ScoreUnit, score_unit
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.terminal import say
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.request import RunRequest, difference_text, differing, run_settings
from delta_rlvr.training.session import train
from delta_rlvr.training.tuning import TunedRate, check_rates, rate_text, tuned_sentence
from delta_rlvr.words import counted, duration

# Settings that may differ between a finished run that is kept and the comparison it is kept for.
_INCIDENTAL = (
    "output",
    "output_dir",
    "logging_dir",
    "report",
    "run_name",
    "save_total_limit",
    "show_methods",
)


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
    console: Console | None = None,
    wording: Callable[[str], str] = str,
) -> ComparedRuns | None:
    """The run that is asked for, with each method and seed. The seeds count up from the request's. Finished runs in `output` are kept,
    and an unfinished one is resumed. None on ranks other than the first.

    With `learning_rates` every method first runs at each of them, on the `tuning_seeds` seeds after those of the comparison, and is
    then compared at the rate with the best held-out score. `pass_at`: the k of pass@k (default: all samples of a problem)."""
    console, folder = console or Console(quiet=True), Path(output)
    _check_methods(methods)
    rates = check_rates(learning_rates) if learning_rates else []
    for name, number in (("seeds", seeds), ("tuning_seeds", tuning_seeds)):
        if number < 1:
            raise ValueError(f"{name}={number}: give how many seeds, at least 1")
    for name in ("method", "resume"):
        if name in request.given:
            raise ValueError(f"`{name}` is not for compare: it runs `methods`, and resumes by itself")
    if rates and "learning_rate" in request.asked:
        raise ValueError("give `learning_rates` to choose from, or one `learning_rate`, not both")
    # What a file that `train` was given says and a comparison decides by itself.
    taken = ("method", "output", "output_dir", "resume")
    unused = {name: request.from_file[name] for name in taken if name in request.from_file}
    request = request.but(resume=False)
    # All of them, so that a method that cannot be trained with is refused here, by its own name.
    built = [request.but(method=name, output=str(folder)).build() for name in methods]
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
    console.quiet = console.quiet or config.process_index > 0
    all_seeds = range(config.seed, config.seed + seeds)
    say(console, _plan(len(methods), all_seeds, config.max_steps))
    spare = range(all_seeds.stop, all_seeds.stop + tuning_seeds)
    if rates:
        before = f"{len(methods)} x {counted(len(rates), 'learning rate')} x {counted(tuning_seeds, 'seed')}"
        say(
            console,
            f"before them {before} to choose from: {counted(len(methods) * len(rates) * tuning_seeds, 'run')}",
        )
    # What the end will say of the number of seeds, whatever the scores are, is better known before the time is spent.
    if too_few := too_few_seeds([seeds] * len(methods)):
        say(console, too_few)
    if unused:
        named = ", ".join(f"{name}: {value}" for name, value in unused.items())
        runs = f"It runs {', '.join(methods)} into {folder}"
        say(console, f"{request.file}: compare does not use {named}. {runs}")
    making = _Making(request, Teller(console, wording), len(methods) * (len(rates) * tuning_seeds + seeds))
    # Seed by seed, so that an interrupted comparison has the same seeds of every method.
    for seed in spare if rates else ():
        for name in methods:
            for rate in rates:
                making.run(_tuning_place(folder, name, rate, seed), name, seed, rate)
    tuned = [
        TunedRate(
            name,
            {rate: [_score(_tuning_place(folder, name, rate, seed)) for seed in spare] for rate in rates},
        )
        for name in (methods if rates else ())
    ]
    best = {one.method: one.rate for one in tuned}
    words = tuned_sentence(tuned, spare) if tuned else None
    if words:
        say(console, words)
    for seed in all_seeds:
        for name in methods:
            making.run(_place(folder, name, seed), name, seed, best.get(name))
    if config.process_index > 0:
        return None
    return conclude(folder, methods, all_seeds, pass_at or options.eval_samples, tuned, words)


@dataclass
class _Making:
    """The runs of a comparison, one after another."""

    request: RunRequest
    teller: Teller
    planned: int
    done: int = 0
    seconds: list[float] = field(default_factory=list)
    scored: Path | None = None
    """All runs start from the same weights: their score before training is taken once."""

    def run(self, place: Path, method: str, seed: int, rate: float | None) -> None:
        """One of them; `rate` where it is not the request's."""
        self.done += 1
        which = f"run {self.done} of {self.planned}"
        left = statistics.fmean(self.seconds) * (self.planned - self.done + 1) if self.seconds else None
        one = self.request.but(method=method, seed=seed, output=str(place), report=False)
        name = f"{method}, seed {seed}"
        if rate is not None:
            one, name = one.but(learning_rate=rate), f"{name}, learning rate {rate_text(rate)}"
        spent = _one(one, place, name, self.teller, which, self.scored, left)
        self.scored = self.scored or place
        self.seconds += [] if spent is None else [spent]


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


def folder_name(method: str) -> str:
    """A method's name as part of a folder's: what a path cannot have, or a shell would trip over, becomes a dash."""
    return re.sub(r"[^\w.=-]+", "-", method)


def _place(folder: Path, method: str, seed: int) -> Path:
    return folder / f"{folder_name(method)}-seed{seed}"


def _tuning_place(folder: Path, method: str, rate: float, seed: int) -> Path:
    return folder / "tuning" / f"{folder_name(method)}-lr{rate_text(rate)}-seed{seed}"


def _score(place: Path) -> float:
    return float(_scored(place)["final"]["after"]["accuracy"])


def _one(
    request: RunRequest,
    place: Path,
    name: str,
    teller: Teller,
    which: str,
    scored: Path | None,
    left: float | None,
) -> float | None:
    """Make a run; the seconds that it took. None where it is finished and kept. `left`: seconds until all are made."""
    started = read_run(place).info if (place / RUN).exists() else None
    if started is not None:
        check_same(place, started, run_settings(*request.build()))
        if started.get("status") == "finished":
            say(teller.console, f"{which}: {place} is finished: kept")
            return None
    remaining = "" if left is None else f", about {duration(left)} left in all"
    teller.console.rule(f"{which}: {name}{remaining}")
    began = time.perf_counter()
    try:
        train(request.but(resume=started is not None), teller, same_start=scored, compared=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"in {which}; the same command keeps finished runs and goes on from the last checkpoint"
        ) from None
    return time.perf_counter() - began


def check_same(place: Path, started: dict[str, Any], settings: dict[str, Any]) -> None:
    """Runs with other settings must not stand in one table."""
    different = differing(started.get("settings", {}), settings, _INCIDENTAL)
    other = [difference_text(name, *map(repr, values)) for name, values in different.items()]
    if other:
        raise ValueError(
            f"{place} was run with other settings ({'; '.join(other)}): use those, or give another `output`"
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
    places = {method: {seed: _place(folder, method, seed) for seed in seeds} for method in methods}
    infos = {place: _scored(place) for by_seed in places.values() for place in by_seed.values()}
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
    title = f"held-out {unit.score} after training{', in %' if unit.sign else ''} ({counted(len(seeds), 'seed')}{asked})"
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
    places: Mapping[str, Mapping[int, Path]],
    infos: Mapping[Path, dict[str, Any]],
    unit: ScoreUnit,
    pass_at: int | None,
) -> list[Further]:
    """The greedy score, pass@k and the entropy of each method, where its runs have them."""
    finals = {
        method: {seed: infos[place]["final"]["after"] for seed, place in own.items()}
        for method, own in places.items()
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


def _scored(place: Path) -> dict[str, Any]:
    """What a run says of itself, where it has a held-out score after training."""
    info = read_run(place).info
    if "after" not in (info.get("final") or {}):
        raise ValueError(f"{place} has no held-out score: delete the folder and run the comparison again")
    return info
