"""What both engines record of a step: metrics, sampled rollouts, and a note if a step had no learning signal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from delta_rlvr.files import is_number
from delta_rlvr.models.token_texts import token_texts, vocabulary_texts
from delta_rlvr.rewards import OVERLONG
from delta_rlvr.runs.writer import RunWriter
from delta_rlvr.weight_words import weights_in_effect

Decisive = Callable[[list[str]], list[int] | None]
"""A function from a response's token texts to 0 or 1 per token, or None where the task does not know."""

IN_FOLDER = "look at the responses and reasons in the run's rollouts folder"


def is_sampled(step: int, *, every: int, last: int, updates: float = 1) -> bool:
    """Return whether the rollouts that are first used at `step` are written: those used at every `every`-th step (0: none), and at the
    first and the last step of the run. A rollout batch is used for `updates` steps. `last` is 0 if unknown."""
    ends = last > 0 and step > last - updates
    return every > 0 and (step == 1 or step % every < updates or ends)


class Recorder:
    """Writes steps to a run folder, with texts for token ids."""

    def __init__(
        self,
        writer: RunWriter,
        tokenizer: Any,
        *,
        groups: int = 4,
        length_limit: str = "max_completion_length",
        group_size: str = "num_generations",
    ):
        """`groups`: the number of prompts whose rollouts are written (0: all). `length_limit`, `group_size`: the engine's options."""
        self.writer, self.tokenizer, self.groups = writer, tokenizer, groups
        self._names = (length_limit, group_size)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Functions that get every line of metrics."""
        self.viewers: list[Callable[[int, list[dict[str, Any]]], None]] = []
        """Functions that get the rollouts of every sampled step."""

    def log(self, line: Mapping[str, Any]) -> None:
        """Write the metrics of a step, with a note if it had no learning signal or its weights have no effect."""
        note = no_signal(line, IN_FOLDER, *self._names) or _in_effect(line)
        written = self.writer.log({**line, "note": note} if note else line)
        for listener in self.listeners:
            listener(written)

    def keeps(self, group: int) -> bool:
        """Return whether the responses to the prompt of this index are written."""
        return not self.groups or group < self.groups

    def write_rollouts(self, step: int, responses: Iterable[Mapping[str, Any]]) -> None:
        """Write the responses of a step, each with its `ids` and further facts. `decisive` may be a function of the token texts."""
        lines = [self._line(step, one) for one in responses]
        self.writer.write_rollouts(step, lines)
        for viewer in self.viewers:
            viewer(step, lines)

    def save_tokens(self, step: int | None = None) -> None:
        """Write the token sums, and with `step` a copy into that step's checkpoint."""
        self.writer.save_tokens(step, lambda ids: vocabulary_texts(self.tokenizer, ids))

    def _line(self, step: int, response: Mapping[str, Any]) -> dict[str, Any]:
        tokens = token_texts(self.tokenizer, response["ids"])
        line = {"step": step, **response, "response": "".join(tokens), "tokens": tokens}
        if callable(decisive := line.get("decisive")):
            line["decisive"] = decisive(tokens)
        return {name: value for name, value in line.items() if value is not None or name in _ALWAYS}


_ALWAYS = ("prompt_id", "reason", "answer")
"""Facts that are null in the file if unknown; other unknown facts are left out."""


def no_signal(
    line: Mapping[str, Any],
    look: str = IN_FOLDER,
    length_limit: str = "max_completion_length",
    group_size: str = "num_generations",
) -> str | None:
    """Return why a step had no learning signal, or None if the rewards of some group differ. `look` is advice where the cause is
    unknown."""
    if line.get("signal_groups", 1) > 0:
        return None
    reward = line.get("reward") or 0.0
    all_cut = line.get("truncated", 0) >= 0.99
    means = _means_of_rewards(line)
    if means and not any(map(is_number, means)):
        cause = f"the reward scored no response: it gave None (or NaN) for every one ({look})"
    elif _constant_and_ungraded(line):
        cause = (
            f"every response got the reward {reward:.4g}: look at your reward function, which does not distinguish them"
        )
        if all_cut:
            cause += f", and at {length_limit}, where every response was cut"
    elif all_cut and reward <= 0:
        cause = f"every response was cut at the length limit before it gave an answer: raise {length_limit}"
    elif reward == 0:
        cause = (
            "every response was graded 0: the problems are too hard for the model, or the grader (or your reward function) does not "
            f"find the answers ({look})"
        )
    elif reward == 1:
        cause = "every response was right: the problems are too easy for the model; take harder ones"
    else:
        cause = (
            f"all responses of each group got the same reward: sample more responses per prompt ({group_size}), or raise the "
            "temperature"
        )
    return f"no learning signal: {cause}"


def learnt_nothing(metrics: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a sentence if a whole run had no learning signal, else None."""
    shares = [line["signal_groups"] for line in metrics if line.get("signal_groups") is not None]
    if shares and not any(shares):
        return "Nothing was learnt: in no step did the rewards of a group differ (the notes of the steps say why)."
    return None


def _in_effect(line: Mapping[str, Any]) -> str | None:
    mean, std = line.get("weight_signal_mean"), line.get("weight_signal_std")
    return None if mean is None or std is None else weights_in_effect(mean, std)


def came_to_nothing(metrics: Iterable[Mapping[str, Any]], scores: Sequence[float] = ()) -> str | None:
    """Return a sentence if a run had no learning signal or its policy collapsed, else None. `scores`: held-out, before and after."""
    metrics = list(metrics)
    lines = [line for line in metrics if None not in (line.get("signal_groups"), line.get("reward"))]
    if silence := learnt_nothing(metrics):
        return silence
    quarter = len(lines) // 4
    begin, end = lines[:quarter], lines[len(lines) - quarter :]
    if quarter < 3 or not all(line["signal_groups"] for line in begin):  # less may be the luck of a few samples
        return None
    first, last = (sum(line["reward"] for line in part) / quarter for part in (begin, end))
    silent = not any(line["signal_groups"] for line in end)
    if last < first - abs(first) / 2 and (silent or (len(scores) == 2 and scores[1] == 0 < scores[0])):
        return (
            f"The policy collapsed: the mean reward went from {first:.3g} to {last:.3g}. Lower the learning rate, and take an earlier "
            f"checkpoint ({IN_FOLDER})."
        )
    return None


def _constant_and_ungraded(line: Mapping[str, Any]) -> bool:
    """Return whether all rewards of the batch are equal, and not the 0 or 1 of a grader (overlong penalties left out)."""
    spread, reward = line.get("reward_std"), line.get("reward") or 0.0
    # The mean of equal float32 numbers, and so their spread, has a rounding error of a few times 1.2e-7 of their size.
    if spread is None or spread > 1e-5 * abs(reward):
        return False
    return any(value not in (0, 1) for value in _means_of_rewards(line))


def _means_of_rewards(line: Mapping[str, Any]) -> list[Any]:
    """Of each reward function, but for the overlong penalty."""
    names = (name for name in line if name.startswith("rewards/") and name.endswith("/mean"))
    return [line[name] for name in names if name != f"rewards/{OVERLONG}/mean"]
