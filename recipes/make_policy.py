"""Make the bundled policy: a tiny Qwen3 that tells sums in many words and gets a good part of them wrong.

    python recipes/make_policy.py                    # writes it anew into the package
    python recipes/make_policy.py --output DIR       # or elsewhere; --width, --layers, --carry-slips, ... make others

It learns from solutions with slips mixed in (see `Slips`), so that its digits are uncertain for a reason that
reinforcement can remove, and from phrasings drawn at random, so that its words are uncertain for no reason at all.
Seeded throughout: the same machine, library versions and number of threads give the same weights. With one thread
(OMP_NUM_THREADS=1) it takes about eight minutes of one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from delta_evidence.planted.policies import collate
from delta_rlvr.tasks.phrased_sums import PhrasedSums, Slips
from delta_rlvr.tasks.registry import BUILT_IN, DEFAULT_TASK

PACKAGED = Path(__file__).parents[1] / "src" / "delta_rlvr" / "models" / "policy"
END, PADDING = "<|end|>", "<|padding|>"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights."""

    seed: int = 0
    """Of the initial weights, the problems, the phrasings and the slips."""
    steps: int = 1800
    """Optimizer steps taken. Too few on purpose: the sums are learnt in part only, as in a real base model."""
    schedule: int = 3600
    """Steps that the learning rate is laid out for."""
    batch: int = 64
    """Solutions a step, each seen once."""
    learning_rate: float = 2e-3
    """Peak of AdamW's learning rate; warm-up over the first 5 %, then a cosine down to a tenth."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    default_share: float = 0.6
    """Share of solutions from the default task; the variants share the rest."""
    carry_slips: float = 0.4
    """How often a carry is forgotten in the solutions."""
    digit_slips: float = 0.06
    """How often a last digit is off by one in them."""
    width: int = 96
    """Hidden size."""
    layers: int = 3
    """Transformer layers."""
    vocabulary: int = 768
    """Most entries that the tokenizer may have: 256 bytes, and merges until every word is one token."""

    def __post_init__(self) -> None:
        if not 0 < self.steps <= self.schedule:
            raise ValueError(f"steps must be in 1..schedule, got {self.steps} of {self.schedule}")
        if not 0 <= self.default_share <= 1:
            raise ValueError(f"default_share must be in 0..1, got {self.default_share}")


def build_tokenizer(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Bytes merged into words, so that any text round-trips; a digit is always a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    # A word takes the space before it, and the one after it where a number follows: no token is a bare space.
    pieces = Regex(r" ?[A-Za-z]+ (?=\d)| ?[A-Za-z]+|[,:] (?=\d)|\d|[^A-Za-z\d]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PADDING, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PADDING,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return fast


def build_model(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Qwen3ForCausalLM:
    """Qwen3 with random weights."""
    torch.manual_seed(recipe.seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.width * 5 // 2,
        num_hidden_layers=recipe.layers,
        num_attention_heads=max(1, recipe.width // 32),
        num_key_value_heads=max(1, recipe.width // 64),
        head_dim=32,  # the least that fast attention kernels take
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # A small model needs larger initial weights than the 0.02 of a large one to start learning at once.
        initializer_range=0.05,
    )
    return Qwen3ForCausalLM(config)


def batches(recipe: Recipe) -> Iterator[list[tuple[str, str]]]:
    """Batches of (prompt, solution) without end, from the training problems of every built-in task.

    A batch is of one task: solutions of a like length waste little on padding.
    """
    draw = random.Random(recipe.seed)
    slips = Slips(carry=recipe.carry_slips, digit=recipe.digit_slips)
    # A seed of its own, so that training with the usual seeds starts on problems that are (nearly all) new.
    streams = {name: task.stream("train", seed=-1 - recipe.seed) for name, task in BUILT_IN.items()}
    rest = (1 - recipe.default_share) / (len(BUILT_IN) - 1)
    shares = [recipe.default_share if name == DEFAULT_TASK else rest for name in BUILT_IN]
    while True:
        task: PhrasedSums = draw.choices(list(BUILT_IN.values()), shares)[0]
        problems = itertools.islice(streams[task.name], recipe.batch)
        yield [(str(problem.prompt), task.solution(problem, draw, slips)) for problem in problems]


def warm_start(
    recipe: Recipe, report: Callable[[int, float], None] | None = None, device: str = "cpu"
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """The whole recipe, in memory."""
    stream = batches(recipe)
    corpus = itertools.chain.from_iterable(pair for _ in range(64) for pair in next(stream))
    tokenizer = build_tokenizer(corpus, recipe.vocabulary)
    model: Any = build_model(tokenizer, recipe)
    model.to(device)
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    plain = [weight for weight in model.parameters() if weight.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.schedule, pct_start=0.05, final_div_factor=10 / 25
    )
    model.train()
    for step in range(1, recipe.steps + 1):
        loss = model(**collate(next(stream), tokenizer, device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if report is not None:
            report(step, loss.item())
    return model.eval(), tokenizer


@torch.no_grad()
def sampled_accuracy(
    model: Any, tokenizer: PreTrainedTokenizerFast, task: PhrasedSums, problems: int, greedy: bool = False
) -> float:
    """Accuracy on held-out problems: one sample each at temperature 1, or the likeliest token throughout."""
    torch.manual_seed(1)
    asked = task.problems("heldout", problems)
    inputs = tokenizer([str(problem.prompt) for problem in asked], return_tensors="pt", padding=True).to(model.device)
    output = model.generate(**inputs, max_new_tokens=task.max_tokens, do_sample=not greedy, top_k=0)
    told = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(task.grade(problem, text).score for problem, text in zip(asked, told, strict=True)) / problems


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=PACKAGED)
    parser.add_argument("--device", default="cpu", help="where to train; another one gives slightly other weights")
    for name, value in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = vars(parser.parse_args())
    output: Path = options.pop("output")
    device: str = options.pop("device")
    recipe = Recipe(**options)
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        if step % 100 == 0 or step == recipe.steps:
            print(f"step {step}/{recipe.steps}  loss {loss:.4f}  {time.monotonic() - started:.0f} s", flush=True)

    model, tokenizer = warm_start(recipe, report, device)
    output.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    accuracy = {
        name: {
            "sampled": sampled_accuracy(model, tokenizer, task, 1000),
            "greedy": sampled_accuracy(model, tokenizer, task, 1000, greedy=True),
        }
        for name, task in BUILT_IN.items()
    }
    record = {"recipe": asdict(recipe), "torch": torch.__version__, "heldout_accuracy": accuracy}
    (output / "recipe.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
