"""Run folders to draw pages of, made through the real writer, and a browser to open the pages in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from delta_rlvr.credit import CreditStream, Delta
from delta_rlvr.report import write_report
from delta_rlvr.runs import RunDescription, RunWriter
from report_pages import stored_responses

PHRASES = [
    "So",
    " first",
    " we",
    " add",
    " Then",
    " the",
    " sum",
    " of",
    " and",
    " is",
    " so",
    " far",
    ".",
    "\n",
    " That",
    " gives",
]
DIGITS = [str(digit) for digit in range(10)]
TYPES = [*PHRASES, *DIGITS, " +", " =", "Answer", ":"]
WIDTH = 12


class Rollouts:
    """Responses of a small made-up task with coefficients from the method's own equations (K = 1)."""

    def __init__(self, seed: int, weighted: bool = True) -> None:
        self.weighted = weighted
        self.draw = np.random.default_rng(seed)
        self.meaning = np.random.default_rng(7).normal(size=(len(TYPES), WIDTH))
        self.error = np.random.default_rng(8).normal(size=WIDTH)

    def step(self, step: int, prompts: int, responses: int, length: int) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for group in range(prompts):
            numbers = self.draw.integers(10, 99, 4)
            rewards = (self.draw.random(responses) < 0.25 + 0.4 * step / (step + 15)).astype(float)
            spread = rewards.std()
            for index in range(responses):
                advantage = float((rewards[index] - rewards.mean()) / (spread + 1e-4)) if spread else 0.0
                made.append(self._response(step, group, index, numbers, float(rewards[index]), advantage, length))
        _credit(made, self.weighted)
        return made

    def _response(
        self, step: int, group: int, index: int, numbers: Any, reward: float, advantage: float, length: int
    ) -> dict[str, Any]:
        size = int(length * self.draw.uniform(0.7, 1.3))
        ids = self.draw.choice(len(TYPES), size, p=_frequencies())
        digits = ids >= len(PHRASES)
        chance = self.draw.beta(8, 1.2, size)
        vectors = (1 - chance)[:, None] * (self.meaning[ids] + self.draw.normal(size=(size, WIDTH)))
        if reward == 0:
            vectors = vectors + np.outer(digits * (1 - chance), 2 * self.error)
        return {
            "group": group,
            "index": index,
            "prompt": f"What is {' + '.join(map(str, numbers))}?",
            "prompt_id": f"sums-{step}-{group}",
            "answer": str(int(numbers.sum())),
            "reward": reward,
            "advantage": advantage,
            "reason": "the answer is right" if reward else "the answer is another number",
            "tokens": [TYPES[token] for token in ids],
            "ids": ids,
            "logps": np.log(chance),
            "entropy": -np.log(chance) * 1.4 + self.draw.random(size) * 0.2,
            "decisive": (digits & (self.draw.random(size) < 0.4)).astype(int),
            "vectors": vectors,
        }


def _frequencies() -> Any:
    weights = 1 / np.arange(2, len(TYPES) + 2)
    return weights / weights.sum()


def _credit(responses: list[dict[str, Any]], weighted: bool) -> None:
    """Puts margins, alpha and weight into the responses, or weights of one alone."""
    lengths = [len(response["tokens"]) for response in responses]
    stream = CreditStream(Delta(proxy="full"))
    stream.add(
        torch.from_numpy(np.concatenate([one.pop("vectors") for one in responses])), lengths=torch.tensor(lengths)
    )
    record = stream.solve(torch.tensor([response["advantage"] for response in responses], dtype=torch.float64))
    names = {"margin_initial": record.margin_initial, "margin": record.margin, "alpha": record.alpha}
    columns = {**names, "weight": record.weights} if weighted else {"weight": torch.ones(sum(lengths))}
    rows = {name: values.double().split(lengths) for name, values in columns.items()}
    for place, response in enumerate(responses):
        response |= {name: split[place].numpy() for name, split in rows.items()}
        forking = (response["entropy"] > 0.5).astype(float)
        response["other_weights"] = {"forking tokens": forking / max(forking.mean(), 1e-9)}


def _measure(responses: list[dict[str, Any]], draw: Any) -> None:
    """Made-up measurements of every second token: digits of right responses raise the value, those of wrong ones lower it."""
    for response in responses:
        size = len(response["tokens"])
        sign = 1 if response["reward"] else -1
        values = sign * 0.2 * (response["ids"] >= len(PHRASES)) + draw.normal(size=size) * 0.05
        known = np.arange(size) % 2 == 0
        response["measured"] = np.where(known, values, np.nan)
        response["measured_error"] = np.where(known, 0.04, np.nan)


def metrics(step: int, responses: list[dict[str, Any]], draw: Any) -> dict[str, Any]:
    weights = np.concatenate([response["weight"] for response in responses])
    side = np.concatenate([np.full(len(r["tokens"]), np.sign(r["advantage"])) for r in responses])
    line: dict[str, Any] = {
        "step": step,
        "reward": float(np.mean([response["reward"] for response in responses])),
        "length": float(np.mean([len(response["tokens"]) for response in responses])),
        "entropy": float(np.mean(np.concatenate([response["entropy"] for response in responses]))),
        "zero_advantage": float((side == 0).mean()),
        "centroid_gap": 1.2 + draw.random() * 0.2,
        "centroid_gap_initial": 0.9 + draw.random() * 0.2,
        "gamma_positive": 0.4 + draw.random() * 0.1,
        "gamma_negative": 0.6 + draw.random() * 0.1,
        "seconds_generate": 3 + draw.random(),
        "seconds_update": 1.5 + draw.random() * 0.2,
        "seconds_credit": 0.02 + draw.random() * 0.01,
        "grad_norm": 0.3 + draw.random() * 0.1,
        "loss": draw.normal() * 0.01,
    }
    if step % 2 == 0 or step == 1:  # what a sampled step finds out about its weights
        line |= {"update_share_positive": 0.45, "update_share_plain": 0.48, "saturated": 0.2, "reliability": 0.71}
        line |= {"rank_positive": -0.3, "rank_negative": 0.3}
    for name, sign in (("positive", 1), ("negative", -1)):
        here = weights[side == sign]
        line |= {
            f"weight_{name}_std": here.std(),
            f"weight_{name}_q05": np.quantile(here, 0.05),
            f"weight_{name}_q95": np.quantile(here, 0.95),
        }
    return line


@pytest.fixture(scope="session", name="make_run")
def make_run_fixture() -> Any:
    return make_run


def make_run(
    path: Path,
    *,
    method: str = "delta",
    seed: int = 0,
    steps: int = 6,
    prompts: int = 3,
    responses: int = 6,
    length: int = 60,
    after: float | None = 0.55,
    rule: dict[str, Any] | None = None,
    measured: bool = False,
) -> Path:
    """A finished run with every second step sampled; "dapo" weighs all tokens alike. `measured`: with measured credit."""
    made, draw = Rollouts(seed, weighted=method != "dapo"), np.random.default_rng(seed)
    settings = {"learning_rate": 1e-6, "batch": 8, "clip_high": 0.28, "output_dir": str(path)}
    rule = {"lambda_min": 0.8, "lambda_max": 1.2, "refinements": 1} if rule is None and method == "delta" else rule
    description = RunDescription(
        engine="minimal",
        method=method,
        seed=seed,
        model="tiny",
        task="phrased-sums",
        settings=settings,
        rule=rule,
        steps_planned=steps,
        versions={"python": "3.11"},
    )
    with RunWriter.create(path, description) as writer:
        for step in range(1, steps + 1):
            batch = made.step(step, prompts, responses, length)
            writer.log(metrics(step, batch, draw))
            for response in batch:
                writer.tokens.add(response["ids"], response["weight"], np.sign(response["advantage"]))
            if measured:
                _measure(batch, draw)
            if step % 2 == 0 or step == 1:
                writer.write_rollouts(step, batch)
        writer.save_tokens(text_of=lambda ids: [TYPES[token] for token in ids])
        if after is not None:
            before = {"accuracy": 0.31, "low": 0.27, "high": 0.35, "problems": 200, "samples": 4}
            writer.update(
                final={
                    "before": before,
                    "after": {**before, "accuracy": after, "low": after - 0.04, "high": after + 0.04},
                }
            )
    return path


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_run(tmp_path_factory.mktemp("runs") / "delta-0")
    agreement = {
        "yardstick": "full gradient",
        "tokens": 512,
        "proxies": {"output_row": {"cosine": 0.41, "weight_correlation": 0.55}},
    }
    (path / "proxy_agreement.json").write_text(json.dumps(agreement))
    return path


@pytest.fixture(scope="module")
def report(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([run_folder], tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def stored(run_folder: Path) -> dict[int, Any]:
    return stored_responses(run_folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    # The first of them is the same browser without a window to draw, and opens a page in half of the time.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: the page's browser tests cannot run (install the package chromium)")
    with sync_api.sync_playwright() as playwright:
        without = [f"--disable-{what}" for what in ("gpu", "background-networking", "extensions")]
        quiet = ["--no-sandbox", "--no-first-run", *without]
        started = playwright.chromium.launch(executable_path=chromium, args=quiet)
        yield started
        started.close()
