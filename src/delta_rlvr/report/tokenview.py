"""The data of the token view: compressed blocks for each prompt at each sampled step, within a size limit."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from delta_rlvr.report.discriminator import step_view
from delta_rlvr.report.shading import Scales, shade_by
from delta_rlvr.report.weights import MOST, step_tokens, step_weights
from delta_rlvr.runs import RunReader
from delta_rlvr.runs.layout import RESPONSE_ARRAYS

# The texts are in `_FACTS`, and the page does not need the ids.
_COLUMNS = (*(name for name in RESPONSE_ARRAYS if name not in ("tokens", "ids")), "other_weights")
# The size of a block, which the page unpacks as a whole.
PART_TOKENS = 20_000

_SIDES = (("positive", 1), ("negative", -1), ("zero", 0))
_FACTS = ("index", "reward", "advantage", "reason", "tokens")


@dataclass
class TokenView:
    """The token view of one run."""

    blocks: dict[str, str] = field(default_factory=dict)
    """Block name -> base64 of gzipped JSON."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """The sampled steps in order, each with its prompts (which name their blocks) and the totals of the update."""
    left_out: str | None = None
    """A sentence, if the size limit left something out."""
    shadings: list[dict[str, Any]] = field(default_factory=list)
    """The shadings of tokens, with the range of each scale over the run."""
    weighted: bool = False
    """Whether the run's own weights differ between tokens."""
    weights: list[dict[str, Any]] = field(default_factory=list)
    """The weights view of each sampled step that has one."""
    discriminator: list[dict[str, Any]] = field(default_factory=list)
    """The discriminator view of each sampled step that has one."""


def token_view(run: RunReader, name: str, limit: int, methods: Sequence[str] = (), points: int = MOST) -> TokenView:
    """Read every sampled step, and keep prompts up to `limit` bytes: those with a signal first, evenly over the steps.

    `methods`: further methods to shade by. `points`: tokens on each side in the figure of a step's weights."""
    view = TokenView()
    method = str(run.info.get("method") or "the method")
    scales = Scales(method)
    candidates = []
    totals = {}
    metrics = {line["step"]: line for line in run.metrics}
    for step in run.rollout_steps:
        responses = run.rollouts(step)
        shade_by(responses, methods)
        tokens = step_tokens(responses)
        scales.add(tokens, responses)
        totals[step] = tokens.totals()
        if followed := step_weights(tokens, step, method, points, metrics.get(step, {})):
            view.weights.append(followed)
        if seen := step_view(responses, step):
            view.discriminator.append(seen)
        by_prompt: dict[Any, list[dict[str, Any]]] = {}
        for response in responses:
            by_prompt.setdefault(response.get("group"), []).append(response)
        prompts = sorted(by_prompt.items(), key=lambda item: (not _has_signal(item[1]), _order(item[0])))
        for rank, (group, members) in enumerate(prompts):
            candidates.append((rank, step, group, _prompt(group, members), _pack(members)))
    candidates.sort(key=lambda entry: entry[0])  # stable: by rank, then by step
    used, kept = 0, []
    for number, (_, step, group, prompt, parts) in enumerate(candidates):
        size = sum(map(len, parts))
        if number == 0 or used + size <= limit:
            used += size
            kept.append((step, _order(group), prompt, parts))
    kept.sort(key=lambda entry: entry[:2])
    for number, (step, _, prompt, parts) in enumerate(kept):
        if not view.steps or view.steps[-1]["step"] != step:
            view.steps.append({"step": step, "totals": totals[step], "prompts": []})
        blocks = {f"{name}-{number}-{part}": block for part, block in enumerate(parts)}
        view.steps[-1]["prompts"].append({**prompt, "blocks": list(blocks)})
        view.blocks |= blocks
    if len(kept) < len(candidates):
        view.left_out = (
            f"{len(kept)} of {len(candidates)} sampled prompts are on this page, to keep it small; the run folder has "
            "the rest (a larger `megabytes` includes more)."
        )
    view.shadings, view.weighted = scales.shadings(), scales.weighted
    return view


def _order(group: Any) -> tuple[int, float, str]:
    """The sort key of a group: its number; other names come last."""
    return (0, group, "") if isinstance(group, (int, float)) else (1, 0, str(group))


def _has_signal(members: list[dict[str, Any]]) -> bool:
    sides = {np.sign(member.get("advantage") or 0) for member in members}
    return 1 in sides and -1 in sides


def _prompt(group: Any, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a prompt in the list of prompts."""
    rewards = [member["reward"] for member in members if isinstance(member.get("reward"), (int, float))]
    text = members[0].get("prompt")
    return {
        "group": group,
        "title": " ".join(str(text or "").split())[:90],
        "responses": len(members),
        "tokens": sum(len(member["tokens"]) for member in members),
        "reward": round(float(np.mean(rewards)), 4) if rewards else None,
        "signal": _has_signal(members),
        "sides": {side: sum(bool(np.sign(m.get("advantage") or 0) == sign) for m in members) for side, sign in _SIDES},
    }


def _pack(members: list[dict[str, Any]]) -> list[str]:
    """Return the responses in blocks of about PART_TOKENS, so that the first ones of a long group show up soon."""
    parts: list[list[dict[str, Any]]] = [[]]
    room = PART_TOKENS
    for member in _both_sides_early(members):
        if parts[-1] and room < len(member["tokens"]):
            parts.append([])
            room = PART_TOKENS
        parts[-1].append({key: member[key] for key in (*_FACTS, *_COLUMNS) if member.get(key) is not None})
        room -= len(member["tokens"])
    shared = {key: members[0].get(key) for key in ("prompt", "prompt_id", "answer")}
    first, *rest = parts
    return [compress({**shared, "responses": first}), *(compress({"responses": part}) for part in rest)]


def _both_sides_early(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the responses of each side by descending advantage, alternating between the sides."""
    ordered = sorted(members, key=lambda member: -(member.get("advantage") or 0.0))
    sides: dict[float, int] = {}
    turns = []
    for member in ordered:
        side = float(np.sign(member.get("advantage") or 0.0))
        sides[side] = sides.get(side, 0) + 1
        turns.append((sides[side], member))
    return [member for _, member in sorted(turns, key=lambda turn: turn[0])]


def compress(value: dict[str, Any]) -> str:
    """Return base64 of gzipped JSON, which the page unpacks."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Without a time in the header, so that equal runs give equal pages.
    packed = gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)
    return base64.b64encode(packed).decode("ascii")
