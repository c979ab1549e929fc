"""The recipe of the bundled policy, on a few steps."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from delta_evidence.planted.policies import IGNORED
from delta_rlvr.models import resolve_model
from delta_rlvr.tasks import BUILT_IN
from delta_rlvr.tasks.phrased_sums import split_of
from delta_rlvr.user_code import module_at


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    return module_at(str(Path(__file__).parents[2] / "recipes" / "make_policy.py"))


def test_the_same_seed_gives_the_same_weights(recipe: ModuleType) -> None:
    def run(seed: int) -> tuple[list[float], dict[str, torch.Tensor]]:
        losses: list[float] = []
        short = recipe.Recipe(seed=seed, steps=6, schedule=6, batch=8, width=64, layers=1)
        model, _ = recipe.warm_start(short, lambda step, loss: losses.append(loss))
        return losses, model.state_dict()

    losses, weights = run(0)
    again, same = run(0)
    other, _ = run(1)
    assert losses == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert other != losses
    assert losses[-1] < losses[0]


def test_the_packaged_policy_is_this_recipe(recipe: ModuleType) -> None:
    """Its record has the settings of today, and its tokenizer is what they give."""
    folder = Path(resolve_model("builtin"))
    record = json.loads((folder / "recipe.json").read_text())
    assert record["recipe"] == recipe.asdict(recipe.Recipe())
    stream = recipe.batches(recipe.Recipe())
    corpus = itertools.chain.from_iterable(pair for _ in range(64) for pair in next(stream))
    tokenizer = recipe.build_tokenizer(corpus, recipe.Recipe().vocabulary)
    packaged = json.loads((folder / "tokenizer.json").read_text())
    assert tokenizer.get_vocab() == packaged["model"]["vocab"]


def test_only_training_problems_are_told(recipe: ModuleType) -> None:
    batches = itertools.islice(recipe.batches(recipe.Recipe(batch=16)), 60)
    prompts = [prompt for batch in batches for prompt, _ in batch]
    asked = {problem.prompt for task in BUILT_IN.values() for problem in task.problems("heldout", 500)}
    assert not asked & set(prompts)
    numbers = [
        [int(n) for n in prompt[len("Add ") :].rstrip(".\n").replace(" and ", ", ").split(", ")]
        for prompt in prompts
        if prompt.startswith("Add ") and prompt.count(".") == 1
    ]
    assert len(numbers) > 300
    assert {split_of(addends) for addends in numbers} == {"train"}


def test_only_the_solution_is_learnt(recipe: ModuleType) -> None:
    tokenizer = recipe.build_tokenizer(iter(["Add 1 and 2.\n", "3."]), 300)
    batch = recipe.collate([("1+1\n", "2."), ("1\n", "1")], tokenizer)
    learnt = [[tokenizer.decode([i]) for i in row if i != IGNORED] for row in batch["labels"].tolist()]
    assert learnt == [["2", ".", recipe.END], ["1", recipe.END]]
    assert batch["input_ids"].shape == (2, 7)


def test_bad_recipes_are_refused(recipe: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"steps must be in 1\.\.schedule"):
        recipe.Recipe(steps=10, schedule=5)
