"""The protocol of an evaluation: how many samples, how they are drawn, and each one's own seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from delta_rlvr.evaluate.errors import EvaluationError

HELDOUT = "heldout"
"""What stands for the benchmark in the seeds of held-out samples: of training, of studies, and of tasks in `evaluate`."""


class SampleKey(NamedTuple):
    """What names one sample in the whole evaluation."""

    benchmark: str
    problem: str
    sample: int

    def __str__(self) -> str:
        return f"{self.benchmark} {self.problem} sample {self.sample}"


@dataclass(frozen=True)
class EvaluationSettings:
    """Everything about sampling that changes a score. Stored with every result."""

    samples: int = 16
    """Samples a question (k of avg@k)."""
    max_tokens: int = 30_000
    """Longest completion, in tokens; what is cut there is graded as it stands."""
    temperature: float = 1.0
    """Sampling temperature; 0 takes the likeliest token."""
    top_p: float = 0.7
    """Nucleus: the smallest set of tokens with at least this probability, after the temperature."""
    seed: int = 0
    """Every sample's own seed comes from this one, the benchmark (`HELDOUT` for tasks), the problem's id and the sample's
    number."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion (and are cut off); a base model without an end-of-text habit needs them."""

    def __post_init__(self) -> None:
        for name, fits, wanted in (
            ("samples", isinstance(self.samples, int) and self.samples >= 1, "at least 1"),
            ("max_tokens", isinstance(self.max_tokens, int) and self.max_tokens >= 1, "at least 1"),
            ("temperature", math.isfinite(self.temperature) and self.temperature >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", isinstance(self.seed, int) and self.seed >= 0, "a whole number, 0 or more"),
            ("stop", all(self.stop), "texts that are not empty"),
        ):
            if not fits:
                raise EvaluationError(f"{name} = {getattr(self, name)!r} must be {wanted}")
        if self.temperature == 0 and self.samples > 1:
            raise EvaluationError(
                f"temperature 0 draws the same completion every time: samples = {self.samples} would count one sample several times; "
                "use 1 sample, or a temperature above 0"
            )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"stop": list(self.stop)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EvaluationSettings:
        """Settings from a stored result. Keys that this version does not know, and nulls (samples that were drawn
        elsewhere), are left out."""
        names = [field.name for field in fields(cls)]
        known = {name: values[name] for name in names if values.get(name) is not None}
        return cls(**known | {"stop": tuple(known.get("stop", ()))})


@dataclass(frozen=True)
class Preset:
    """Settings and benchmarks that belong together."""

    settings: EvaluationSettings
    benchmarks: tuple[str, ...]
    template: str | None = None
    """The prompt of all of them, where it is not each benchmark's own."""


# DelTA (arXiv 2605.21467), evaluation settings of Tables 5-8: 16 samples, 30,000 tokens, T = 1.0, top-p 0.7.
_MATH = EvaluationSettings(samples=16, max_tokens=30_000, temperature=1.0, top_p=0.7)
# 5 samples as in the paper; it names no other sampling value here, so those for mathematics are taken.
_OTHER = replace(_MATH, samples=5)
PRESETS = {
    "paper-math": Preset(
        _MATH, ("aime24", "aime25", "aime26", "hmmt25-feb", "hmmt25-nov", "hmmt26-feb", "brumo25"), "paper_math"
    ),
    "paper-code": Preset(_OTHER, ("humaneval-plus", "mbpp-plus", "livecodebench")),
    "paper-ood": Preset(_OTHER, ("gpqa-diamond", "mmlu-pro")),
}
"""The paper's evaluations by name."""


def sample_seed(seed: int, key: SampleKey) -> int:
    """The seed of one sample, the same whatever else is sampled with it. 31 bits: every server takes those."""
    text = f"{seed}\0{key.benchmark}\0{key.problem}\0{key.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
