"""Training on completions that are fixed beforehand, with a record of what the trainer did.

A response is drawn from its prompt, its number within the group and the round, so that runs on one and on two ranks get the same ones.
"""

import functools
import random
from types import SimpleNamespace

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

from delta_rlvr.adapters.trl import DeltaTrainer, DeltaTrainerConfig
from delta_rlvr.models.load import load_policy
from scratch import scratch_folder

GROUPS, GENERATIONS, ROWS = 3, 8, 24  # on two ranks the middle group has half of its responses on each
TEMPERATURE = 0.8
LEARNING_RATE = 0.1
# Of different lengths, so that TRL pads on the left; the third of each three gets one reward throughout. The numbers are such that no
# selection by rank is decided between tokens that are nearly level (`assert_clear_cut`): all responses to a prompt share the entropy of
# their first token, for one.
PROMPTS = [
    "7 + 5",
    "What do 58 and 18 make together?",
    "Add 4 and 9, then add 12!",
    "12 + 60 + 3",
    "Take 44.",
    "What is 2 and 2!",
]

# Batch shapes: (gradient accumulation, micro-batches a generation, iterations, optimizer steps).
SHAPES = {
    "one micro-batch": (1, 1, 1, 2),
    "accumulation 4": (4, 4, 1, 2),
    "several updates": (2, 4, 2, 5),
    "several generations a step": (4, 1, 1, 2),
}


@functools.cache
def tokenizer():
    return load_policy("builtin")[1]


SMALL = {
    **{"vocab_size": 585, "eos_token_id": 1, "pad_token_id": 0, "max_position_embeddings": 128},
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2},
}
"""A model of any kind with the bundled tokenizer's vocabulary."""


def make_model(seed=0, **settings):
    """A small random Qwen3 with an untied head."""
    torch.manual_seed(seed)
    own = {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False, "initializer_range": 0.15}
    return Qwen3ForCausalLM(Qwen3Config(**SMALL | own | settings))


def response(prompt_ids, copy, round_number, *, longest=9, end=True):
    """(tokens, written by the model?) of a response. The first token differs within a group: no two states are the same."""
    draw = random.Random(f"{prompt_ids} {copy} {round_number}")
    length = draw.randint(2, longest)
    tokens = [20 + 64 * copy + draw.randrange(64), *(draw.randrange(4, 585) for _ in range(length - 1))]
    if end and draw.random() < 0.7:
        tokens[-1] = 1
    return tokens, [int(place == 0 or draw.random() < 0.7) for place in range(length)]


def reward_of(prompt, tokens):
    """Groups whose prompt ends in an exclamation mark have no signal, hence advantage 0."""
    if prompt.endswith("!"):
        return 1.0
    return float(sum(tokens) % 3 == 0) + 0.25 * (tokens[0] % 2)


def fixed_reward(prompts, completion_ids, **_):
    return [reward_of(prompt, tokens) for prompt, tokens in zip(prompts, completion_ids, strict=True)]


def rollout(*, tools=False, sampling=False, end=True):
    """A `rollout_func`: the fixed responses, optionally with tool tokens in them or with a sampler's own log-probs."""
    rounds = []

    def generate(prompts, trainer):
        rounds.append(None)
        first = trainer.accelerator.process_index * len(prompts)
        prompt_ids = trainer.processing_class(text=prompts)["input_ids"]
        drawn = [
            response(ids, (first + number) % GENERATIONS, len(rounds), end=end) for number, ids in enumerate(prompt_ids)
        ]
        output = {"prompt_ids": prompt_ids, "completion_ids": [tokens for tokens, _ in drawn]}
        output["logprobs"] = [[-6.0 - 0.1 * (token % 5) for token in tokens] for tokens, _ in drawn]
        if not sampling:
            output["logprobs"] = None
        if tools:
            output["env_mask"] = [written for _, written in drawn]
        return output

    return generate


class Recording:
    """What a trainer generated and what its losses were. A mix-in for `DeltaTrainer` and for `GRPOTrainer`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.generations = []
        self.losses = []

    def _generate(self, prompts):
        generated = super()._generate(prompts)
        if self.model.training:
            rows = [
                {"prompt": prompt, "prompt_ids": prompt_ids, "tokens": tokens, "written": written}
                for prompt, prompt_ids, tokens, written in zip(
                    prompts, generated[0], generated[1], generated[2] or [None] * len(prompts), strict=True
                )
            ]
            self.generations.append({"at": len(self.losses), "rows": rows})
        return generated

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        rows = []
        for prompt, prompt_mask, tokens in zip(
            inputs["prompt_ids"], inputs["prompt_mask"], inputs["completion_ids"], strict=True
        ):
            rows.append((prompt[prompt_mask.bool()].tolist(), tokens.tolist()))
        self.losses.append({"rows": rows, "loss": loss.item()})
        return loss


class RecordedDelta(Recording, DeltaTrainer):
    """Also keeps what observers are shown of each rollout batch. (Tests that pickle it get its tensors alone.)"""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = []
        self.observers.append(self.batches.append)


class RecordedStock(Recording, GRPOTrainer):
    pass


def settings_of(shape, ranks=1, **more):
    """Trainer settings of a batch shape: the same responses in a generation, whatever the number of ranks."""
    accumulation, per_generation, iterations, steps = SHAPES[shape]
    return {
        "output_dir": scratch_folder(),
        "per_device_train_batch_size": ROWS // (ranks * per_generation),
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": per_generation,
        "num_iterations": iterations,
        "max_steps": steps,
        "num_generations": GENERATIONS,
        "max_completion_length": 12,
        "temperature": TEMPERATURE,
        # Plain gradient descent with a large step: ratios leave the clip range, and a step can be repeated by hand.
        "optim": "sgd",
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "seed": 1,
        "shuffle_dataset": False,
        **QUIET,
        **more,
    }


def config(**settings):
    """A config of ours alone, for what it refuses and makes of its settings."""
    return DeltaTrainerConfig(**settings_of("one micro-batch", **settings))


QUIET = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 100,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def build(
    method="delta",
    shape="one micro-batch",
    *,
    ranks=1,
    model=None,
    peft_config=None,
    reward=fixed_reward,
    rollout_func=None,
    stock=False,
    **settings,
):
    """A recorded trainer on the fixed responses."""
    set_seed(1)
    given = settings_of(shape, ranks, **settings)
    args = GRPOConfig(**given) if stock else DeltaTrainerConfig(method=method, **given)
    return (RecordedStock if stock else RecordedDelta)(
        model=model if model is not None else make_model(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS * 4}),
        processing_class=tokenizer(),
        rollout_func=rollout_func or rollout(),
        peft_config=peft_config,
    )


def pretend_vllm(trainer):
    """As if the responses had come from vLLM, whose log-probs differ a little from the policy's."""
    trainer.use_vllm = True
    trainer.vllm_mode = "server"
    trainer._last_loaded_step = -1
    trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)


def parameters_of(trainer):
    """The trained model's parameters, by the names of the model alone."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: value.detach().clone() for name, value in model.named_parameters()}
