"""The same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from delta_rlvr.evaluate.seeds import SeedTable, few_problems, seed_table, too_few_seeds
from delta_rlvr.files import write_json
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.runs.layout import RUN
from delta_rlvr.score_units import score_unit
from delta_rlvr.tasks.custom_reward import custom_function
from delta_rlvr.terminal import say
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.request import RunRequest, difference_text, differing, run_settings
from delta_rlvr.training.session import train
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


@dataclass(frozen=True)
class ComparedRuns:
    """A comparison that is done."""

    folder: Path
    """Of the runs, one in each folder below it; `comparison.json` holds the table."""
    table: SeedTable
    """The held-out score of each method, its difference to the first one, and a test paired by seed."""
    title: str
    report: Path


def compare(
    request: RunRequest,
    methods: Sequence[str],
    seeds: int = 3,
    output: str | Path = "runs/compare",
    *,
    console: Console | None = None,
    wording: Callable[[str], str] = str,
) -> ComparedRuns | None:
    """The run that is asked for, with each method and seed. The seeds count up from the request's. Finished runs in `output` are kept,
    and an unfinished one is resumed. None on ranks other than the first."""
    console, folder = console or Console(quiet=True), Path(output)
    _check_methods(methods)
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: give how many seeds, at least 1")
    for name in ("method", "resume"):
        if name in request.given:
            raise ValueError(f"`{name}` is not for compare: it runs `methods`, and resumes by itself")
    # What a file that `train` was given says and a comparison decides by itself.
    taken = ("method", "output", "output_dir", "resume")
    unused = {name: request.from_file[name] for name in taken if name in request.from_file}
    request = request.but(resume=False)
    # All of them, so that a method that cannot be trained with is refused here, by its own name.
    built = [request.but(method=name, output=str(folder)).build() for name in methods]
    options, config = built[0]
    if "show_methods" not in request.asked:
        # So that the page can shade every run by every method: a user rule, too.
        weighing = [name for name in methods if not get_method(name).rule.constant]
        request = request.but(show_methods=",".join(dict.fromkeys([*config.shown_methods, *weighing])))
    if options.eval_problems == 0:
        raise ValueError("eval_problems=0: compare needs a held-out score")
    console.quiet = console.quiet or config.process_index > 0
    all_seeds = range(config.seed, config.seed + seeds)
    say(console, _plan(len(methods), all_seeds, config.max_steps))
    # What the end will say of the number of seeds, whatever the scores are, is better known before the time is spent.
    if too_few := too_few_seeds([seeds] * len(methods)):
        say(console, too_few)
    if unused:
        named = ", ".join(f"{name}: {value}" for name, value in unused.items())
        runs = f"It runs {', '.join(methods)} into {folder}"
        say(console, f"{request.file}: compare does not use {named}. {runs}")
    # Seed by seed, so that an interrupted comparison has the same seeds of every method.
    planned = [(name, seed) for seed in all_seeds for name in methods]
    # All runs start from the same weights: their score before training is taken once.
    scored: Path | None = None
    seconds: list[float] = []
    for number, (name, seed) in enumerate(planned, start=1):
        which = f"run {number} of {len(planned)}"
        left = statistics.fmean(seconds) * (len(planned) - number + 1) if seconds else None
        place = _place(folder, name, seed)
        one = request.but(method=name, seed=seed, output=str(place), report=False)
        spent = _one(one, place, f"{name}, seed {seed}", Teller(console, wording), which, scored, left)
        scored = scored or place
        seconds += [] if spent is None else [spent]
    return conclude(folder, methods, all_seeds) if config.process_index == 0 else None


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


def conclude(folder: Path, methods: Sequence[str], seeds: Sequence[int]) -> ComparedRuns:
    """The table, what can be concluded from it, and the report of all runs."""
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
    stored = {
        "seeds": list(seeds),
        "scores": {method: list(by_seed.values()) for method, by_seed in scores.items()},
        "rows": [asdict(row) for row in compared.rows],
        "differences": compared.few,
        "test": compared.test_name,
        "sentence": compared.sentence,
    }
    write_json(folder / "comparison.json", stored)
    return ComparedRuns(folder, compared, title, write_report([*infos], folder / "report.html"))


def _scored(place: Path) -> dict[str, Any]:
    """What a run says of itself, where it has a held-out score after training."""
    info = read_run(place).info
    if "after" not in (info.get("final") or {}):
        raise ValueError(f"{place} has no held-out score: delete the folder and run the comparison again")
    return info
