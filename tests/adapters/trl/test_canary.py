"""Every internal of TRL that the adapter relies on. When one of these fails after an upgrade, the adapter has to be looked at."""

import inspect
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import transformers
import trl
from accelerate import Accelerator
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from delta_rlvr import TokenRule
from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig, check_trl_version
from delta_rlvr.adapters.trl.capture import Capture
from delta_rlvr.credit import CreditStream, Delta
from delta_rlvr.objectives import SoftGate
from replayed_training import (
    GENERATIONS,
    QUIET,
    ROWS,
    SMALL,
    TEMPERATURE,
    build,
    fixed_reward,
    make_model,
    rollout,
    settings_of,
    tokenizer,
)
from rounding import rounding


class Watched(GRPOTrainer):
    """Keeps the order in which TRL's own steps run."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = []

    def _generate(self, prompts):
        self.steps.append("generate")
        return super()._generate(prompts)

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        self.steps.append("update logps" if torch.is_grad_enabled() else "old logps")
        self.passed = (model, args, kwargs)
        return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    def _calculate_rewards(self, *args):
        self.steps.append("rewards")
        self.reward_arguments = args
        self.rewards = super()._calculate_rewards(*args)
        return self.rewards

    def _compute_loss(self, model, inputs):
        self.steps.append("loss")
        return super()._compute_loss(model, inputs)

    def _prepare_inputs(self, batch):
        self.steps.append(f"prepare {self.num_iterations}")
        return super()._prepare_inputs(batch)


def stock(shape_settings=None, **more):
    return Watched(
        model=make_model(),
        reward_funcs=fixed_reward,
        args=GRPOConfig(**settings_of("one micro-batch", **(shape_settings or {}), **more)),
        train_dataset=Dataset.from_dict({"prompt": ["7 + 5", "12 + 60 + 3", "Take 44."]}),
        processing_class=tokenizer(),
        rollout_func=rollout(),
    )


def test_signatures():
    """What is overridden has the arguments that the override passes on."""
    arguments = lambda name: list(inspect.signature(getattr(GRPOTrainer, name)).parameters)  # noqa: E731
    assert arguments("__init__")[:4] == ["self", "model", "reward_funcs", "args"]
    assert arguments("_generate") == ["self", "prompts"]
    assert arguments("_generate_and_score_completions") == ["self", "inputs"]
    assert arguments("_compute_loss") == ["self", "model", "inputs"]
    assert arguments("_calculate_rewards") == ["self", "inputs", "prompts", "completions", "completion_ids_list"]
    passed = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"]
    assert arguments("_get_per_token_logps_and_entropies")[:7] == passed
    assert "training_step" in vars(GRPOTrainer)
    assert arguments("train")[:2] == ["self", "resume_from_checkpoint"]


OVERRIDDEN = {
    *("__init__", "training_step", "train", "create_model_card", "log", "_generate", "_generate_and_score_completions"),
    *("_get_per_token_logps_and_entropies", "_calculate_rewards", "_compute_loss"),
}


def test_nothing_of_ours_hides_something_of_theirs():
    """Methods, attributes and options that the adapter adds are not names that TRL uses."""
    added = {name for name in vars(DeltaTrainer) if not (name.startswith("__") and name.endswith("__"))}
    assert OVERRIDDEN - added == {"__init__"}
    theirs = stock()
    assert not [name for name in added - OVERRIDDEN if hasattr(theirs, name)]
    attributes = vars(build("delta")).keys() - vars(theirs).keys()
    ours = "seconds observers looks_closely _weigher _plan_now _capture _tool_masks _rewards _iterations _late"
    assert attributes >= {*ours.split(), "_loss_inputs", "_logit_scale"}
    # Options of theirs with another default of ours.
    ours = DeltaTrainerConfig.__annotations__.keys() - {"loss_type", "epsilon", "logging_nan_inf_filter"}
    assert not ours & GRPOConfig.__dataclass_fields__.keys()
    assert "delta" in GRPOConfig.__dataclass_fields__  # TRL's two-sided clip, which is not a method


def test_order_of_a_rollout_batch():
    trainer = stock({"num_iterations": 2, "max_steps": 2})
    trainer.train()
    update = ["loss", "update logps"]
    assert trainer.steps == ["prepare 2", "generate", "old logps", "rewards", *update, "prepare 2", *update]


def test_the_old_pass_gets_the_trainers_model_and_the_whole_batch():
    trainer = stock({"num_iterations": 2, "max_steps": 1})
    calls = []
    score = trainer._get_per_token_logps_and_entropies

    def watch(model, input_ids, attention_mask, logits_to_keep, **kwargs):
        calls.append((model, input_ids.shape, attention_mask, logits_to_keep, kwargs))
        return score(model, input_ids, attention_mask, logits_to_keep, **kwargs)

    trainer._get_per_token_logps_and_entropies = watch
    trainer.train()
    model, shape, attention_mask, logits_to_keep, kwargs = calls[0]
    assert model is trainer.model
    assert shape[0] == ROWS
    assert attention_mask.dtype == torch.int64  # so that .bool() copies: the tool mask is written into the copy
    assert "compute_entropy" not in kwargs or not kwargs["compute_entropy"]
    # Completions are padded on the right, prompts on the left.
    assert (attention_mask[:, -logits_to_keep] == 1).all()
    assert (attention_mask[:, :1] == 0).any()
    # The loss asks for entropies, by keyword.
    assert calls[1][4]["compute_entropy"] is True


@pytest.mark.parametrize(
    ("method", "shape", "planned", "did"),
    [
        ("delta", "one micro-batch", True, "no"),
        ("delta", "accumulation 4", True, "no"),
        ("dapo", "several updates", False, "an"),
    ],
)
def test_a_trl_that_runs_the_pass_at_other_times_is_refused(monkeypatch, method, shape, planned, did):
    trainer = build(method, shape)
    monkeypatch.setattr(type(trainer), "_stock_pass", planned)
    with pytest.raises(RuntimeError, match=rf"ran {did} old-log-prob pass.*install such a version"):
        trainer.train()


def test_a_trl_that_counts_other_tokens_is_refused():
    """The tool mask is noted before TRL pads it: what was captured must be what TRL trains on."""
    trainer = build("delta", "several updates", rollout_func=rollout(tools=True))
    generate = trainer._generate

    def another(prompts):
        generated = generate(prompts)
        trainer._tool_masks = [[1] * len(mask) for mask in generated[2]]
        return generated

    trainer._generate = another
    with pytest.raises(RuntimeError, match=r"counts other tokens as valid than those that were captured.*install"):
        trainer.train()


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation 4", "several updates"])
def test_a_backbone_that_is_not_called_is_refused(shape):
    trainer = build("delta", shape)
    unused = torch.nn.Linear(2, 2)
    trainer._backbone = lambda: unused
    with pytest.raises(RuntimeError, match="the hook on Linear got 0 of 24 responses"):
        trainer.train()


def test_a_forward_over_a_part_of_the_rows_is_refused():
    """The late way counts on one forward over all rows of the rollout batch."""
    trainer = build("delta", "one micro-batch")
    score = GRPOTrainer._get_per_token_logps_and_entropies

    class Chunked(type(trainer)):
        def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
            return super()._get_per_token_logps_and_entropies(model, *args, **{**kwargs, "batch_size": 16})

    trainer.__class__ = Chunked
    assert "batch_size" in inspect.signature(score).parameters
    with pytest.raises(RuntimeError, match="had 16 of 24 responses, not all at once"):
        trainer.train()


def test_what_is_added_to_a_batch_travels_with_its_rows():
    """TRL shuffles and splits every tensor of the batch alike."""
    trainer = stock({"max_steps": 1})
    score = trainer._generate_and_score_completions
    kept = {}

    def numbered(inputs):
        output = score(inputs)
        kept.update(output, delta_row=torch.arange(ROWS))
        return dict(kept)

    trainer._generate_and_score_completions = numbered
    trainer.train()
    (inputs,) = trainer._buffered_inputs
    assert inputs["delta_row"].tolist() != list(range(ROWS))
    for name in ("completion_ids", "completion_mask", "advantages", "prompt_ids"):
        assert torch.equal(inputs[name], kept[name][inputs["delta_row"]]), name


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_the_attention_mask_is_left_alone(dtype):
    """The tool mask is written into a copy, whatever the mask's type."""
    trainer = build("delta")
    trainer._tool_masks = [[1, 0, 1]]
    mask = torch.tensor([[1, 1, 1, 0]]).to(dtype)
    assert trainer._written_tokens(mask).tolist() == [[True, False, True, False]]
    assert mask.tolist() == torch.tensor([[1, 1, 1, 0]]).to(dtype).tolist()


def test_states_come_to_the_device_of_the_mask():
    """`device_map="auto"` leaves the last layers, and so the states, on another device than the batch."""

    class Elsewhere(torch.Tensor):
        moved: ClassVar = []

        def to(self, *args, **kwargs):
            self.moved.append(args[0])
            return super().to(*args, **kwargs)

    backbone = torch.nn.Identity()
    stream = CreditStream(Delta())
    mask, tokens = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.long)
    capture = Capture(stream, mask, tokens)
    with capture.opened(backbone):
        backbone((torch.randn(2, 5, 4).as_subclass(Elsewhere),))
    assert Elsewhere.moved == [mask.device]
    assert len(stream.store) == 6


SEEN = []


@dataclass(frozen=True)
class FromTheStates(TokenRule):
    """Keeps what the states, the head and the temperature say of the tokens' log-probs, and what the engine says."""

    needs = ("hidden", "head", "tokens", "logps")

    def weigh(self, batch):
        states = torch.cat([rows for _, rows in batch.store.chunks([True] * len(batch.store.bounds))])
        logits = states @ batch.head.T / batch.temperature
        SEEN.append(
            {
                "states": states.clone(),
                "from the states": logits.log_softmax(-1).gather(1, batch.tokens[:, None])[:, 0],
                "logps": batch.logps.float(),
                "temperature": batch.temperature,
            }
        )
        return batch.ones()


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation 4", "several updates"])
@pytest.mark.parametrize("case", ["plain", "LoRA", "tied head", "granite", "cohere"])
def test_captured_states_give_trls_log_probs(case, shape):
    """softmax(W h / temperature) at the captured states is what TRL's fused head scored, at every valid token."""
    peft_config = model = None
    if case == "LoRA":
        from peft import LoraConfig

        peft_config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    elif case == "tied head":
        model = make_model(tie_word_embeddings=True)
    elif case in ("granite", "cohere"):
        model = scaled_model(case)
    SEEN.clear()
    trainer = build(FromTheStates(), shape, model=model, peft_config=peft_config, max_steps=1)
    trainer.train()
    (seen,) = SEEN
    assert len(seen["states"]) == int(trainer.batches[0].mask.sum())
    # A softmax over 585 entries, in another order.
    close = rounding(600, size=seen["logps"].abs().max().item())
    torch.testing.assert_close(seen["from the states"], seen["logps"], atol=close, rtol=0)
    if case == "cohere":
        assert seen["temperature"] == pytest.approx(TEMPERATURE / 0.25)


def test_log_probs_are_zero_where_nothing_counts():
    trainer = build("delta", "several updates", rollout_func=rollout(tools=True), mask_truncated_completions=True)
    trainer.train()
    batch, padded = trainer.batches[0], trainer._buffered_inputs[0]["completion_mask"] == 0
    assert (trainer._buffered_inputs[0]["old_per_token_logps"][padded] == 0).all()
    assert (batch.logps[batch.mask] < 0).all()


def scaled_model(kind):
    """Models that multiply (Cohere) or divide (Granite) their logits by a constant."""
    torch.manual_seed(0)
    shape = {**SMALL, "num_hidden_layers": 1, "num_key_value_heads": 2, "bos_token_id": 2}
    if kind == "granite":
        config = transformers.GraniteConfig(**shape, logits_scaling=4.0, initializer_range=0.3)
        return transformers.GraniteForCausalLM(config)
    return transformers.CohereForCausalLM(transformers.CohereConfig(**shape, logit_scale=0.25, initializer_range=0.3))


def test_the_tool_mask_is_the_third_of_what_is_generated():
    trainer = build("delta", rollout_func=rollout(tools=True))
    prompts = ["7 + 5"] * GENERATIONS
    generated = GRPOTrainer._generate(trainer, prompts)
    assert len(generated) == 8
    assert [len(row) for row in generated[2]] == [len(row) for row in generated[1]]
    assert {value for row in generated[2] for value in row} == {0, 1}


def test_rewards_are_gathered_in_rank_order_one_column_a_function():
    trainer = stock({"max_steps": 1})
    trainer.train()
    _, prompts, completions, ids = trainer.reward_arguments
    assert trainer.rewards.shape == (ROWS, 1)
    assert len(prompts) == len(completions) == len(ids) == ROWS
    assert trainer.reward_func_names == ["fixed_reward"]
    assert trainer.reward_weights.shape == (1,)


def test_defaults_that_a_method_counts_on():
    """The paper's constants are TRL's defaults where the config leaves them alone."""
    args = GRPOConfig(output_dir="unused", **{k: v for k, v in QUIET.items() if k != "disable_tqdm"})
    assert args.epsilon == 0.2
    assert args.beta == 0.0
    assert (args.sapo_temperature_pos, args.sapo_temperature_neg) == (SoftGate().positive, SoftGate().negative)


def test_metrics_and_counters_that_we_write_to_or_read():
    trainer = stock({"max_steps": 1})
    assert set(trainer._metrics) == {"train", "eval"}
    assert trainer._step == 0
    trainer.train()
    assert trainer._step == 1
    assert trainer.state.global_step == 1
    assert trainer.temperature == TEMPERATURE
    assert isinstance(trainer.accelerator, Accelerator)
    assert trainer._tokenizer is not None


def test_unsupported_versions_are_named():
    check_trl_version()
    check_trl_version("1.16.3")
    for version in ("1.15.2", "1.17.0", "1.17.0.dev0", "2.0"):
        with pytest.raises(ImportError, match=rf'TRL {version} is installed.*pip install "trl~=1.16.0"'):
            check_trl_version(version)


def test_the_constructor_checks_the_version(monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.99.0")
    with pytest.raises(ImportError, match=r"TRL 1\.99\.0 is installed"):
        build("delta")
