"""Readers of rollouts, one for the files of each engine (docs/report.md has the keys)."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from delta_rlvr.files import is_number
from delta_rlvr.hints import did_you_mean, near_file
from rlvr_graders.functions import completion_text
from rlvr_graders.lines import each_once, json_value, numbered_lines

FORMATS = (
    "JSON Lines or Parquet with prompt, response, reward (such as a run's own rollouts/*.jsonl.gz), TRL's completions_*.parquet, "
    "verl's rollout dumps (.jsonl), prime-rl's traces.jsonl, or slime's debug rollout data (.pt)"
)

Row = Mapping[str, Any]
_ALL_OR_NONE = ("group", "advantage", "ids")
"""The optional keys of a line that every line has, or none: with some of them responses would be compared by two measures."""


class RolloutFileError(ValueError):
    """The rollouts file cannot be used. The message names the line and what to do."""


@dataclass(frozen=True)
class Rollout:
    """One response of the file. Optional fields are None if the file does not have them."""

    where: str
    """The file and the place in it, for messages: "mine.jsonl line 3"."""
    prompt: str | list[dict[str, str]]
    """Text, or chat messages."""
    response: str
    """The text of the response; empty if there are only `ids`, or if it is empty."""
    reward: float
    group: str
    """The group within which advantages are computed: that of the file, or else the prompt."""
    advantage: float | None = None
    """The advantage that the engine computed."""
    prompt_ids: tuple[int, ...] | None = None
    ids: tuple[int, ...] | None = None
    """The sampled tokens."""
    decisive: tuple[bool, ...] | None = None
    """Labels of the decisive tokens, from a run of ours."""
    answer: Any = None
    """The reference answer."""
    step: int | None = None
    """The training step, counted from 1."""
    weighed: bool = False
    """Whether its line has the weights of a run of ours."""
    optional: frozenset[str] | None = None
    """Which of `_ALL_OR_NONE` its line has; None for other engines' files."""


def read_rollouts(
    path: str | Path, reward_key: str | None = None, prompt_key: str | None = None, response_key: str | None = None
) -> list[Rollout]:
    """Return the rollouts of a file; an error names the line that cannot be used.

    `reward_key` selects one of several rewards: a key of slime's reward, a column of TRL's table, a key of a line. `prompt_key` and
    `response_key` are the keys or columns of these in other files."""
    if not isinstance(path, str | PathLike):
        raise RolloutFileError(f"rollouts={path!r:.60}: give the path of a file, {FORMATS}")
    source = Path(path)
    if source.is_dir():
        inside = sorted(file.name for file in source.iterdir() if file.is_file())
        has = f" (it has {', '.join(inside[:6])}{', ...' if len(inside) > 6 else ''})" if inside else ""
        raise RolloutFileError(f"{source} is a folder{has}: name one file, {FORMATS}")
    if not source.is_file():
        raise RolloutFileError(f"{path}: there is no such file{near_file(source)}")
    try:
        if source.suffix == ".parquet":
            rollouts = list(_trl(source, reward_key, prompt_key, response_key))
        elif source.suffix in (".pt", ".pth"):
            rollouts = list(_slime(source, reward_key))
        else:
            rollouts = _json_lines(source, reward_key, prompt_key, response_key)
    except RolloutFileError as error:
        raise RolloutFileError(f"{source} {error}") from error
    if not rollouts:
        raise RolloutFileError(f"{source} is empty; give {FORMATS}")
    if not any(rollout.response or rollout.ids for rollout in rollouts):
        raise RolloutFileError(f"{source}: all responses are empty")
    for key in _ALL_OR_NONE:
        having = {key in one.optional: one.where for one in reversed(rollouts) if one.optional is not None}
        if len(having) == 2:
            raise RolloutFileError(
                f"{source} {having[False]} has no {key}, but {having[True]} has one: give all lines one, or none"
            )
    return [replace(one, where=f"{source} {one.where}") for one in rollouts]


# ---------------------------------------------------------------- JSON Lines: ours, plain ones, verl, prime-rl


def _json_lines(
    source: Path, reward_key: str | None, prompt_key: str | None, response_key: str | None
) -> list[Rollout]:
    rollouts: list[Rollout] = []
    for number, line in numbered_lines(source):
        rollouts += _line(line, f"line {number}", reward_key, prompt_key, response_key)
    return rollouts


def _line(
    line: str, where: str, reward_key: str | None, prompt_key: str | None, response_key: str | None
) -> list[Rollout]:
    try:
        row = json_value(line, where)
    except ValueError as error:
        not_json = isinstance(error.__cause__, json.JSONDecodeError)
        wanted = "; each line is one JSON object with prompt, response, reward" if not_json else ""
        raise RolloutFileError(f"{error}{wanted}") from error
    if not isinstance(row, dict):
        raise RolloutFileError(f"{where} is not an object: each line is one, with prompt, response, reward")
    if prompt_key or response_key:
        return [_plain(_renamed(row, where, prompt_key, response_key), where, reward_key or "reward")]
    if "traces" in row or "nodes" in row:
        try:
            return list(_prime_rl(row, where))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise RolloutFileError(
                f"{where} is not an episode of verifiers' schema 1 ({type(error).__name__}: {error})"
            ) from error
    if {"input", "output", "score"} <= row.keys():
        return [_verl(row, where, reward_key or "score")]
    return [_plain(row, where, reward_key or "reward")]


def _renamed(row: Row, where: str, prompt_key: str | None, response_key: str | None) -> dict[str, Any]:
    """Return the row with prompt and response under our names."""
    renamed = dict(row)
    for ours, theirs in (("prompt", prompt_key), ("response", response_key)):
        if theirs is not None:
            if theirs not in row:
                raise RolloutFileError(f"{where} has no {theirs}{did_you_mean(theirs, row)} (it has {_keys(row)})")
            renamed[ours] = row[theirs]
    return renamed


def _plain(row: Row, where: str, reward_key: str) -> Rollout:
    missing = [key for key in ("prompt", "response", reward_key) if key not in row]
    if missing:
        hints = [_near_key(key, row, is_reward=key == reward_key) for key in missing]
        # If one of the three has no likely name, renaming the others does not help.
        advice = "".join(hints) if all(hints) else f"; {_NEEDED}"
        raise RolloutFileError(f"{where} has no {' and no '.join(missing)} (it has {_keys(row)}){advice}")
    own = "ids" in row  # a run of ours
    response = row["response"]
    if not isinstance(response, str):
        raise RolloutFileError(f"{where}: response must be a text, got {response!r}")
    ids = _token_ids(row["ids"], where) if own else None
    decisive = row.get("decisive") if own else None
    if decisive is not None and (not isinstance(decisive, list) or len(decisive) != len(ids or ())):
        raise RolloutFileError(f"{where}: decisive must have one label for each of its {len(ids or ())} ids")
    advantage = row.get("advantage")
    group = row["prompt"] if row.get("group") is None else row["group"]
    present = {key for key in ("group", "advantage") if row.get(key) is not None} | ({"ids"} if own else set())
    return Rollout(
        where,
        _prompt(row.get("messages") or row["prompt"], where),
        response,
        _number(row[reward_key], where, reward_key),
        group if isinstance(group, str) else json.dumps(group),
        advantage=None if advantage is None else _number(advantage, where, "advantage"),
        ids=ids if response else None,
        decisive=tuple(map(bool, decisive)) if decisive is not None else None,
        answer=row.get("answer"),
        step=_step(row),
        weighed=own and "weight" in row,
        optional=frozenset(present),
    )


def _verl(row: Row, where: str, reward_key: str) -> Rollout:
    """Read a line of verl's `trainer.rollout_data_dir`: input, output, gts, score, step."""
    for key in ("input", "output"):
        if not isinstance(row[key], str):
            raise RolloutFileError(f"{where}: {key} must be a text, as verl writes it, got {type(row[key]).__name__}")
    # verl writes prompts as text that includes the chat template.
    if reward_key not in row:
        hint = _near_key(reward_key, row, is_reward=True)
        raise RolloutFileError(f"{where} has no {reward_key} (it has {_keys(row)}){hint}")
    reward = _number(row[reward_key], where, reward_key)
    return Rollout(where, row["input"], row["output"], reward, row["input"], answer=row.get("gts"), step=_step(row))


def _prime_rl(row: Row, where: str) -> Iterator[Rollout]:
    """Read a line of prime-rl's `rollouts/step_N/train/*/traces.jsonl`: an episode or a trace of verifiers' schema 1. Each sampled turn
    is a rollout with the reward of its trace."""
    group = (row.get("group") or {}).get("id")
    for trace in row.get("traces", [row]):
        if not trace.get("agent", {}).get("trainable", True):
            continue
        task = trace.get("task", {})
        name = group or task.get("key") or task.get("hash") or json.dumps(task, sort_keys=True)
        rewards = [reward for reward in trace.get("rewards", {}).values() if reward is not None]
        if not rewards:
            continue  # it failed and was not scored
        reward = sum(_number(each["score"], where, "score") * each.get("weight", 1.0) for each in rewards)
        nodes = trace.get("nodes", [])
        for place, node in enumerate(nodes):
            if node.get("sampled"):
                yield _prime_rl_turn(nodes, place, reward, name, where)


def _prime_rl_turn(nodes: Sequence[Row], place: int, reward: float, group: str, where: str) -> Rollout:
    node = nodes[place]
    before: list[Row] = []
    parent = node.get("parent")
    while parent is not None:
        before.insert(0, nodes[parent])
        parent = nodes[parent].get("parent")
    message, ids, sampled = node["message"], node.get("token_ids") or [], node.get("mask") or []
    first = sampled.index(True) if True in sampled else 0
    if not ids and message.get("reasoning_content"):
        raise RolloutFileError(f"{where}: a turn has separate reasoning and no token_ids, so its text is unknown")
    prompt_ids = [token for each in before for token in each.get("token_ids") or []] + ids[:first]
    credit = node.get("advantages")
    return Rollout(
        where,
        _prompt([_message(each["message"]) for each in before], where),
        "" if ids else message.get("content") or "",
        reward,
        group,
        advantage=sum(credit) / len(credit) if credit else None,
        prompt_ids=tuple(prompt_ids) if ids else None,
        ids=tuple(token for token, own in zip(ids, sampled, strict=True) if own) if ids else None,
    )


def _message(message: Row) -> dict[str, str]:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content if part.get("type") == "text")
    return {"role": message["role"], "content": content or ""}


# ---------------------------------------------------------------- TRL and slime


def _trl(source: Path, reward_key: str | None, prompt_key: str | None, response_key: str | None) -> Iterator[Rollout]:
    """Read a table of TRL's `log_completions=True` (completions/completions_NNNNN.parquet), or one with prompt, response, reward."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f'{source}: reading Parquet needs `pip install "delta-rlvr[tasks]"`') from error
    try:
        each_once(pyarrow.parquet.read_schema(source).names, "its columns")
        table = pyarrow.parquet.read_table(source)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise RolloutFileError(f"is not a Parquet file ({error})") from error
    except ValueError as error:
        raise RolloutFileError(str(error)) from error
    names = table.column_names
    if prompt_key or response_key or ("completion" not in names and "response" in names):
        for number, row in enumerate(table.to_pylist(), start=1):
            where = f"row {number}"
            yield _plain(_renamed(row, where, prompt_key, response_key), where, reward_key or "reward")
        return
    if missing := [name for name in ("prompt", "completion", "advantage") if name not in names]:
        raise RolloutFileError(
            f"has no column {' and no '.join(missing)}, which TRL's tables of completions have (it has {', '.join(names)})"
        )
    numeric = [
        name
        for name, kind in zip(names, table.schema.types, strict=True)
        if (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)) and name not in ("step", "advantage")
    ]
    if reward_key is not None and reward_key not in numeric:
        near = did_you_mean(reward_key, numeric)
        raise RolloutFileError(f"has no reward {reward_key!r}{near} (it has {', '.join(numeric) or 'none'})")
    chosen = numeric if reward_key is None else [reward_key]
    for number, row in enumerate(table.to_pylist(), start=1):
        where = f"row {number}"
        earned = [row[name] for name in chosen if row[name] is not None and not math.isnan(row[name])]
        prompt = _prompt(row["prompt"], where)
        yield Rollout(
            where,
            prompt,
            completion_text(row["completion"]),
            _number(sum(earned), where, "reward"),
            prompt if isinstance(prompt, str) else json.dumps(prompt),
            advantage=_number(row["advantage"], where, "advantage"),
            step=_step(row),
        )


def _slime(source: Path, reward_key: str | None) -> Iterator[Rollout]:
    """Read a file of slime's `--save-debug-rollout-data`: torch.save of {"rollout_id", "samples": [Sample.to_dict(), ...]}."""
    import torch

    try:
        # Tensors and plain values only: the file must not run code.
        stored = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile, pickle and torch raise many kinds
        raise RolloutFileError(f"cannot be read by torch ({str(error).splitlines()[0]})") from error
    samples = stored.get("samples") if isinstance(stored, dict) else None
    if not isinstance(samples, list):
        raise RolloutFileError('has no "samples": slime saves {"rollout_id", "samples"}')
    for number, sample in enumerate(samples, start=1):
        where = f"sample {number}"
        length = int(sample.get("response_length") or 0)
        tokens = [int(token) for token in sample.get("tokens") or ()]
        if length > len(tokens):
            raise RolloutFileError(
                f"{where}: response_length is {length}, but prompt and response have only {len(tokens)} tokens"
            )
        prompt = _prompt(sample.get("prompt"), where)
        group = sample.get("group_index")
        yield Rollout(
            where,
            prompt,
            str(sample.get("response") or ""),
            _slime_reward(sample.get("reward"), reward_key, where),
            json.dumps(prompt) if group is None else str(group),
            prompt_ids=tuple(tokens[: len(tokens) - length]) if length else None,
            ids=tuple(tokens[len(tokens) - length :]) if length else None,
        )


def _slime_reward(reward: Any, key: str | None, where: str) -> float:
    if isinstance(reward, Mapping):
        if key is None or key not in reward:
            raise RolloutFileError(
                f"{where} has the rewards {', '.join(map(str, reward))}: give reward_key={str(next(iter(reward), 'NAME'))!r}"
            )
        reward = reward[key]
    return _number(reward, where, "reward")


# ---------------------------------------------------------------- values


def _prompt(prompt: Any, where: str) -> str | list[dict[str, str]]:
    if isinstance(prompt, str):
        return prompt
    turns: list[Any] = prompt if isinstance(prompt, list) else []
    if not turns or not all(
        isinstance(turn, dict) and all(isinstance(turn.get(key), str) for key in ("role", "content")) for turn in turns
    ):
        raise RolloutFileError(f"{where}: prompt must be a text or a list of messages with role and content")
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


# Names of the required keys in files of other programs.
_USUAL = {
    "prompt": ("question", "problem", "input", "query", "instruction", "messages"),
    "response": ("completion", "output", "generation", "text"),
    "reward": ("score", "rewards", "acc", "accuracy", "correct", "grade", "return", "label"),
}
_NEEDED = (
    "each rollout needs a prompt, a response (what the model wrote) and a reward (a number): `prompt_key`, `response_key` and "
    "`reward_key` name them"
)


def _near_key(key: str, row: Row, *, is_reward: bool) -> str:
    """Return advice about a missing key, if the row has a likely name for it; else ""."""
    able = [name for name in row if is_number(row[name])] if is_reward else [*row]
    usual = ("reward", *_USUAL["reward"]) if is_reward else _USUAL[key]
    near = [*difflib.get_close_matches(key, able, 1), *(name for name in usual if name in able)]
    if not near:
        return ""
    return f"; give {'reward' if is_reward else key}_key={near[0]!r}"


def _token_ids(ids: Any, where: str) -> tuple[int, ...]:
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise RolloutFileError(f"{where}: ids must be a list of token ids, whole numbers from 0 on, got {ids!r:.60}")
    return tuple(ids)


def _step(row: Row) -> int | None:
    step = row.get("step")
    return step if isinstance(step, int) and step > 0 and not isinstance(step, bool) else None


def _keys(row: Row) -> str:
    return ", ".join([*row][:12]) + (", ..." if len(row) > 12 else "") or "no key"


def _number(value: Any, where: str, name: str) -> float:
    if not is_number(value):
        raise RolloutFileError(f"{where}: {name} must be a finite number, got {value!r}")
    return float(value)
