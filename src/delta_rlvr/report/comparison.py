"""Final scores with intervals, tests between groups of runs, and what they say in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from delta_rlvr.evaluate.significance import holm, mann_whitney
from delta_rlvr.report.groups import RunGroup, compare_settings, run_label
from delta_rlvr.runs import RunReader

LEVEL = 0.05
# Rows that the page shows of one evaluation.
FACTS = 80


def comparison(runs: Sequence[RunReader], groups: Sequence[RunGroup]) -> dict[str, Any]:
    """What the comparison section shows: scores of each run and group, tests, a sentence, settings."""
    scores = [_scores(run) for run in runs]
    summaries = [_summary(group, [scores[place]["after"] for place in group.members]) for group in groups]
    tests = _tests(summaries)
    differing, agreeing = compare_settings(runs)
    return {
        "runs": [{"label": run_label(run), **score} for run, score in zip(runs, scores, strict=True)],
        "groups": summaries,
        "tests": tests,
        "sentence": _sentence(summaries, tests, scores),
        "differing": differing,
        "agreeing": agreeing,
        "evaluations": [{name: _facts(value) for name, value in run.evaluations.items()} for run in runs],
    }


def _scores(run: RunReader) -> dict[str, Any]:
    final = run.info.get("final")
    final = final if isinstance(final, dict) else {}
    return {moment: _score(final.get(moment)) for moment in ("before", "after")}


def _score(value: Any) -> dict[str, Any] | None:
    """One held-out result, or None where there is no accuracy in it."""
    if not isinstance(value, dict) or not _finite(value.get("accuracy")):
        return None
    keys = ("accuracy", "low", "high", "problems", "samples")
    return {key: value[key] if _finite(value.get(key)) else None for key in keys}


def _summary(group: RunGroup, finals: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Mean over the group's runs. Several seeds: Student's interval over seeds; one run: its own interval."""
    known = [final for final in finals if final is not None]
    values = [float(final["accuracy"]) for final in known]
    summary: dict[str, Any] = {
        "label": group.label,
        "values": values,
        "mean": None,
        "low": None,
        "high": None,
    }
    if not values:
        return {**summary, "interval": "no final score"}
    summary["mean"] = float(np.mean(values))
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
        summary |= {"low": summary["mean"] - half, "high": summary["mean"] + half}
        return {**summary, "interval": f"95 % interval of the mean over {len(values)} seeds"}
    summary |= {"low": known[0]["low"], "high": known[0]["high"]}
    return {**summary, "interval": "one run: interval over its problems, blind to the seed"}


def _tests(summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two-sided tests for every pair of groups, adjusted together (Holm)."""
    found = []
    for first, second in combinations(range(len(summaries)), 2):
        outcome = _test(summaries[first], summaries[second])
        if outcome is not None:
            found.append({"first": first, "second": second, **outcome})
    for test, adjusted in zip(found, holm([test["p"] for test in found]), strict=True):
        test["p_adjusted"] = adjusted
    return found


def _test(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any] | None:
    a, b = first["values"], second["values"]
    if not a or not b:
        return None
    difference = first["mean"] - second["mean"]
    if len(a) > 1 and len(b) > 1:
        outcome = mann_whitney(a, b, alternative="two-sided")
        # The smallest p that so few seeds can give, ties aside: 2 / (n+m choose n).
        floor = 2 / math.comb(len(a) + len(b), len(a))
        name = f"Mann-Whitney U over {len(a)} and {len(b)} seeds, {outcome.method}"
        return {"difference": difference, "p": outcome.p, "floor": floor, "test": name, "over": "seeds"}
    errors = [_standard_error(group) for group in (first, second)]
    if None in errors:
        return None
    spread = math.hypot(*(error for error in errors if error is not None))
    p = float(2 * stats.norm.sf(abs(difference) / spread)) if spread > 0 else float(difference == 0)
    name = "z test from the two intervals, as if the problems were independent"
    return {"difference": difference, "p": p, "floor": 0.0, "test": name, "over": "problems"}


def _standard_error(group: dict[str, Any]) -> float | None:
    if group["low"] is None or group["high"] is None:
        return None
    return float(group["high"] - group["low"]) / (2 * float(stats.norm.ppf(0.975)))


def _sentence(
    summaries: Sequence[dict[str, Any]], tests: Sequence[dict[str, Any]], scores: Sequence[dict[str, Any]]
) -> str:
    ranked = sorted((s for s in summaries if s["mean"] is not None), key=lambda s: -s["mean"])
    if not ranked:
        return "No run has a held-out score yet, so there is nothing to compare."
    if len(ranked) == 1:
        return _alone(ranked[0], scores)
    best, second = ranked[0], ranked[1]
    lead = (
        f"{best['label']} ends at {_percent(best['mean'])}, {second['label']} at {_percent(second['mean'])}"
    )
    pair = {summaries.index(best), summaries.index(second)}
    test = next((test for test in tests if {test["first"], test["second"]} == pair), None)
    if test is None:
        return f"{lead}; without intervals or several seeds this difference cannot be tested."
    points = f"{100 * abs(test['difference']):.1f} points"
    if test["p_adjusted"] < LEVEL:
        verdict = f"the difference of {points} is more than chance would explain"
    elif test["floor"] >= LEVEL:
        verdict = f"with so few seeds no difference could pass a test, so {points} settle nothing"
    else:
        verdict = f"the difference of {points} is within what chance would explain"
    tail = "; a difference over problems of single runs says nothing about other seeds"
    adjusted = ", adjusted for the number of comparisons" if len(tests) > 1 else ""
    return (
        f"{lead}: {verdict} (p = {test['p_adjusted']:.2g}{adjusted}; {test['test']})"
        f"{tail if test['over'] == 'problems' else ''}."
    )


def _alone(group: dict[str, Any], scores: Sequence[dict[str, Any]]) -> str:
    before = [score["before"]["accuracy"] for score in scores if score["before"] and score["after"]]
    after = [score["after"]["accuracy"] for score in scores if score["before"] and score["after"]]
    if not before:
        return f"{group['label']} ends at {_percent(group['mean'])} on held-out problems."
    change = 100 * (float(np.mean(after)) - float(np.mean(before)))
    return (
        f"{group['label']} goes from {_percent(float(np.mean(before)))} to {_percent(float(np.mean(after)))} on "
        f"held-out problems ({change:+.1f} points). Give another method's runs to compare with."
    )


def _facts(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The numbers and short texts of an evaluation, nested names joined; its lists (single samples) stay in the folder."""
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, dict):
            found += _facts(item, f"{prefix}{key}.")
        elif item is not None and not isinstance(item, list) and len(str(item)) <= 200:
            found.append((prefix + key, item))
    return found[:FACTS]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
