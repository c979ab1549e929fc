"""Small real things for the tests of evaluation: a tiny language model, and problems."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from delta_rlvr.evaluate.local_sampler import LocalSampler
from delta_rlvr.evaluate.records import Completion, Questions, Sample
from delta_rlvr.evaluate.results import EvaluationResult, build_result
from delta_rlvr.evaluate.runner import identity, run_evaluation
from delta_rlvr.evaluate.sample_file import SampleFile
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey
from delta_rlvr.tasks.problem import Problem
from rlvr_graders.verdict import Verdict

MODEL = {"name": "scripted"}
ALPHABET = "0123456789+=? abcdefghijklmnopqrstuvwxyz.\n"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character."""
    vocabulary = {"<pad>": 0, "<end>": 1, "<unk>": 2} | {c: place + 3 for place, c in enumerate(ALPHABET)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


def tiny_model(seed: int = 0) -> Qwen3ForCausalLM:
    """A random two-layer Qwen3 whose distributions are neither flat nor certain."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(ALPHABET) + 3,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.12,
        eos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    return Qwen3ForCausalLM(config).eval()


def sums(count: int, name: str = "sums") -> Questions:
    """Sums of prompts of different lengths, graded by `digit_grade`."""
    problems = tuple(
        Problem(f"q{number}", f"what is {number}+{7 ** (number % 5)}=?", str(number + 7 ** (number % 5)), "math")
        for number in range(count)
    )
    return Questions(name, problems, {"title": "Sums", "note": "a benchmark's own note"}, digit_grade)


def digit_grade(problem: Problem, completion: str) -> Verdict:
    """Right if the completion's first digit is even: a coin that the tiny model can toss."""
    digit = next((character for character in completion if character.isdigit()), None)
    if digit is None:
        return Verdict(0.0, "no final answer")
    return Verdict(float(int(digit) % 2 == 0), "correct" if int(digit) % 2 == 0 else "wrong answer", digit)


def make_result(
    scores: dict[str, list[list[float | None]]], seed: int = 0, asked: str = "a question", max_tokens: int = 100
) -> EvaluationResult:
    """A result from {benchmark: [[scores of a question], ...]}."""
    samples = {}
    benchmarks = []
    count = len(next(iter(scores.values()))[0])
    for name, rows in scores.items():
        ids = tuple(f"q{number}" for number in range(len(rows)))
        problems = tuple(Problem(problem, asked, "1", "math") for problem in ids)
        benchmarks.append(Questions(name, problems, {"title": name}))
        for problem, row in zip(ids, rows, strict=True):
            for number, score in enumerate(row):
                if score is not None:
                    key = SampleKey(name, problem, number)
                    samples[key] = Sample(key, Completion("x", "stop", 1), 1, float(score), "", str(score))
    settings = EvaluationSettings(samples=count, seed=seed, max_tokens=max_tokens)
    return build_result(benchmarks, samples, {}, settings=settings, model={"name": "m"}, backend={}, run={})


def evaluated(sampler, settings, path=None, benchmarks=None, grade=digit_grade):
    """An evaluation, its samples kept in a file where there is a path for one."""
    benchmarks = [replace(one, grade=grade) for one in benchmarks or [sums(6), sums(3, "more")]]
    if path is None:
        return run_evaluation(benchmarks, sampler, settings, model=MODEL)
    with SampleFile(path, identity(benchmarks, settings, MODEL, sampler.describe())) as store:
        return run_evaluation(benchmarks, sampler, settings, model=MODEL, store=store)


def evaluate_tiny(path, pause=0.0):
    """What the process that is killed runs, and what continues after it."""
    settings = EvaluationSettings(samples=4, max_tokens=16, top_p=0.9, seed=1)
    sampler = LocalSampler(tiny_model(), tiny_tokenizer(), settings, batch_size=6)
    complete = sampler.complete
    sampler.complete = lambda batch: (time.sleep(pause), complete(batch))[1]
    return evaluated(sampler, settings, path, [sums(9), sums(4, "more")])
