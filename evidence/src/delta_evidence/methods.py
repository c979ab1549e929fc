"""Which methods the benchmark weighs tokens by when none are named, and how tables show them.

Everything is read as Appendix E's rho at theta_old, the weight in sum rho A grad log pi: a mean over responses is the weight
N / (R |o_i|), and surrogates that differ only away from theta_old (clips, SAPO's gate) do not differ here. A surrogate that weighs
tokens itself (FIPO's) is one at theta_old, and is measured a step later.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from urllib.parse import parse_qsl

from delta_evidence.weighing import study_method
from delta_rlvr.objectives import Method, all_methods

PROXIES = ("output_row", "topk_hidden", "head")
SCOPES = ("batch", "group")


def bench_method(spec: str) -> Method:
    """A method by its name; refused where it has no weight of its own to be measured."""
    method = study_method(spec)
    if "measured" in method.rho.needs:
        raise ValueError(
            f"{spec} needs continuations of whole rollout batches, which a benchmark does not make: train with it in a study"
        )
    if method.surrogate.kind == "soft_gate":
        raise ValueError(
            f"{spec} has no weight of its own here: at theta_old its gate has slope one, so that it is grpo"
        )
    return method


def grid() -> list[str]:
    """DelTA with every proxy and scope, and without and with a refinement."""
    return [
        f"delta?proxy={proxy}&scope={scope}&refinements={number}"
        for proxy, scope, number in product(PROXIES, SCOPES, (0, 1))
    ]


def every_method() -> list[str]:
    """Every method whose weight differs at theta_old (or a step later), and the grid, each rule once."""
    names: dict[object, str] = {}
    for spec in (*all_methods(), *grid()):
        try:
            method = bench_method(spec)
        except ValueError:
            continue  # it has no weight of its own, or needs what a benchmark cannot give
        names.setdefault((method.rho, method.surrogate.reweighs), spec)
    return list(names.values())


def label(name: str) -> str:
    """A method's name as tables show it."""
    base, _, query = name.partition("?")
    before = {"proxy": "", "scope": "", "refinements": "K="}
    return " ".join([base, *(before.get(key, f"{key}=") + value for key, value in parse_qsl(query))])


def listed(names: Iterable[str]) -> str:
    """Methods in a sentence."""
    return ", ".join(map(label, names))
