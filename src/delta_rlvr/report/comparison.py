"""The comparison section: final scores with intervals, the test of the methods over seeds, and its conclusion."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from delta_rlvr.evaluate.compare import paired_change, run_scores_unlike
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.evaluate.seeds import INTERVAL_SEEDS, SeedTable, few_problems, p_text, seed_table, student_interval
from delta_rlvr.files import is_number
from delta_rlvr.report.groups import RunGroup, run_labels, settings_by_group
from delta_rlvr.report.heldout import before_last_step, differences, script_differences
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import COMPARISON, CONTENT, EVALUATIONS
from delta_rlvr.score_units import EVAL_REWARD, POINTS, REWARD, ScoreUnit, score_unit
from delta_rlvr.specs import shown_spec
from delta_rlvr.weight_words import without_effect
from delta_rlvr.words import command_line, listed

# The most rows of an evaluation on the page.
FACTS = 80

_SCORED_EARLY = "scored before the last step"

_NOT_A_RESULT = (AttributeError, KeyError, TypeError, ValueError)
"""The errors of reading a file in `evaluations/` that is not a result of ours."""


def comparison(runs: Sequence[RunReader], groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Return the data of the comparison section: scores of each run and group, tests, a sentence, settings.

    The first group with a score is the baseline, like the first method of `delta-rlvr compare`. If no run has a held-out score, as
    with a training script without one, the scores are mean rewards over training.
    """
    scores = _all_scores(runs)
    steps = None
    if not any(score["before"] or score["after"] for score in scores):
        steps, scores = _training_rewards(runs)
    names = _names(groups)
    by_group = _seed_scores(runs, groups, names, scores)
    asked = _asked(runs)
    by_trl = _trl_steps(scores)
    if steps or by_trl:
        apart = script_differences(runs, scores, evaluated=bool(by_trl))
    else:
        apart = differences(runs, scores)
    comparable = len(by_group) > 1 and len(asked) == 1 and not apart
    own = list(map(_own_reward, runs, scores))
    unit = EVAL_REWARD if by_trl else REWARD if steps or any(own) else POINTS
    # With several tasks or rewards, each run has its own unit.
    units = [unit if steps or by_trl or (len(asked) == 1 and not apart) else score_unit(each) for each in own]
    rough = [few for few in map(_few_problems, runs, scores) if few]
    starts = [
        None if run_scores_unlike(run.evaluations) else (score["before"] or {}).get("accuracy")
        for run, score in zip(runs, scores, strict=True)
        if score["after"]
    ]
    stored = _stored(runs)
    rates = [
        rate if "tuned" not in stored and is_number(rate := _setting(run, "learning_rate")) else None for run in runs
    ]
    effects = {
        name: without_effect(line for place in group.members for line in runs[place].metrics)
        for name, group in zip(names, groups, strict=True)
    }
    compared = seed_table(by_group, unit, rough[0] if rough else None, starts, rates, effects) if comparable else None
    labels = run_labels(runs)
    differing, agreeing = settings_by_group(runs, groups)
    return {
        "runs": [
            {"label": label, "unit": _shown(unit), **score}
            for label, unit, score in zip(labels, units, scores, strict=True)
        ],
        "groups": [
            _summary(
                group,
                [scores[at]["after"] for at in group.members],
                [runs[at].info.get("seed") for at in group.members],
            )
            for group in groups
        ],
        "tests": _tests(compared) if compared else [],
        "gap": compared.gap_name if compared else None,
        "reward_steps": steps,
        "unit": _shown(unit),
        "verdict": (
            _apart(apart, "eval_rewards" if by_trl else "rewards" if steps else "held-out evaluations")
            if apart and len(asked) == 1
            else _verdict(by_group, compared, steps, scores, asked, unit, runs)
        )
        + ("" if steps else _lengths(runs) + _edited(runs))
        + _outdated(runs, labels),
        "sentence": " ".join(filter(None, [_basis(compared, steps, labels, scores), stored.get("tuned")])),
        "beside": stored.get("beside"),
        "how_to_score": _how_to_score(runs) if steps else None,
        "differing": differing,
        "agreeing": agreeing,
        "evaluations": [{name: _facts(value) for name, value in run.evaluations.items()} for run in runs],
    }


def _shown(unit: ScoreUnit) -> dict[str, Any]:
    return {"scale": unit.scale, "digits": unit.digits, "sign": unit.sign, "score": unit.score}


def _asked(runs: Sequence[RunReader]) -> list[str]:
    """Return the distinct tasks and rewards of the runs: scores of different ones are not comparable."""
    kinds = {}
    for run in runs:
        reward = _setting(run, "reward")
        task = str(run.info.get("task") or "an unknown task")
        kinds[task, reward] = f"{task.partition('?')[0]} judged by {reward}" if reward else shown_spec(task)
    return list(kinds.values())


def _stored(runs: Sequence[RunReader]) -> dict[str, Any]:
    """What `delta-rlvr compare` concluded of exactly these runs."""
    try:
        (folder,) = {run.path.parent for run in runs}
        stored = json.loads((folder / COMPARISON).read_text(encoding="utf-8"))
        meant = {(method, seed) for method in stored["scores"] for seed in stored["seeds"]}
        return stored if meant == {(run.info.get("method"), run.info.get("seed")) for run in runs} else {}
    except (OSError, *_NOT_A_RESULT):
        return {}


def _lengths(runs: Sequence[RunReader]) -> str:
    """A warning where held-out scores are compared of runs that did not train for equally long."""
    lengths = sorted({run.info["steps"] for run in runs if is_number(run.info.get("steps"))})
    return (
        "" if len(lengths) < 2 else f" The runs have different lengths ({listed([str(one) for one in lengths])} steps)."
    )


def _edited(runs: Sequence[RunReader]) -> str:
    """A warning where held-out scores are compared that versions of one reward gave."""
    versions = {version for run in runs if (version := _setting(run, f"reward{CONTENT}"))}
    return (
        ""
        if len(versions) < 2
        else " The file of the reward was edited between the runs: their scores differ by that, too."
    )


def _apart(differing: str, scores: str) -> str:
    return f"These runs are not compared: their {scores} differ in {differing}."


def _outdated(runs: Sequence[RunReader], labels: Sequence[str]) -> str:
    """A sentence about held-out scores that are not of the weights after the last step."""
    old = [label for run, label in zip(runs, labels, strict=True) if any(_SCORED_EARLY in one for one in run.problems)]
    return f" Not used: the held-out score of {listed(old)}, {_SCORED_EARLY}." if old else ""


def _setting(run: RunReader, name: str) -> Any:
    settings = run.info.get("settings")
    return settings.get(name) if isinstance(settings, dict) else None


def _verdict(
    by_group: Mapping[str, Mapping[int, float]],
    compared: SeedTable | None,
    steps: int | None,
    scores: Sequence[dict[str, Any]],
    asked: Sequence[str],
    unit: ScoreUnit,
    runs: Sequence[RunReader],
) -> str:
    """Return the sentence at the top of the page."""
    if compared:
        return compared.verdict
    if len(by_group) > 1:
        return f"These runs are not compared: their scores are of {len(asked)} tasks or rewards ({'; '.join(asked)})."
    return _alone_in_training(by_group, steps) if steps else _alone(by_group, scores, unit, runs)


def _basis(
    compared: SeedTable | None, steps: int | None, labels: Sequence[str], scores: Sequence[dict[str, Any]]
) -> str:
    """Return the sentences about the test and about missing scores."""
    missing = [label for label, score in zip(labels, scores, strict=True) if not score["after"]]
    evaluated = _trl_steps(scores)
    sentences = [
        f"The scores are TRL's last eval_reward: the script's rewards, weighted and added up, on its eval_dataset, "
        f"at {_at(evaluated)}."
        if evaluated and compared
        else None,
        f"There is no held-out score: these are mean rewards over the first {_steps(steps)} of training."
        if steps and compared
        else None,
        compared.basis if compared else None,
        f"Left out, without a score: {', '.join(missing)}." if 0 < len(missing) < len(labels) else None,
    ]
    return " ".join(filter(None, sentences))


def _steps(steps: int) -> str:
    return "step" if steps == 1 else f"{steps} steps"


def _own_reward(run: RunReader, score: Mapping[str, Any]) -> bool:
    """Return whether a custom reward judged, by the settings of the run or by its scores."""
    return bool(_setting(run, "reward")) or any(
        score[when] and score[when]["own_reward"] for when in ("before", "after")
    )


def _few_problems(run: RunReader, score: Mapping[str, Any]) -> str | None:
    return few_problems(score["after"]["problems"], _setting(run, "eval_problems")) if score["after"] else None


def _all_scores(runs: Sequence[RunReader]) -> list[dict[str, Any]]:
    """Return the scores of each run. TRL's own evaluations count only where no run has a held-out score: they measure another thing."""
    scores = [_scores(run) for run in runs]
    if any(one and one["step"] is None for score in scores for one in score.values()):
        return [{moment: None if one and one["step"] is not None else one for moment, one in s.items()} for s in scores]
    return scores


def _scores(run: RunReader) -> dict[str, Any]:
    """Return the held-out scores: those of run.json, or of evaluations in the run folder; without either, TRL's own evaluations."""
    final = run.info.get("final")
    final = final if isinstance(final, dict) else {}
    scores = {}
    for moment in ("before", "after"):
        known = _score(final.get(moment))
        scores[moment] = known if known and known["step"] is None else _evaluated(run, moment) or known
    return scores


def _trl_steps(scores: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the steps of the last of TRL's own evaluations; none where the scores are not theirs."""
    return sorted({score["after"]["step"] for score in scores if score["after"] and score["after"]["step"] is not None})


def _at(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {listed([str(step) for step in steps])}"


def _evaluated(run: RunReader, moment: str) -> dict[str, Any] | None:
    """Return the score in `evaluations/heldout_before.json` or `heldout_after.json`, the files that `train` writes."""
    document = run.evaluations.get(f"heldout_{moment}")
    if document is None:
        return None
    try:
        result = EvaluationResult(document)
        if moment == "after" and before_last_step(run, document):
            why = f"it was {_SCORED_EARLY}: delete it and its samples, and evaluate again"
        elif result.complete:
            return _score(result.summary())
        else:
            why = "samples are missing: run the same command again"
    except _NOT_A_RESULT:
        why = "it is not a result of `delta-rlvr evaluate`"
    run.problems.append(f"{EVALUATIONS}/heldout_{moment}.json gives no held-out score: {why}")
    return None


def _training_rewards(runs: Sequence[RunReader]) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the number of steps that all runs have (None if there are none), and each run's mean reward over them."""
    curves = [run.series("reward") for run in runs]
    last = min((steps[-1] for steps, _ in curves if steps), default=None)
    scores: list[dict[str, Any]] = []
    for steps, rewards in curves:
        known = [reward for step, reward in zip(steps, rewards, strict=True) if step <= (last or 0)]
        scores.append({"before": None, "after": _score({"accuracy": statistics.fmean(known)}) if known else None})
    return last, scores


def _score(value: Any) -> dict[str, Any] | None:
    """Return a held-out score, or None if `value` has no accuracy."""
    if not isinstance(value, dict) or not is_number(value.get("accuracy")):
        return None
    keys = ("accuracy", "low", "high", "problems", "samples", "step")  # the step: of TRL's own evaluations alone
    score = {key: value[key] if is_number(value.get(key)) else None for key in keys}
    note = value.get("interval_note")
    facts = {"own_reward": value.get("own_reward") is True, "interval_note": note if isinstance(note, str) else None}
    return score | facts | _interval(score["low"], score["high"])


def _interval(low: float | None, high: float | None) -> dict[str, float | None]:
    """Return both ends, or None for both if nothing varied: see `interval_text`."""
    spread = low is not None and high is not None and low < high
    return {"low": low if spread else None, "high": high if spread else None}


def _summary(group: RunGroup, finals: list[dict[str, Any] | None], seeds: list[Any]) -> dict[str, Any]:
    """Return the mean over the runs of a group. With several seeds it has Student's interval over seeds, or every score if there are
    few; with one run, that run's interval."""
    known = [final for final in finals if final is not None]
    scored = [seed for seed, final in zip(seeds, finals, strict=True) if final is not None]
    values = [float(final["accuracy"]) for final in known]
    low, high, note, each = None, None, None, []
    if not values:
        words = "no final score"
    elif len(values) == 1:
        low, high, note = (known[0][key] for key in ("low", "high", "interval_note"))
        words = "one run: interval over its problems, not over seeds"
    elif interval := student_interval(values):
        low, high = interval
        if min(values) >= 0 and max(values) <= 1:  # shares; custom rewards may be anything
            low, high = max(0.0, low), min(1.0, high)
        words = f"95 % interval of the mean over {len(values)} seeds"
    else:
        each, words = values, f"an interval needs {INTERVAL_SEEDS} seeds"
    return {
        "label": group.label,
        "mean": statistics.fmean(values) if values else None,
        **_interval(low, high),
        "interval_note": note,
        "each": each,
        "seeds": scored,
        **({"scored": len(values)} if values else {}),
        "interval": words,
    }


def _names(groups: Sequence[RunGroup]) -> list[str]:
    """Return the labels of the groups; one that an earlier group has gets its number."""
    labels = [group.label for group in groups]
    return [
        f"{label} (group {number})" if label in labels[: number - 1] else label
        for number, label in enumerate(labels, 1)
    ]


def _seed_scores(
    runs: Sequence[RunReader], groups: Sequence[RunGroup], names: Sequence[str], scores: Sequence[dict[str, Any]]
) -> dict[str, dict[int, float]]:
    """Return the final scores of each group by seed, without groups that have none. Runs without a seed get distinct negative ones."""
    by_group: dict[str, dict[int, float]] = {}
    for name, group in zip(names, groups, strict=True):
        by_seed = {}
        for place in group.members:
            if scores[place]["after"]:
                seed = runs[place].info.get("seed")
                own_seed = seed if isinstance(seed, int) else -1 - place
                by_seed[own_seed] = float(scores[place]["after"]["accuracy"])
        if by_seed:
            by_group[name] = by_seed
    return by_group


def _tests(compared: SeedTable) -> list[dict[str, str]]:
    """Return the rows of the table of tests as text, as in `delta-rlvr compare`."""
    baseline, *others = compared.rows
    return [
        {
            "pair": f"{row.method} against {baseline.method}",
            "difference": compared.gap(row),
            "p": p_text(compared.p(row)),
            "p_adjusted": p_text(compared.p_adjusted(row)),
            "test": compared.test_name,
        }
        for row in others
    ]


def _alone_in_training(by_group: Mapping[str, Mapping[int, float]], steps: int) -> str:
    ((label, by_seed),) = by_group.items()
    mean = REWARD.plain(statistics.fmean(by_seed.values()))
    return f"{label} has no held-out score; its mean reward over the first {_steps(steps)} of training is {mean}."


def _how_to_score(runs: Sequence[RunReader]) -> dict[str, str]:
    """Return how to add held-out scores: a sentence, and one command per run to copy."""
    commands = [
        command_line(
            *("delta-rlvr", "evaluate", "--model", run.path / "model", "--benchmarks", "FILE"),
            *("--output", run.path / EVALUATIONS / "heldout_after.json"),
        )
        for run in runs
    ]
    return {
        "words": "To compare held-out scores, run this with your file of problems as FILE, then make the page again (add "
        "`--reward FILE.py:NAME` for a custom reward, `--template_text` for your prompt, and `--max-tokens` and `-k` for the length "
        "and number of responses):",
        "commands": "\n".join(commands),
    }


def _change(runs: Sequence[RunReader]) -> str | None:
    """Return the change of the held-out score of a single run, with the test that `train` prints."""
    if len(runs) != 1:
        return None
    try:
        before, after = (EvaluationResult(runs[0].evaluations[f"heldout_{when}"]) for when in ("before", "after"))
        return paired_change(before, after)
    except (*_NOT_A_RESULT, EvaluationError):  # nothing to pair, or another's file
        return None


def _alone(
    by_group: Mapping[str, Mapping[int, float]],
    scores: Sequence[dict[str, Any]],
    unit: ScoreUnit,
    runs: Sequence[RunReader],
) -> str:
    if not by_group:
        return "No run has a held-out score yet, so there is nothing to compare."
    ((label, by_seed),) = by_group.items()
    what = "" if unit.sign else f"a {unit.score} of "
    both = [score for score in scores if score["before"] and score["after"]]
    steps = _trl_steps(scores)
    where = f"on the eval_dataset ({_at(steps)})" if steps else "on held-out problems"
    if not both:
        ends = unit.shown(statistics.fmean(by_seed.values()))
        return f"{label} ends at {what}{ends} {where}."
    before, after = (statistics.fmean(score[when]["accuracy"] for score in both) for when in ("before", "after"))
    change = _change(runs) or f"{unit.signed(after - before)} {unit.name}"
    if apart := next(filter(None, (run_scores_unlike(run.evaluations) for run in runs)), ""):
        change = f"the two scores differ in {apart}, so they cannot be compared"
    other = "delta" if label == "dapo" else label
    compare = runs[0].info.get("compare") or command_line("delta-rlvr", "compare", "--methods", f"dapo,{other}")
    return (
        f"{label} goes from {what}{unit.shown(before)} to {unit.shown(after)} {where}: {change}. "
        f"To see what the weights add, run: `{compare}`."
    )


def _facts(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the numbers and short texts of an evaluation, with nested names joined and without lists (of samples)."""
    facts: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, dict):
            facts += _facts(item, f"{prefix}{key}.")
        elif item is not None and not isinstance(item, list) and len(str(item)) <= 200:
            facts.append((prefix + key, item))
    return facts[:FACTS]
