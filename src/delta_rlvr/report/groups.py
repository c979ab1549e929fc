"""Groups of runs with the same settings and different seeds, and the settings that differ between groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from delta_rlvr.files import dump
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import CONTENT
from delta_rlvr.specs import shown_spec

# Settings in which runs of the same experiment differ.
_OWN = {
    *("seed", "data_seed", "output", "output_dir", "run_name", "logging_dir"),
    *("resume", "resume_from_checkpoint", "report", "show_methods", "save_total_limit"),
    "all_credit_metrics",
}


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in the seed only."""

    label: str
    """The method, and what distinguishes it from other groups of the same method."""
    members: tuple[int, ...]
    """The indices of the runs in the list that was given."""


def settings_of(run: RunReader) -> dict[str, Any]:
    """Return all settings of a run in one flat dict: its own, the engine's and the rule's."""
    info = run.info
    flat = {key: info.get(key) for key in ("engine", "method", "model", "task", "seed", "steps_planned")}
    for part, prefix in (("settings", ""), ("rule", "rule."), ("versions", "version.")):
        if isinstance(info.get(part), dict):
            flat |= {f"{prefix}{key}": value for key, value in info[part].items()}
    return flat


def _shared(run: RunReader, but: Collection[str]) -> dict[str, Any]:
    """Return the settings of a run without those in `but`, sorted by name."""
    return {key: value for key, value in sorted(settings_of(run).items()) if key not in but}


def group_runs(runs: Sequence[RunReader]) -> list[RunGroup]:
    """Return the groups in order of first appearance, each sorted by seed. A run without run.json is a group of its own."""
    by_settings: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        key = dump(_shared(run, _OWN)) if run.info else f"alone {place}"
        by_settings.setdefault(key, []).append(place)
    members: list[list[int]] = []
    for places in by_settings.values():
        seeds = {runs[place].info.get("seed") for place in places}
        if len(seeds) == len(places):
            members.append(sorted(places, key=lambda place: _seed_order(runs[place])))
        else:  # repeated seeds: a band over them would understate the spread
            members.extend([place] for place in places)
    members.sort(key=min)
    return [RunGroup(_label(runs, places, members), tuple(places)) for places in members]


def _seed_order(run: RunReader) -> tuple[bool, int]:
    """The sort key of a run: its seed; runs without one come last."""
    seed = run.info.get("seed")
    return (False, seed) if isinstance(seed, int) else (True, 0)


def compare_settings(runs: Sequence[RunReader]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the settings that differ (one value per run, None if it has none) and those on which all runs agree. If the rules of the
    runs have different settings, each rule is one value, since most of its settings have no counterpart."""
    tables = [settings_of(run) for run in runs]
    rules = [{key: table[key] for key in table if key.startswith("rule.")} for table in tables]
    if any(rule.keys() != rules[0].keys() for rule in rules):
        for table, rule in zip(tables, rules, strict=True):
            for key in rule:
                del table[key]
            named = (f"{key.removeprefix('rule.')}={value}" for key, value in rule.items())
            table["rule"] = ", ".join(named) or None
    differing: dict[str, list[Any]] = {}
    agreeing: dict[str, Any] = {}
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        if all(dump(value) == dump(values[0]) for value in values):
            agreeing[key] = values[0]
        else:
            differing[key] = values
    return differing, agreeing


def settings_by_group(
    runs: Sequence[RunReader], groups: Sequence[RunGroup]
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the settings that differ, with one value per group, and those on which all runs agree, without seeds and folders."""
    differing, agreeing = compare_settings([runs[group.members[0]] for group in groups])
    own = _OWN if len(runs) > 1 else ()
    return tuple({key: value for key, value in part.items() if key not in own} for part in (differing, agreeing))  # type: ignore[return-value]


def run_label(run: RunReader) -> str:
    method = run.info.get("method")
    if method and "explained" in run.info:
        return str(method)
    return f"{method} · seed {run.info['seed']}" if method and "seed" in run.info else run.path.resolve().name


def run_labels(runs: Sequence[RunReader]) -> list[str]:
    """Return the labels of the runs. Labels of several runs get the folder appended."""
    labels = [run_label(run) for run in runs]
    return [
        label if labels.count(label) == 1 else f"{label} ({_folder(run, runs)})"
        for label, run in zip(labels, runs, strict=True)
    ]


def _label(runs: Sequence[RunReader], places: list[int], members: list[list[int]]) -> str:
    """Return the method's name. If groups share it, add up to two settings that distinguish them, or else the folder."""
    first = runs[places[0]]
    method = str(first.info.get("method") or first.path.resolve().name)
    heads = [runs[other[0]] for other in members]
    rivals = [run for run in heads if run.info.get("method") == first.info.get("method")]
    if len(rivals) == 1:
        return method
    differing, _ = compare_settings(rivals)
    mine = settings_of(first)
    telling = [
        key for key in differing if key not in _OWN and not key.startswith("version.") and not key.endswith(CONTENT)
    ]
    if 1 <= len(telling) <= 2:
        named = {key.removeprefix("rule."): mine.get(key) for key in telling}
        differences = [
            f"no {name}" if value is None else f"{name} {shown_spec(str(value))}" for name, value in named.items()
        ]
        return f"{method} ({', '.join(differences)})"
    return f"{method} ({_folder(first, rivals)})"


def _folder(run: RunReader, others: Sequence[RunReader]) -> str:
    """Return the name of a run's folder, with its parent if another run's folder has the same name."""
    path = run.path.resolve()
    shared = [other for other in others if other.path.resolve().name == path.name]
    return path.name if len(shared) <= 1 else f"{path.parent.name}/{path.name}"


def without_repeats(runs: Sequence[RunReader]) -> list[RunReader]:
    """Return the runs without repeats: a second comparison may contain the same baselines as the first."""
    kept: dict[str, RunReader] = {}
    for place, run in enumerate(runs):
        outcome = (run.info.get("status"), run.info.get("final"), run.series("loss"), run.series("reward"))
        known = run.info and run.series("loss")[0]
        kept.setdefault(dump([_shared(run, _OWN - {"seed"}), *outcome]) if known else f"alone {place}", run)
    return list(kept.values())
