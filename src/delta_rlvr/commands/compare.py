"""`delta-rlvr compare`: the same run for several methods and seeds, and what the difference is worth."""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from delta_rlvr.commands.options import (
    differing,
    given_options,
    parse_train_options,
    settings_of_file,
    settings_of_flags,
    told_difference,
)
from delta_rlvr.commands.terminal import say
from delta_rlvr.commands.train import run_settings, train
from delta_rlvr.evaluate.seeds import SeedTable, few_problems, mean_text, p_text, seed_table, too_few_seeds
from delta_rlvr.files import write_json
from delta_rlvr.objectives import get_method
from delta_rlvr.report import write_report
from delta_rlvr.runs import read_run
from delta_rlvr.score_units import score_unit
from delta_rlvr.words import comma_list, counted, duration

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


def run(arguments: list[str]) -> int:
    """The subcommand."""
    parser = argparse.ArgumentParser(prog="delta-rlvr compare", add_help=False, allow_abbrev=False)
    parser.add_argument("--methods", required=True)
    parser.add_argument("--seeds", default="3")
    parser.add_argument("--output", default="runs/compare")
    mine, theirs = parser.parse_known_args(arguments)
    methods = comma_list(mine.methods)
    if len(set(methods)) != len(methods) or len(methods) < 2:
        raise ValueError(f"--methods {mine.methods}: give two or more different names, as in dapo,delta")
    number_of_seeds = _seed_count(mine.seeds)
    for name in methods:
        get_method(name)
    if len({folder_name(name) for name in methods}) != len(methods):
        raise ValueError(
            f"--methods {mine.methods}: two of them would share a folder; give one a name of its own with @register"
        )
    for name in ("method", "resume"):
        if name in settings_of_flags(theirs):
            raise ValueError(f"--{name} is not for compare: it runs --methods, and goes on by itself")
    console = Console()
    folder = Path(mine.output)
    # What a file that `train` was given says and a comparison decides by itself.
    taken = ("method", "resume", "output", "output_dir")
    unused = {name: value for name, value in settings_of_file(theirs).items() if name in taken}
    if "resume" in unused:
        theirs += ["--resume", "false"]
    # All of them, so that a method that cannot be trained with is refused here, by its own name.
    parsed = [parse_train_options([*theirs, "--method", name, "--output", str(folder)]) for name in methods]
    base, config = parsed[0]
    if "show_methods" not in given_options(theirs):
        # So that the page can shade every run by every method: a rule of one's own, too.
        weighing = [name for name in methods if not get_method(name).rule.constant]
        theirs += ["--show_methods", ",".join(dict.fromkeys([*config.shown_methods, *weighing]))]
    if base.eval_problems == 0:
        raise ValueError("--eval_problems 0: compare needs a held-out score")
    console.quiet = config.process_index > 0
    seeds = range(config.seed, config.seed + number_of_seeds)
    say(console, _plan(len(methods), seeds, config.max_steps))
    # What the end will say of the number of seeds, whatever the scores are, is better known before the time is spent.
    if too_few := too_few_seeds([number_of_seeds] * len(methods)):
        say(console, too_few)
    if unused:
        named = ", ".join(f"{name}: {value}" for name, value in unused.items())
        say(
            console, f"--config: compare does not use {named}. It runs --methods {mine.methods} into {folder}"
        )
    # Seed by seed, so that an interrupted comparison has the same seeds of every method.
    planned = [(name, seed) for seed in seeds for name in methods]
    # All runs start from the same weights: their score before training is taken once.
    scored: Path | None = None
    seconds: list[float] = []
    for number, (name, seed) in enumerate(planned, start=1):
        which = f"run {number} of {len(planned)}"
        left = statistics.fmean(seconds) * (len(planned) - number + 1) if seconds else None
        place, spent = _one(theirs, name, seed, folder, console, which, scored, left)
        scored = scored or place
        seconds += [] if spent is None else [spent]
    return conclude(folder, methods, seeds, console) if config.process_index == 0 else 0


def _plan(methods: int, seeds: Sequence[int], steps: int) -> str:
    """What is about to run. The number of seeds has a default, and --seed is the first of them: both may be other than meant."""
    listed = ", ".join(map(str, seeds)) if len(seeds) <= 6 else f"{seeds[0]} to {seeds[-1]}"
    length = f" of {counted(steps, 'step')}" if steps > 0 else ""
    return (
        f"{counted(methods, 'method')} x {counted(len(seeds), 'seed')} ({listed}): "
        f"{counted(methods * len(seeds), 'run')}{length}"
    )


def _seed_count(text: str) -> int:
    """--seeds is a number of seeds; a list of them is a natural guess."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"--seeds {text}: give how many seeds, at least 1. They count up from --seed: --seed 1 --seeds 2 takes the seeds 1 and 2"
        )
    return int(text)


def folder_name(method: str) -> str:
    """A method's name as part of a folder's: what a path cannot have, or a shell would trip over, becomes a dash."""
    return re.sub(r"[^\w.=-]+", "-", method)


def _place(folder: Path, method: str, seed: int) -> Path:
    return folder / f"{folder_name(method)}-seed{seed}"


def _one(
    arguments: list[str],
    method: str,
    seed: int,
    folder: Path,
    console: Console,
    which: str,
    scored: Path | None,
    left: float | None,
) -> tuple[Path, float | None]:
    """Make a run, or keep it where it is finished: its folder, and the seconds that it took. `left`: seconds until all are made."""
    place = _place(folder, method, seed)
    given = [*arguments, "--method", method, "--seed", str(seed), "--output", str(place)]
    options, config = parse_train_options(given)
    started = read_run(place).info if (place / "run.json").exists() else None
    if started is not None:
        check_same(place, started, run_settings(options, config))
        if started.get("status") == "finished":
            say(console, f"{which}: {place} is finished: kept")
            return place, None
    remaining = "" if left is None else f", about {duration(left)} left in all"
    console.rule(f"{which}: {method}, seed {seed}{remaining}")
    began = time.perf_counter()
    try:
        train(replace(options, report=False, resume=started is not None), config, console, scored)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"in {which}; the same command keeps finished runs and goes on from the last checkpoint"
        ) from None
    return place, time.perf_counter() - began


def check_same(place: Path, started: dict[str, Any], settings: dict[str, Any]) -> None:
    """Runs with other settings must not stand in one table."""
    different = differing(started.get("settings", {}), settings, _INCIDENTAL)
    other = [told_difference(name, *map(repr, values)) for name, values in different.items()]
    if other:
        raise ValueError(
            f"{place} was run with other settings ({'; '.join(other)}): use those, or give another --output"
        )


def conclude(folder: Path, methods: Sequence[str], seeds: Sequence[int], console: Console) -> int:
    """The table, what it can tell, and the report of all runs."""
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
    unit = score_unit(settings.get("reward"))
    starts = [(info["final"].get("before") or {}).get("accuracy") for info in infos.values()]
    compared = seed_table(scores, unit, few_problems(problems, settings.get("eval_problems")), starts)
    title = f"held-out {unit.score} after training{', in %' if unit.sign else ''} ({counted(len(seeds), 'seed')}{asked})"
    console.print(_table(compared, title, console))
    console.print(compared.sentence, markup=False, highlight=False)
    stored = {
        "seeds": list(seeds),
        "scores": {method: list(by_seed.values()) for method, by_seed in scores.items()},
        "rows": [asdict(row) for row in compared.rows],
        "differences": compared.few,
        "test": compared.test_name,
        "sentence": compared.sentence,
    }
    write_json(folder / "comparison.json", stored)
    page = write_report([*infos], folder / "report.html")
    say(console, f"report: {page}")
    return 0


def _table(compared: SeedTable, title: str, console: Console) -> Table:
    """A rule of one's own has a long name, which must not be cut: where there is no room, it goes on in a new line after its file."""
    unit = compared.unit
    for end_of_file in (".py:", ".py:\n"):
        table = Table(
            title=title,
            caption=f"difference to {compared.rows[0].method} (in brackets: {compared.gap_name}); p: {compared.test_name}; "
            "Holm: corrected for all comparisons",
            title_justify="left",
            caption_justify="left",
        )
        table.add_column("method", overflow="fold")
        for heading in ("mean ± SD", f"difference, {unit.name}", "p", "p Holm"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in compared.rows:
            name = row.method.replace(".py:", end_of_file)
            p, adjusted = p_text(compared.p(row)), p_text(compared.p_adjusted(row))
            table.add_row(name, mean_text(row, unit), compared.gap(row), p, adjusted)
        if console.measure(table, options=console.options.update(width=1000)).maximum <= console.width:
            break
    return table


def _scored(place: Path) -> dict[str, Any]:
    """What a run says of itself, where it has a held-out score after training."""
    info = read_run(place).info
    if "after" not in (info.get("final") or {}):
        raise ValueError(f"{place} has no held-out score: delete the folder and run the comparison again")
    return info
