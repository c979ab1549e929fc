"""The README runs, the shapes of each engine, and the package without torch."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rlvr_graders
from rlvr_graders import verifiers, verl
from rlvr_graders.math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_readme_runs():
    (block,) = re.findall(r"```python\n(.*?)\n```\n\n", README, re.DOTALL)
    names: dict[str, object] = {}
    imports, *lines = [line for line in block.splitlines() if line]
    exec(imports, names)
    for line in lines:
        call, _, said = line.partition("  # ")
        verdict = eval(call, names)
        assert verdict.score == 1.0
        assert not said or repr(verdict) == said
    assert names["math_reward"](completions=[r"\boxed{2}"], answer=["2"]) == [1.0]


def test_nothing_heavy_is_loaded():
    heavy = "{'torch', 'sympy', 'mpmath', 'numpy', 'rich', 'delta_rlvr'}"
    code = f"import sys, rlvr_graders, rlvr_graders.verl, rlvr_graders.cli; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def run(coroutine):
    """In a thread of its own: another test of this process may have left an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.mark.parametrize("right", [True, False])
def test_the_shapes_of_engines(right):
    answer = "0.5" if right else "0.7"
    text, chat = r"\boxed{\frac12}", [{"role": "assistant", "content": r"\boxed{\frac12}"}]
    assert rlvr_graders.math_reward(prompts=["p"], completions=[chat], answer=[answer]) == [float(right)]
    assert verl.compute_score("any", text, answer, {"index": 1})["score"] == float(right)
    assert run(verifiers.math_reward(prompt="p", completion=chat, answer=answer, state={})) == right
    assert run(verifiers.choice_reward(completion="Answer: B", answer="B" if right else "C")) == right
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": [2 if right else 3]}
    assert run(verifiers.code_reward(completion="def f(x):\n    return x + 1", answer=tests)) == right


def test_verifiers_takes_them_for_functions_of_one_response():
    """By its own rule: parameters in the plural, or a list as the result, would make them judge a group."""
    for function in (verifiers.math_reward, verifiers.choice_reward, verifiers.code_reward):
        assert list(inspect.signature(function).parameters) == ["completion", "answer", "_"]


def test_verl_takes_math_verify_by_name():
    pytest.importorskip("math_verify")
    for answer, score in (("0.5", 1.0), ("0.7", 0.0)):
        assert verl.compute_score("any", r"\boxed{\frac12}", answer, {"grader": "math-verify"})["score"] == score


def test_verl_looks_where_the_row_says():
    assert verl.compute_score("x", "so\n#### 5", "5", {"extract": "hash_line"})["score"] == 1.0
    assert (
        verl.compute_score("x", "so\n#### 5", "5", {"grader": "math", "meta": '{"extract": "hash_line"}'})["score"]
        == 1.0
    )
    assert verl.compute_score("x", "so\n#### 5", "5")["reason"] == "no final answer"
    with pytest.raises(ValueError, match="there is no such grader; give one of math, choice, code, math-verify"):
        verl.compute_score("x", "5", "5", {"grader": "horoscope"})


# Where math-verify's own parse finds an answer, ours finds the same; with boxes and "the answer is" first.
FOUND = {
    r"\frac{1}{2}": r"\frac{1}{2}",
    r"$\frac12$": r"\frac12",
    "42": "42",
    "The answer is 42.": "42",
    "so $x=3$ and thus $y=4$.": "y=4",
    r"first $3$, then \boxed{5}": "5",
    "I think it is 17 apples": "17",
    "(1,2)": "(1,2)",
    r"**Final Answer**: \(\sqrt{2}\)": r"\sqrt{2}",
    "<think>$1$</think> It is $2$.": "2",
    "nothing to see": None,
}


@pytest.mark.parametrize("text", FOUND)
def test_parse(text):
    assert parse(text) == ([] if FOUND[text] is None else [FOUND[text]])


def test_parse_by_configuration():
    strict = [LatexExtractionConfig(try_extract_without_anchor=False, boxed_match_priority=0)]
    assert parse("it is $3$", strict, extraction_mode="first_match") == []
    assert parse(r"it is \boxed{3}", strict, parsing_timeout=None) == ["3"]
    assert parse("Answer: (C)", [StringExtractionConfig()]) == ["c"]
    assert parse("Answer: 5", [StringExtractionConfig()]) == []
    assert parse("Answer: 5", [StringExtractionConfig(), ExprExtractionConfig()]) == ["5"]


def test_verify():
    assert verify(parse(r"$\frac12$"), parse("The answer is 0.5"), timeout_seconds=3)
    assert verify("1/2", 0.5)
    assert verify(["3", "4"], ["5", "4"])
    assert not verify(parse("$2$"), parse("$3$"))
    assert not verify(parse("$2$"), [])
    sympy = pytest.importorskip("sympy")
    assert verify(sympy.Symbol("x") ** 2 + 1, "1+x^2")
    with pytest.raises(ValueError, match="strict=False: rlvr_graders compares exact values"):
        verify("x", "y", strict=False)


TRL_SCRIPT = """
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
import rlvr_graders

words = ["<pad>", "<eos>", *map(str, range(20)), "box"]
core = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<pad>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_embd=16, n_layer=1, n_head=1, n_positions=32))
data = Dataset.from_dict({"prompt": ["1 2"] * 8, "answer": ["3"] * 8})
settings = GRPOConfig("out", max_steps=1, num_generations=4, per_device_train_batch_size=4, max_completion_length=4,
                      report_to="none", use_cpu=True, bf16=False)
trainer = GRPOTrainer(model=model, args=settings, train_dataset=data, processing_class=tokenizer,
                      reward_funcs=[rlvr_graders.math_reward])
trainer.train()
print(trainer.state.log_history[0]["rewards/math_reward/mean"], trainer.state.log_history[0]["math_reward/no_answer"])
"""


@pytest.mark.slow
def test_a_trl_script_takes_it(tmp_path):
    pytest.importorskip("trl")
    done = subprocess.run([sys.executable, "-c", TRL_SCRIPT], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("0.0 1.0")
