"""The protocol of an evaluation: the number of samples, the sampling settings, and the seed of each sample."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from delta_rlvr.bounds import check_types
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.runs.layout import CONTENT

HELDOUT = "heldout"
"""The benchmark's name in the seeds of held-out samples: those of training, of studies, and of tasks in `evaluate`."""

REWARD_FILE = f"reward{CONTENT}"
"""The digest of the file of `reward`, with the benchmark that it judged."""


class SampleKey(NamedTuple):
    """The key of one sample in an evaluation."""

    benchmark: str
    problem: str
    sample: int

    def __str__(self) -> str:
        return f"{self.benchmark} {self.problem} sample {self.sample}"


@dataclass(frozen=True)
class EvaluationSettings:
    """The sampling settings that change a score. They are stored with every result."""

    samples: int = 16
    """Samples per question (k of avg@k)."""
    max_tokens: int = 30_000
    """Longest completion, in tokens. A completion that is cut off is graded too."""
    temperature: float = 1.0
    """Sampling temperature; 0 takes the most likely token."""
    top_p: float = 0.7
    """Nucleus: the smallest set of tokens with at least this probability, after the temperature."""
    seed: int = 0
    """The seed of a sample is derived from this one, the benchmark (`HELDOUT` for tasks), the problem's id and the sample number."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion and are cut off, for base models that do not end their answers."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self))
        for name, fits, wanted in (
            ("samples", self.samples >= 1, "at least 1"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", math.isfinite(self.temperature) and self.temperature >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", self.seed >= 0, "0 or more"),
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
        """Return the settings of a stored result. Unknown keys and nulls (of samples from elsewhere) are ignored."""
        names = [field.name for field in fields(cls)]
        known = {name: values[name] for name in names if values.get(name) is not None}
        return cls(**known | {"stop": tuple(known.get("stop", ()))})


@dataclass(frozen=True)
class Preset:
    """Benchmarks with their settings."""

    settings: EvaluationSettings
    benchmarks: tuple[str, ...]
    template: str | None = None
    """The template of all benchmarks; None: each benchmark's own."""


# DelTA (arXiv 2605.21467), evaluation settings of Tables 5-8: 16 samples, 30,000 tokens, T = 1.0, top-p 0.7.
_MATH = EvaluationSettings(samples=16, max_tokens=30_000, temperature=1.0, top_p=0.7)
# 5 samples as in the paper, which gives no other sampling setting here: the others are those for mathematics.
_OTHER = replace(_MATH, samples=5)
PRESETS = {
    "paper-math": Preset(
        _MATH, ("aime24", "aime25", "aime26", "hmmt25-feb", "hmmt25-nov", "hmmt26-feb", "brumo25"), "paper_math"
    ),
    "paper-code": Preset(_OTHER, ("humaneval-plus", "mbpp-plus", "livecodebench")),
    "paper-ood": Preset(_OTHER, ("gpqa-diamond", "mmlu-pro")),
}
"""The paper's evaluations by name."""


def other_reward_file(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether the file of a benchmark's reward is another, or the function in it. Older results and samples do not tell; a run
    stores it with its name."""
    first, second = (one.get(REWARD_FILE) or (one.get("reward") or (None, None))[1] for one in (before, now))
    names = [_function_of(one) for one in (before, now)]
    return None not in (first, second) and (first != second or ("" not in names and names[0] != names[1]))


def _function_of(facts: Mapping[str, Any]) -> str:
    spec = (facts.get("reward") or [""])[0] or str(facts.get("grader", "")).partition("reward ")[2]
    return str(spec).rpartition(":")[2]


def sample_seed(seed: int, key: SampleKey) -> int:
    """Return the seed of one sample, which does not depend on other samples. It has 31 bits, which every server accepts."""
    text = f"{seed}\0{key.benchmark}\0{key.problem}\0{key.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
