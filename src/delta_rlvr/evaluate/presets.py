"""The paper's evaluations by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.settings import EvaluationSettings


@dataclass(frozen=True)
class Preset:
    """Settings and benchmarks that belong together."""

    settings: EvaluationSettings
    benchmarks: tuple[str, ...]
    source: str
    """Where the values are from, and which of them are ours."""


_MATH = EvaluationSettings(samples=16, max_tokens=30_000, temperature=1.0, top_p=0.7)
_TAKEN = "5 samples as in the paper; it names no other sampling value here, so paper-math's are taken"
PRESETS: dict[str, Preset] = {
    "paper-math": Preset(
        _MATH,
        ("aime24", "aime25", "aime26", "hmmt25-feb", "hmmt25-nov", "hmmt26-feb", "brumo25"),
        "DelTA (arXiv 2605.21467), evaluation settings of Tables 5-8: 16 samples, 30,000 tokens, T = 1.0, top-p 0.7",
    ),
    "paper-code": Preset(replace(_MATH, samples=5), ("humaneval-plus", "mbpp-plus", "livecodebench"), _TAKEN),
    "paper-ood": Preset(replace(_MATH, samples=5), ("gpqa-diamond", "mmlu-pro"), _TAKEN),
}


def get_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise EvaluationError(f"no preset {name!r}: there are {', '.join(PRESETS)}")
    return PRESETS[name]
