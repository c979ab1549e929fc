"""The model card of a run: model, task, settings and result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delta_rlvr.score_units import EVAL_REWARD, score_unit
from delta_rlvr.specs import shown_spec
from delta_rlvr.words import counted

_SETTINGS = {
    "learning_rate": "learning rate",
    "num_generations": "responses per prompt",
    "max_completion_length": "longest response, in tokens",
    "temperature": "sampling temperature",
    "lora_rank": "LoRA rank",
    "reward": "reward",
}


def write_card(folder: Path, info: Mapping[str, Any], drawn: str | None = None, apart: str = "") -> None:
    """Write README.md beside the weights from the content of run.json. `drawn` says how the held-out responses were sampled, `apart`
    why the two scores cannot be compared."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(card(info, drawn, apart), encoding="utf-8")


def card(info: Mapping[str, Any], drawn: str | None = None, apart: str = "") -> str:
    """Return the card as Markdown with the hub's front matter."""
    settings = info["settings"]
    lines = ["---", "library_name: transformers", "tags: [delta-rlvr, rlvr, trl]"]
    if "/" in info["model"] and not info["model"].startswith(("/", ".", "~")):
        lines.append(f"base_model: {info['model']}")
    lines += ["---", f"# {info['model']}, trained with {info['method']}", ""]
    lines.append(
        f"Reinforcement learning from verifiable rewards: {counted(info['steps'], 'step')} of `{info['method']}` on "
        f"`{shown_spec(info['task'])}`, seed {info['seed']}, by delta-rlvr with TRL; token weights after [DelTA](https://arxiv.org/abs/2605.21467)."
    )
    final = info.get("final") or {}
    if {"before", "after"} <= final.keys():
        step = final["after"].get("step")
        by_trl = step is not None
        unit = EVAL_REWARD if by_trl else score_unit(settings.get("reward"))
        units = [unit if by_trl else score_unit(final[when].get("own_reward")) for when in ("before", "after")]
        scores = [one.shown(final[when]["accuracy"]) for one, when in zip(units, ("before", "after"), strict=True)]
        how = (f" ({drawn})" if drawn else "") + (f"; {apart}" if apart else "")
        what = "TRL's eval_reward on the eval_dataset" if by_trl else f"Held-out {unit.score}"
        lines += [
            "",
            f"{what}: {scores[0]} before training, {scores[1]} {f'at step {step}' if by_trl else 'after'}{how}.",
        ]
    else:
        lines += ["", "It was not scored on held-out problems."]
    shown = {name: settings.get(key) for key, name in _SETTINGS.items()}
    lines += ["", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in shown.items() if value is not None]
    versions = ", ".join(f"{name} {number}" for name, number in (info.get("versions") or {}).items())
    versions = versions or "not recorded"
    lines += ["", f"Versions: {versions}.", ""]
    return "\n".join(lines)
