"""The paper's evaluations by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from delta_rlvr.evaluate.settings import EvaluationSettings


@dataclass(frozen=True)
class Preset:
    """Settings and benchmarks that belong together."""

    settings: EvaluationSettings
    benchmarks: tuple[str, ...]


# DelTA (arXiv 2605.21467), evaluation settings of Tables 5-8: 16 samples, 30,000 tokens, T = 1.0, top-p 0.7.
_MATH = EvaluationSettings(samples=16, max_tokens=30_000, temperature=1.0, top_p=0.7)
# 5 samples as in the paper; it names no other sampling value here, so those for mathematics are taken.
_OTHER = replace(_MATH, samples=5)
PRESETS = {
    "paper-math": Preset(
        _MATH, ("aime24", "aime25", "aime26", "hmmt25-feb", "hmmt25-nov", "hmmt26-feb", "brumo25")
    ),
    "paper-code": Preset(_OTHER, ("humaneval-plus", "mbpp-plus", "livecodebench")),
    "paper-ood": Preset(_OTHER, ("gpqa-diamond", "mmlu-pro")),
}
