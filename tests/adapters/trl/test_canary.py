"""Every internal of TRL that the adapter relies on. When one of these fails after an upgrade, the adapter has to be looked at."""

import inspect

import pytest
import torch
import transformers
import trl
from accelerate import Accelerator
from datasets import Dataset
from replayed_training import (
    GENERATIONS,
    QUIET,
    ROWS,
    TEMPERATURE,
    RecordedDelta,
    build,
    make_model,
    tokenizer,
)
from trl import GRPOConfig, GRPOTrainer

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig, check_trl_version
from delta_rlvr.objectives import SoftGate
from rounding import MODEL, rounding


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
    from replayed_training import fixed_reward, rollout, settings_of

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
    assert arguments("_calculate_rewards") == [
        "self",
        "inputs",
        "prompts",
        "completions",
        "completion_ids_list",
    ]
    assert arguments("_get_per_token_logps_and_entropies")[:7] == [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
    ]
    assert "training_step" in vars(GRPOTrainer)


def test_nothing_of_ours_hides_something_of_theirs():
    """Attributes and options that the adapter adds are not names that TRL uses."""
    trainer = stock()
    added = (
        "method",
        "seconds",
        "observers",
        "looks_closely",
        "_store",
        "_capture",
        "_tool_masks",
        "_rewards",
        "_loss_inputs",
    )
    assert not [name for name in added if hasattr(trainer, name)]
    methods = (
        "passes_per_batch",
        "ends_batch",
        "planned_steps",
        "load_weights",
        "_weigh",
        "_round_number",
        "_stream",
        "_groups",
        "_report",
        "_valid_tokens",
        "_causal_model",
        "_backbone",
        "_head",
    )
    assert not [name for name in methods if hasattr(trainer, name)]
    ours = DeltaTrainerConfig.__annotations__.keys() - {"loss_type"}
    assert not ours & GRPOConfig.__dataclass_fields__.keys()
    assert "delta" in GRPOConfig.__dataclass_fields__  # TRL's two-sided clip, which is not a method


def test_order_of_a_rollout_batch():
    trainer = stock({"num_iterations": 2, "max_steps": 2})
    trainer.train()
    assert trainer.steps == [
        "prepare 2",
        "generate",
        "old logps",
        "rewards",
        "loss",
        "update logps",
        "prepare 2",
        "loss",
        "update logps",
    ]


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
    assert (
        attention_mask.dtype == torch.int64
    )  # so that .bool() copies: the tool mask is written into the copy
    assert "compute_entropy" not in kwargs or not kwargs["compute_entropy"]
    # Completions are padded on the right, prompts on the left.
    assert (attention_mask[:, -logits_to_keep] == 1).all()
    assert (attention_mask[:, :1] == 0).any()
    # The loss asks for entropies, by keyword.
    assert calls[1][4]["compute_entropy"] is True


@pytest.mark.parametrize("accumulation", [1, 4])
def test_old_logps_are_skipped_by_trl_and_not_by_us(accumulation):
    """With as many micro-batches a generation as an optimizer step has, TRL needs no old log-probs."""
    settings = {
        "per_device_train_batch_size": ROWS // accumulation,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,
        "max_steps": 1,
    }
    plain = stock(settings)
    plain.train()
    assert "old logps" not in plain.steps
    trainer = build("delta", **settings)
    buffered = []
    prepare = trainer._prepare_inputs

    def watch(batch):
        inputs = prepare(batch)
        buffered.append(inputs)
        assert trainer.num_iterations == 1  # TRL's own counting of generations is left alone
        return inputs

    trainer._prepare_inputs = watch
    trainer.train()
    assert len(buffered) == accumulation
    assert all("old_per_token_logps" in inputs for inputs in buffered)
    assert len(trainer.generations) == 1


def test_a_trl_that_skips_the_pass_is_refused():
    trainer = build("delta")
    trainer._old_logps_always = lambda: (
        torch.no_grad()
    )  # some other context: the trick does not work any more
    with pytest.raises(RuntimeError, match=r"ran no old-log-prob pass.*install such a version"):
        trainer.train()


def test_a_backbone_that_is_not_called_is_refused():
    trainer = build("delta")
    unused = torch.nn.Linear(2, 2)
    trainer._backbone = lambda: unused
    with pytest.raises(RuntimeError, match="showed 0 of 24 responses to the hook on Linear"):
        trainer.train()


def test_token_advantages_scale_the_token_losses():
    """`_compute_loss` takes advantages of shape (batch, time), and reads them after the log-probs are there."""
    trainer = stock({"num_iterations": 2, "max_steps": 1})
    trainer.train()
    inputs = trainer._buffered_inputs[0]
    inputs["old_per_token_logps"] = inputs["old_per_token_logps"] + 0.3 * torch.randn(
        inputs["completion_ids"].shape
    )
    mask = inputs["completion_mask"].bool()
    torch.manual_seed(0)
    weights = torch.rand(mask.shape) + 0.5
    one = inputs["advantages"][:, None]
    loss = trainer._compute_loss(trainer.model, {**inputs, "advantages": one * weights}).item()

    with torch.no_grad():
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        logps = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, mask.shape[1])[0]
        ratio = (logps - inputs["old_per_token_logps"]).exp()
        plain = -torch.min(ratio * one, ratio.clamp(0.8, 1.2) * one)
    assert loss == pytest.approx(((plain * weights)[mask].sum() / mask.sum()).item(), abs=rounding(MODEL))
    assert ((ratio < 0.8) | (ratio > 1.2))[mask].float().mean() > 0.2

    late = dict(inputs)
    score = trainer._get_per_token_logps_and_entropies

    def replace_advantages(*args, **kwargs):
        result = score(*args, **kwargs)
        late["advantages"] = one * weights
        return result

    trainer._get_per_token_logps_and_entropies = replace_advantages
    assert trainer._compute_loss(trainer.model, late).item() == pytest.approx(loss, abs=rounding(MODEL))


@pytest.mark.parametrize("case", ["plain", "LoRA", "tied head", "granite", "cohere"])
def test_captured_states_give_trls_log_probs(case):
    """softmax(W h / temperature) at the captured states is what TRL's fused head scored, at every valid token."""
    peft_config = model = None
    if case == "LoRA":
        from peft import LoraConfig

        peft_config = LoraConfig(
            r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
        )
    elif case == "tied head":
        model = make_model(tie_word_embeddings=True)
    elif case in ("granite", "cohere"):
        model = scaled_model(case)
    trainer = build("delta-topk", model=model, peft_config=peft_config, max_steps=1)
    captured = {}
    weigh = trainer._weigh

    def watch(capture, output, inputs):
        captured.update(mask=capture.mask, logps=output["old_per_token_logps"], stream=capture.stream)
        return weigh(capture, output, inputs)

    hidden = []
    stream = trainer._stream

    def keep_hidden():
        made = stream()
        captured["head"] = made.head.clone()  # the step that follows changes it
        add = made.add

        def keep(states, mask, tokens):
            hidden.append((states[mask], tokens[mask]))
            add(states, mask=mask, tokens=tokens)

        made.add = keep
        return made

    trainer._weigh, trainer._stream = watch, keep_hidden
    trainer.train()
    states, tokens = (torch.cat(parts) for parts in zip(*hidden, strict=True))
    made = captured["stream"]
    logits = states @ captured["head"].T / made.temperature
    logps = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    assert len(states) == int(captured["mask"].sum())
    close = rounding(600, size=logits.abs().max().item())  # a softmax over 585 entries
    torch.testing.assert_close(logps, captured["logps"][captured["mask"]], atol=close, rtol=0)
    assert (captured["logps"][~captured["mask"]] == 0).all()
    if case == "cohere":
        assert made.temperature == pytest.approx(TEMPERATURE / 0.25)


def scaled_model(kind):
    """Models that multiply (Cohere) or divide (Granite) their logits by a constant."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": 585,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
    }
    if kind == "granite":
        config = transformers.GraniteConfig(**shape, logits_scaling=4.0, initializer_range=0.3)
        return transformers.GraniteForCausalLM(config)
    return transformers.CohereForCausalLM(
        transformers.CohereConfig(**shape, logit_scale=0.25, initializer_range=0.3)
    )


def test_the_tool_mask_is_the_third_of_what_is_generated():
    from replayed_training import rollout

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
    assert (args.sapo_temperature_pos, args.sapo_temperature_neg) == (
        SoftGate().positive,
        SoftGate().negative,
    )


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


def test_the_recorded_trainer_is_the_real_one():
    """The tests' own subclass overrides only to look."""
    assert issubclass(RecordedDelta, DeltaTrainer)
    assert "_weigh" not in vars(RecordedDelta)
