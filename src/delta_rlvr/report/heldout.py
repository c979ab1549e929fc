"""Whether the scores of a page can stand beside each other: made alike, and held-out ones of the weights after the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from delta_rlvr.files import is_number
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import CONTENT
from delta_rlvr.words import listed

_SAMPLING = ("temperature", "top_p", "max_tokens", "stop")


def differences(runs: Sequence[RunReader], scores: Sequence[Mapping[str, Any]]) -> str:
    """Return in what the evaluations of these runs differ, in words ("samples (4; 2) and temperature (1; 0.5)"); "" if in nothing.

    Only runs with a held-out score count, and only what their files say. The seeds of the samples may differ.
    """
    scored = [_facts(run, score["after"]) for run, score in zip(runs, scores, strict=True) if score["after"]]

    differ = partial(_differ, scored)
    asked = differ("digests")
    names = [name for name in ("prompt", "extract", "samples", *_SAMPLING) if differ(name)]
    # A grader that is named and the same one by default give equal digests.
    if differ("reward") and (asked or any(one["own"] for one in scored)):
        names.insert(0, "reward")
    # A prompt and a grader are in the digest too.
    if differ("ids") or differ("count") or (asked and not {"prompt", "reward"} & {*names}):
        names.insert(0, "problems")
    return listed([_named(name, [one[name] for one in scored]) for name in names])


def script_differences(runs: Sequence[RunReader], scores: Sequence[Mapping[str, Any]], *, evaluated: bool) -> str:
    """Return in what the mean rewards of scripts' runs differ, in words: those on the eval_dataset if `evaluated`, else of training."""
    scored = [run.info.get("settings") for run, score in zip(runs, scores, strict=True) if score["after"]]
    settings = [one for one in scored if isinstance(one, dict)]

    differ = partial(_differ, settings)
    names = []
    if evaluated and differ(f"eval_dataset{CONTENT}"):
        names.append(_named("eval_dataset", [f"{one['eval_rows']} rows" for one in settings if one.get("eval_rows")]))
    if any(map(differ, (f"reward{CONTENT}", f"reward_settings{CONTENT}", "reward_weights"))):
        names.append("reward functions or their settings")
    return listed(names)


def _differ(facts: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether a fact differs where it is known."""
    known = [one[name] for one in facts if one.get(name) is not None]
    return any(value != known[0] for value in known)


def _facts(run: RunReader, score: Mapping[str, Any]) -> dict[str, Any]:
    """Return what made a score; None for what is not known."""
    document = run.evaluations.get("heldout_after", {})
    settings, parts = (
        value if isinstance(value := document.get(key), dict) else {} for key in ("settings", "benchmarks")
    )
    samples = value if isinstance(value := document.get("samples"), list) else []
    benchmarks = sorted(
        (one for one in parts.values() if isinstance(one, dict)), key=lambda one: str(one.get("digest"))
    )
    loads = [one["load"] for one in benchmarks if isinstance(one.get("load"), dict)]

    def of_each(key: str) -> Any:
        values = [one.get(key) for one in benchmarks]
        return None if None in values or not values else values

    files = [one["source"].get("file") for one in benchmarks if isinstance(one.get("source"), dict)]
    count = score["problems"]
    names = " and ".join(str(file).rpartition("/")[2] for file in files if file)
    return {
        "problems": None if count is None else f"{count} of {names}" if names else str(count),
        "count": count,
        "ids": {str(one.get("problem")) for one in samples if isinstance(one, dict)} or None,
        "digests": of_each("digest"),
        "prompt": of_each("prompt"),
        "extract": of_each("extract"),
        "reward": [_file_name(load.get("reward")) for load in loads] or None,
        "own": score["own_reward"],
        "samples": score["samples"],
        **{name: settings.get(name) for name in _SAMPLING},
    }


def _file_name(reward: Any) -> str:
    """Return a reward without the folder of its file, which may be given in several ways."""
    return "its own" if reward is None else str(reward).rpartition("/")[2]


def _named(name: str, values: Sequence[Any]) -> str:
    """Return a difference with its values, where these are short and tell it."""
    shown = list(dict.fromkeys(_text(value) for value in values if value is not None))
    words = {"prompt": "prompt template", "extract": "answer extraction", "stop": "stop texts"}
    words |= {"max_tokens": "max tokens", "top_p": "top-p"}
    values_shown = f" ({'; '.join(shown)})" if len(shown) > 1 and len("".join(shown)) <= 120 else ""
    return words.get(name, name) + values_shown


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(repr(one)[1:-1] if isinstance(one, str) else str(one) for one in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def before_last_step(run: RunReader, document: Mapping[str, Any]) -> bool:
    """Return whether an evaluation began before the run's last step.

    By the times inside the files, which a copy of the folder keeps. A run cannot have taken its last step before a resume that it came
    after, nor before as many seconds as it trained.
    """
    began = _time((document.get("run") or {}).get("started"))
    if began is None:
        return False
    last = run.metrics[-1] if run.metrics else {}
    steps = max(int(last.get("step", 0)), run.info.get("steps") or 0)
    resumes = [one for one in run.info.get("resumed") or () if isinstance(one, dict)]
    times = [_time(one.get("time")) for one in resumes if is_number(one.get("step")) and one["step"] < steps]
    if any(time is not None and began < time for time in times):
        return True
    started, seconds = _time(run.info.get("started")), last.get("time")
    if started is None or seconds is None or not is_number(seconds):
        return False
    # The stored times are cut to whole seconds.
    return bool(began + timedelta(seconds=1) <= started + timedelta(seconds=float(seconds)))


def _time(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
