"""Writing a run folder (docs/run_schema.md) of a verl run, for `delta-rlvr report`. This file does not import verl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from delta_rlvr.adapters.metrics import untracked
from delta_rlvr.adapters.verl.checks import select
from delta_rlvr.adapters.verl.settings import DETAIL, REWARDS, WEIGHTS, SettingsError, VerlSettings
from delta_rlvr.models.finite import NotFinite
from delta_rlvr.objectives import rewarded_alike
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs.layout import RUN
from delta_rlvr.runs.recorder import Recorder
from delta_rlvr.versions import installed_versions

_VERSIONS = ("torch", "transformers", "verl", "ray", "delta-rlvr")

# The run folder's name of a metric -> verl's.
_METRICS = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "entropy": "actor/entropy",
    "length": "response_length/mean",
    "truncated": "response_length/clip_ratio",
    "epoch": "training/epoch",
    "clipped": "actor/pg_clipfrac",
    "kl_to_old": "actor/ppo_kl",
    "rollout_probs_diff": "training/rollout_probs_diff_max",
}
_TIMES = {
    "seconds_generate": "gen",
    "seconds_logps": "old_log_prob",
    "seconds_credit": "credit",
    "seconds_update": "update_actor",
}
_TOKEN_ARRAYS = {"logps": "old_log_probs", "entropy": "entropy", "weight": WEIGHTS, **DETAIL}

Table = Mapping[str, Sequence[Any]]
"""verl's fields of a batch (`responses`, `response_mask`, ...), each with one entry per response."""


def refuse_used_folder(settings: VerlSettings, resume_mode: str) -> None:
    """Refuse to start a new run in the folder of another."""
    if settings.run_folder is not None and resume_mode == "disable" and _holds_run(settings.run_folder):
        raise SettingsError(
            f"delta.run_folder={settings.run_folder} holds a run, and trainer.resume_mode=disable starts a new one: "
            "give another folder, or delete that one"
        )


def check_finite(step: int, metrics: Mapping[str, Any], saved: int) -> None:
    """Raise `NotFinite` if loss or gradient is. `saved` is the step of verl's last checkpoint before this step."""
    for name, what in (("loss", "the loss is"), ("grad_norm", "the gradient is")):
        value = metrics.get(_METRICS[name])
        if value is not None and not math.isfinite(value):
            error = NotFinite(what, step)
            error.add_note(
                f"the last good checkpoint is that of step {saved}" if saved else "no checkpoint was saved before"
            )
            raise error


class RunFolder:
    """The writer of a verl run, in the driver."""

    def __init__(self, writer: RunWriter, settings: VerlSettings, tokenizer: Any):
        self.recorder = Recorder(
            writer,
            tokenizer,
            groups=settings.rollout_groups,
            length_limit="data.max_response_length",
            group_size="actor_rollout_ref.rollout.n",
        )
        self._seconds = 0.0

    @classmethod
    def open(
        cls, settings: VerlSettings, config: Mapping[str, Any], tokenizer: Any, *, resumed_from: int, steps_planned: int
    ) -> RunFolder:
        """Start the folder, or resume its run from the checkpoint at `resumed_from`."""
        assert settings.run_folder is not None
        method = settings.method
        description = RunDescription(
            engine="verl",
            method=method.name,
            seed=int(select(config, "data.seed", select(config, "actor_rollout_ref.rollout.seed", 0))),
            model=str(select(config, "actor_rollout_ref.model.path")),
            task=_task(select(config, "data.train_files")),
            settings=_flat(config),
            rule=None if method.rule.constant else asdict(method.rule),
            steps_planned=steps_planned,
            versions=_versions(),
        )
        if _holds_run(settings.run_folder):
            writer = RunWriter.resume(settings.run_folder, description, resumed_from)
        else:
            writer = RunWriter.create(settings.run_folder, description)
        return cls(writer, settings, tokenizer)

    def write_step(
        self, step: int, metrics: Mapping[str, Any], timing: Mapping[str, float], table: Table, *, dump: bool
    ) -> None:
        """Write a step: metrics, token sums, and with `dump` the rollouts."""
        self._seconds += timing.get("step", 0.0)
        alike = _alike(table).tolist()
        line: dict[str, Any] = {"step": step, "time": self._seconds, **_group_metrics(table, alike)}
        line |= {ours: metrics[theirs] for ours, theirs in _METRICS.items() if theirs in metrics}
        line |= {ours: timing[theirs] for ours, theirs in _TIMES.items() if theirs in timing}
        line |= untracked(metrics)
        line["seconds_step"] = timing.get("step")
        self.recorder.log(line)
        responses = [_Response(table, number, one) for number, one in enumerate(alike)]
        for one in responses:
            weights = one.weights.double()
            self.recorder.writer.tokens.add(one.valid("responses").numpy(), weights.numpy(), one.advantage)
        if dump:
            self.recorder.write_rollouts(step, self._lines(responses))

    def checkpoint(self, step: int) -> None:
        """Save the token sums with the checkpoint that verl has saved."""
        self.recorder.save_tokens(step)

    def finished(self) -> None:
        self.recorder.save_tokens()
        self.recorder.writer.finish()

    def failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.recorder.writer.interrupt()
        else:
            self.recorder.writer.fail(error)

    def _lines(self, responses: Sequence[_Response]) -> list[dict[str, Any]]:
        """Return the lines of the responses to the first prompts."""
        groups = {uid: number for number, uid in enumerate(dict.fromkeys(one.row["uid"] for one in responses))}
        ordered = sorted(responses, key=lambda one: (groups[one.row["uid"]], one.session))
        numbered = ((one, groups[one.row["uid"]]) for one in ordered)
        return [self._line(one, group) for one, group in numbered if self.recorder.keeps(group)]

    def _line(self, one: _Response, group: int) -> dict[str, Any]:
        row, ids = one.row, one.valid("responses").tolist()
        extra, graded, truth = (row.get(key) or {} for key in ("extra_info", "extra_fields", "reward_model"))
        answer = truth.get("ground_truth")
        line = {
            "group": group,
            "index": one.session,
            "prompt": self.recorder.tokenizer.decode(row["prompts"].tolist()),
            "prompt_id": str(extra.get("problem_id") or extra.get("index", row["uid"])),
            "reward": float(row["rm_scores"].sum()),
            "advantage": one.advantage,
            "reason": (graded.get("reward_extra_info") or {}).get("reason"),
            "answer": None if answer is None else str(answer),
            "ids": ids,
            **{ours: one.valid(theirs) for ours, theirs in _TOKEN_ARRAYS.items() if theirs in row},
        }
        line.setdefault("weight", one.weights)
        return line


class _Response:
    """One response of a table."""

    def __init__(self, table: Table, number: int, alike: bool):
        self.row = {key: column[number] for key, column in table.items()}
        self._alike = alike
        self._mask = _flat_values(self.row["response_mask"]).bool()

    def valid(self, key: str) -> Tensor:
        """Return a token array without masked tokens."""
        return _flat_values(self.row[key])[self._mask]

    @property
    def weights(self) -> Tensor:
        """The token weights; ones for a method without weights."""
        if WEIGHTS in self.row:
            return self.valid(WEIGHTS)
        return torch.ones(int(self._mask.sum()), dtype=torch.float64)

    @property
    def advantage(self) -> float:
        """verl's advantage, but 0 in a group whose rewards are equal, where verl's is a rounding error."""
        values = self.valid("advantages")
        return float(values[0]) if len(values) and not self._alike else 0.0

    @property
    def session(self) -> int:
        return int(self.row.get("session_id") or 0)


def _group_metrics(table: Table, alike: Sequence[bool]) -> dict[str, float]:
    rewards: dict[Any, list[float]] = {}
    for uid, scores in zip(table["uid"], table["rm_scores"], strict=True):
        rewards.setdefault(uid, []).append(float(scores.sum()))
    spreads = [float(torch.tensor(group).std(correction=0)) for group in rewards.values()]
    differ = {uid for uid, equal in zip(table["uid"], alike, strict=True) if not equal}
    everything = [reward for group in rewards.values() for reward in group]
    return {
        "reward": sum(everything) / len(everything),
        "reward_std": sum(spreads) / len(spreads),
        "signal_groups": len(differ) / len(rewards),
    }


def _alike(table: Table) -> Bool[Tensor, " batch"]:
    """Return which responses are in a group whose rewards (with verl's KL penalty, if any) are equal."""
    rewards = torch.stack([scores.sum() for scores in table[next(name for name in REWARDS if name in table)]])
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(table["uid"]))}
    return rewarded_alike(rewards, torch.tensor([numbers[uid] for uid in table["uid"]]))


def _flat_values(values: Tensor) -> Tensor:
    return values.detach().cpu().flatten()


def _holds_run(path: str) -> bool:
    return (Path(path) / RUN).exists()


def _task(files: Any) -> str:
    return files if isinstance(files, str) else ", ".join(map(str, files or ["?"]))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _versions() -> dict[str, str]:
    known = installed_versions(*_VERSIONS)
    return {name.replace("-", "_"): known.get(name, "not installed") for name in ("python", *_VERSIONS)}
