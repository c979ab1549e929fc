"""The recipe for ms-swift against ms-swift: `scripts/try_engines.sh ms-swift`."""

from __future__ import annotations

import string
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rows import write_rows

pytest.importorskip("swift.rlhf_trainers", reason="scripts/try_engines.sh ms-swift runs this")

from swift import RLHFArguments, rlhf_main
from swift.rewards import ORM, orms
from swift.rlhf_trainers import GRPOTrainer
from swift.trainers import TrainerFactory

import tiny_trl
from delta_rlvr.credit.rule import RuleError
from tiny_trl import bits

RECIPE = Path(__file__).parents[2] / "recipes" / "engines" / "ms_swift.py"


class ShareOfA(ORM):
    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        return tiny_trl.share_of_a(completions)


orms["share_of_a"] = ShareOfA


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    tokenizer = tiny_trl.tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder / "model")
    tiny_trl.model().save_pretrained(folder / "model")
    rows = [{"messages": [{"role": "user", "content": letter}]} for letter in string.ascii_lowercase]
    write_rows(folder / "data.jsonl", rows)
    return folder


def trained(inputs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, method: str | None) -> Any:
    """A finished trainer: stock, or with the recipe loaded as the command line's --external_plugins loads it."""
    seen: list[Any] = []
    log = GRPOTrainer.log

    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return log(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(GRPOTrainer, "log", kept)
        patch.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", TrainerFactory.TRAINER_MAPPING["grpo"])
        if method is not None:
            patch.setenv("DELTA_METHOD", method)
            for name in [name for name in sys.modules if name.startswith("_swift_external_")]:
                del sys.modules[name]
        rlhf_main(
            RLHFArguments(
                rlhf_type="grpo",
                model=str(inputs / "model"),
                model_type="llama",
                template="dummy",
                dataset=[str(inputs / "data.jsonl")],
                reward_funcs=["share_of_a"],
                external_plugins=[] if method is None else [str(RECIPE)],
                num_generations=4,
                per_device_train_batch_size=8,
                steps_per_generation=2,
                num_iterations=2,
                epsilon=0.05,
                max_completion_length=12,
                max_steps=6,
                learning_rate=1e-2,
                beta=0.0,
                loss_type="dapo",
                output_dir=str(folder),
                tuner_type="full",
                torch_dtype="float32",
                use_cpu=True,
                bf16=False,
                fp16=False,
                report_to=[],
                save_strategy="no",
                eval_strategy="no",
                logging_steps=1,
                load_from_cache_file=False,
                gradient_checkpointing=False,
                attn_impl="sdpa",
                split_dataset_ratio=0,
                seed=0,
            )
        )
    return seen[-1]


def test_weights_reach_the_loss_and_dapo_is_the_stock_trainer(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = bits(trained(inputs, tmp_path, monkeypatch, None))
    assert not all(map(torch.equal, stock, tiny_trl.model().state_dict().values()))
    for method in ("dapo", "delta-scalar?lambda_min=1&lambda_max=1"):
        trainer = trained(inputs, tmp_path, monkeypatch, method)
        assert type(trainer).__name__ == "TokenCreditTrainer"
        assert all(map(torch.equal, stock, bits(trainer))), method
    trainer = trained(inputs, tmp_path, monkeypatch, "delta-scalar")
    assert not all(map(torch.equal, stock, bits(trainer)))
    assert all(one.isfinite().all() for one in bits(trainer))
    rows = [row for one in trainer._buffered_inputs for row in one["grpo_batch"].advantages]
    assert any(row[row != 0].std() > 1e-3 for row in rows if (row != 0).sum() > 1)


def test_a_rule_that_needs_more_is_refused_at_the_start(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuleError, match=r"hidden states.* which ms-swift does not give; engines that do: TRL, verl"):
        trained(inputs, tmp_path, monkeypatch, "delta")
