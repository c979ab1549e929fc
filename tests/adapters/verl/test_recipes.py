"""The launch scripts say every value of the paper's Table 5 in verl's own words, for every method, and the data they read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delta_rlvr.adapters.verl.data import rows
from delta_rlvr.adapters.verl.reward import compute_score
from delta_rlvr.credit import Delta
from delta_rlvr.tasks import Problem, get_task
from delta_rlvr.tasks.templates import PAPER_MATH
from rlvr_graders.code import datasets
from rows import write_rows
from support_methods import TRAINABLE

RECIPES = Path(__file__).parents[3] / "recipes" / "verl"


def settings(script: str, *words: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["bash", str(RECIPES / script), *words],
        env={**os.environ, "DRY_RUN": "1", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def composed(overrides: list[str]) -> Any:
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=overrides)


# Table 5, and weight decay and gradient clip of the authors' script.
TABLE_5 = {
    "data.train_batch_size": 128,
    "actor_rollout_ref.rollout.n": 16,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "data.max_prompt_length": 2048,
    "data.max_response_length": 20480,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.28,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.optim.weight_decay": 0.1,
    "actor_rollout_ref.actor.grad_clip": 1.0,
    "actor_rollout_ref.actor.use_kl_loss": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_groups.enable": False,
    # The paper's is SGLang, which is not tried with the plug-in: ROLLOUT=sglang.
    "actor_rollout_ref.rollout.name": "vllm",
    "trainer.n_gpus_per_node": 8,
}


@pytest.mark.parametrize(
    ("script", "model", "steps"),
    [
        ("qwen3_8b_base.sh", "Qwen/Qwen3-8B-Base", 220),
        ("qwen3_14b_base.sh", "Qwen/Qwen3-14B-Base", 300),
        ("olmo3_7b_base.sh", "allenai/Olmo-3-1025-7B", 220),
    ],
)
def test_every_value_of_table_5_arrives_in_verls_config(
    verl_environment: None, script: str, model: str, steps: int
) -> None:
    from omegaconf import OmegaConf

    config = composed(settings(script, "delta"))
    expected = {**TABLE_5, "actor_rollout_ref.model.path": model, "trainer.total_training_steps": steps}
    assert {path: OmegaConf.select(config, path) for path in expected} == expected


def test_every_method_launches_without_a_contradiction(verl_environment: None) -> None:
    from delta_rlvr.adapters.verl.internals.front import settings_of

    made: dict[tuple[str, ...], Any] = {}
    for method in TRAINABLE:
        lines = settings("qwen3_8b_base.sh", method)
        # Composing takes a second: methods whose lines differ in their name alone share it.
        named = method.replace("?", "-").replace("&", "-")
        rest = tuple(line for line in lines if f"-{named}-seed0" not in line and "delta.method" not in line)
        if rest not in made:
            made[rest] = composed(lines)
        config = made[rest].copy()
        config.delta.method = method
        assert settings_of(config).method.name == method
    assert len(made) == 3  # what grpo and sapo set beside it, and what all others do


def test_the_papers_rollout_engine_can_be_chosen() -> None:
    assert "actor_rollout_ref.rollout.name=sglang" in settings("qwen3_8b_base.sh", "delta", ROLLOUT="sglang")


def test_further_words_and_nodes_reach_verl(verl_environment: None) -> None:
    from delta_rlvr.adapters.verl.internals.front import settings_of

    config = composed(
        settings(
            "qwen3_8b_base.sh", "delta?lambda_min=0.5&lambda_max=1.5", "trainer.save_freq=7", NNODES="4", OVERLONG="1"
        )
    )
    assert settings_of(config).method.rule == Delta(0.5, 1.5)
    assert config.delta.run_folder == "runs/Qwen3-8B-Base-delta-lambda_min=0.5-lambda_max=1.5-seed0"
    assert config.trainer.save_freq == 7
    assert config.trainer.nnodes == 4
    assert config.reward.reward_manager.name == "dapo"
    assert config.reward.reward_kwargs.overlong_buffer_cfg.len == 4096
    # What the optimizer sees of a step does not change with the number of nodes.
    assert config.data.train_batch_size == 128


def test_a_script_without_a_method_says_what_is_missing() -> None:
    done = subprocess.run(["bash", str(RECIPES / "qwen3_8b_base.sh")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "name the method" in done.stderr


def prepare(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RECIPES / "prepare_data.py"), *words], capture_output=True, text=True, check=False
    )


def judged(row: dict[str, Any], *completions: str) -> list[dict[str, Any]]:
    """verl's reward for responses to a row."""
    truth, extra = row["reward_model"]["ground_truth"], row["extra_info"]
    return [compute_score(row["data_source"], text, truth, extra) for text in completions]


HALF = {"problem": "What is 1/2?", "answer": "\\frac{1}{2}"}


def prepared(folder: Path, problems: list[dict[str, str]], *words: str) -> list[dict[str, Any]]:
    """The rows that problems become; "{}" in the words is their file."""
    import pyarrow.parquet

    source, output = write_rows(folder / "problems.jsonl", problems), folder / "data" / "train.parquet"
    done = prepare(*(word.replace("{}", str(source)) for word in words), "--output", str(output))
    assert done.returncode == 0, done.stderr
    return pyarrow.parquet.read_table(output).to_pylist()


def test_problems_become_rows_that_the_reward_function_grades(tmp_path: Path) -> None:
    long = {"problem": "What is 1+1?", "answer": "2", "solution": "it is long " * 1000}
    made = prepared(tmp_path, [long, HALF], "--source", "{}")
    assert [row["reward_model"]["ground_truth"] for row in made] == ["2", "\\frac{1}{2}"]
    (message,) = made[0]["prompt"]
    assert message["role"] == "user"
    assert message["content"] == PAPER_MATH.fill("What is 1+1?")
    assert "long" not in json.dumps(made), "solutions are left out"
    right, wrong = judged(made[1], "so it is \\boxed{0.5}", "\\boxed{3}")
    assert (right["score"], right["acc"]) == (1.0, 1.0)
    assert wrong["score"] == 0.0
    assert wrong["reason"]


@pytest.mark.parametrize(
    ("row", "words", "says"),
    [
        ({"question": "1+1?", "r1_solution_1": "2"}, (), "it has question, r1_solution_1"),
        ({"question": "1+1?", "final_answer": ""}, (), "its answer is empty"),
        ({"question": "1+1?", "answer": "2"}, ("--chat",), "leave chat=true out"),
    ],
)
def test_data_that_cannot_be_used_is_named(
    tmp_path: Path, row: dict[str, str], words: tuple[str, ...], says: str
) -> None:
    """A data set without answers, above all: as JSON Lines and as Parquet, where columns that nothing reads are not loaded."""
    import pyarrow.parquet

    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "x.parquet")
    for source in ("x.jsonl", "x.parquet"):
        output = tmp_path / "train.parquet"
        done = prepare("--source", str(tmp_path / source), "--output", str(output), *words)
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr
        assert not output.exists()


def test_verl_gives_the_model_the_prompt_as_it_stands(verl_environment: None) -> None:
    """By a chat template that passes the text through, also for a tokenizer that has none."""
    from evaluation_support import tiny_tokenizer

    text = PAPER_MATH.fill("1 + 1?")
    tokenizer = tiny_tokenizer()
    assert tokenizer.chat_template is None
    tokenizer.chat_template = composed(
        settings("olmo3_7b_base.sh", "delta")
    ).actor_rollout_ref.model.custom_chat_template
    messages = [{"role": "user", "content": text}]
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == text
    assert not any("custom_chat_template" in line for line in settings("olmo3_7b_base.sh", "delta", CHAT="1"))


def test_math_verify_judges_where_a_row_says_so(tmp_path: Path) -> None:
    (row,) = prepared(tmp_path, [HALF], "--source", "{}", "--reward", "math-verify")
    assert row["extra_info"]["grader"] == "math-verify"
    # It finds an answer without a box; ours does not.
    for extra, score in ((row["extra_info"], 1.0), (row["extra_info"] | {"grader": "math"}, 0.0)):
        assert compute_score("x", "so it is $0.5$", "1/2", extra)["score"] == score


def test_an_answer_is_looked_for_where_the_template_asked_for_it(tmp_path: Path) -> None:
    (row,) = prepared(tmp_path, [HALF], "--task", "{}?template=math_answer_line")
    assert 'a line of the form "Answer: X"' in row["prompt"][0]["content"]
    completions = "Half.\nAnswer: 0.5", "Half.\nAnswer: 0.2", "Half: \\boxed{0.5}"
    assert [one["score"] for one in judged(row, *completions)] == [1.0, 0.0, 0.0]


def test_shots_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    source, output = write_rows(tmp_path / "problems.jsonl", [HALF] * 8), tmp_path / "train.parquet"
    done = prepare("--task", f"{source}?shots=2", "--output", str(output))
    assert done.returncode != 0
    assert "ends at its first line break" in done.stderr
    assert not output.exists()


def test_every_grader_is_reached_from_a_row() -> None:
    program = {"inputs": ["3\n"], "outputs": ["6\n"]}
    wider = get_task("phrased-sums?addends=3").problems("train", 1)[0]
    double, two = (f"```python\nprint({what})\n```" for what in ("2 * int(input())", "2"))
    for problem, right, wrong in (
        (Problem("a", "Q", "C", "choice", {"extract": "answer_line"}), "Answer: C", "Answer: B"),
        (Problem("b", "Q", program, "code"), double, two),
        (wider, f"the answer is {wider.answer}", "the answer is 1"),
    ):
        (row,) = rows([problem], "x", "train")
        assert [one["score"] for one in judged(row, right, wrong)] == [1.0, 0.0], problem.grader


def test_rows_of_other_makers_are_mathematics_in_a_box() -> None:
    for extra in (None, {}, {"index": 3, "meta": {"extract": "answer_line"}}):
        assert compute_score("x", "\\boxed{5}", "5", extra)["score"] == 1.0
        assert compute_score("x", "\\boxed{5}", 5, extra)["score"] == 1.0
        assert compute_score("x", "Answer: 5", "5", extra)["score"] == 0.0


def test_tests_are_parsed_once_for_all_responses_to_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    parse = datasets.parse_tests

    def watch(answer: str) -> object:
        seen.append(answer)
        return parse(answer)

    monkeypatch.setattr(datasets, "parse_tests", watch)
    tests = [{"inputs": [given], "outputs": ["0"]} for given in ("parsed once", "parsed once too")]
    for _ in range(3):
        for each in tests:
            # verl reads a row anew for each response: equal, not the same.
            extra = {"grader": "code", "problem_id": "p", "meta": "{}"}
            assert compute_score("x", "", json.dumps(each), extra)["reason"] == "no code"
    assert seen == [json.dumps(each) for each in tests]


def test_a_built_in_task_is_graded_by_itself() -> None:
    task = get_task("phrased-sums")
    problem = task.problems("train", 1)[0]
    (row,) = rows([problem], task.name, "train")
    assert row["prompt"] == [{"role": "user", "content": problem.prompt}]
    reason = task.grade(problem, "hello").reason
    assert judged(row, "hello") == [{"score": 0.0, "acc": 0.0, "reason": reason, "not_graded": 0.0}]


def test_what_could_not_be_judged_is_counted() -> None:
    assert compute_score("x", r"\boxed{5}", r"\frac{1}{")["not_graded"] == 1.0


def test_scores_from_threads() -> None:
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(compute_score, "x", rf"\boxed{{\sqrt{{{4 * n}}}}}", rf"2\sqrt{{{n}}}") for n in range(2, 10)
        ]
    assert [job.result()["score"] for job in jobs] == [1.0] * 8


def test_rows_that_cannot_be_judged_are_refused() -> None:
    (row,) = rows([Problem("a", "b", "c", "horoscope")], "x", "train")
    with pytest.raises(ValueError, match="'horoscope': there is no such grader"):
        judged(row, "c")
    with pytest.raises(ValueError, match=r"extra_info.meta is a dict: give it as JSON text"):
        compute_score("x", "c", "c", {"grader": "math", "meta": {"extract": "whole"}})
