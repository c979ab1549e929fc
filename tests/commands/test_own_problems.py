"""Problems, prompts and rewards of one's own: from a file and a function to a run, a score and an evaluation."""

import json

import pytest

from command_line import SMALL, metrics, run_info
from delta_rlvr.cli import main
from delta_rlvr.runs import read_run
from delta_rlvr.tasks import Problem
from delta_rlvr.training.problems import default_prompt
from report_pages import unpacked

REWARD = '''
def short(completions, completion_ids=None, wanted=None, **columns):
    """Half a point for each of two wishes, so that it is neither right nor wrong."""
    return [0.5 * (len(text) % 2) + 0.5 * (word in text) for text, word in zip(completions, wanted)]
'''


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A CSV file without answers, and a function that judges by another column."""
    folder = tmp_path_factory.mktemp("own")
    lines = [f"Say {number}.,the" for number in range(40)]
    (folder / "mine.csv").write_text("\n".join(["question,wanted", *lines]) + "\n")
    (folder / "my.py").write_text(REWARD)
    return folder


@pytest.fixture(scope="module")
def trained(own):
    options = [*SMALL, "--steps", "2", "--rollouts_every", "1", "--eval_problems", "4", "--eval_samples", "2"]
    options += ["--task", str(own / "mine.csv"), "--reward", f"{own / 'my.py'}:short"]
    options += ["--template_text", "Add 1 and 2. {question}\n", "--report", "true"]
    assert main(["train", *options, "--output", str(own / "run")]) == 0
    return own / "run"


def test_a_reward_of_ones_own_trains_the_bundled_policy(trained):
    first = metrics(trained)[0]
    assert 0 <= first["reward"] <= 1
    assert first["rewards/short/mean"] == pytest.approx(first["reward"])
    responses = list(read_run(trained).rollouts(1))
    for response in responses:
        text = response["response"].removesuffix("<|end|>")
        assert response["reward"] == 0.5 * (len(text) % 2) + 0.5 * ("the" in text)
        assert response["reason"] == f"reward {response['reward']:g}"
        assert response["prompt"].startswith("Add 1 and 2. Say ")
        assert "decisive" not in response
    assert len({response["reward"] for response in responses}) > 1
    info = run_info(trained)
    assert set(info["final"]) == {"before", "after"}
    # 512 tokens are the default of rows; the bundled policy's context is 512 with the prompt.
    assert info["settings"]["max_completion_length"] < 512
    log = (trained / "log.txt").read_text()
    assert "responses may have" in log
    # A reward between 0 and 1 is not a share of right answers, and a prompt is not shown as a web address.
    assert "held-out mean reward before training, 4 problems" in log
    assert "accuracy" not in log
    assert "delta on mine.csv (template_text=Add 1 and 2. {question}\\n): 2 steps" in log
    # As it is, and not in per cent: a reward of 2 would be 200 %.
    after = info["final"]["after"]
    assert f"{after['accuracy']:.3f}" in log
    assert "%" not in log.split("held-out mean reward (")[1].replace("95 % interval", "")
    facts = unpacked(trained / "report.html")["page"]["comparison"]
    assert f"a mean reward of {info['final']['before']['accuracy']:.3f}" in facts["verdict"]
    # The page advises the comparison that the terminal does: of these problems, judged by this reward.
    advised = facts["verdict"].split("`")[1]
    assert f"--task {trained.parent / 'mine.csv'} --reward {trained.parent / 'my.py'}:short" in advised
    assert advised in log
    shown = dict(facts["evaluations"][0]["heldout_after"])
    # What `evaluate` shows as "-" is not shown, nor is every number that the function ever gave.
    assert "benchmarks.heldout.without_answer" not in shown
    assert not [key for key in shown if "maj@" in key or ".reasons." in key]
    card = (trained / "model" / "README.md").read_text()
    assert "on `mine.csv (template_text=Add 1 and 2. {question}\\n)`" in card
    assert "Held-out mean reward: " in card


def test_the_same_reward_evaluates(own, trained, capsys, tmp_path):
    options = ["--benchmarks", str(own / "mine.csv"), "--reward", f"{own / 'my.py'}:short", "--limit", "3", "-k", "2"]
    options += ["--template_text", "Add 1 and 2. {question}\n", "--output", str(tmp_path)]
    assert main(["evaluate", "--model", str(trained / "model"), *options]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    numbers = result["benchmarks"]["mine"]
    # The prompt is the text that was given, as in training; the bundled policy has a chat template, which is not used for it.
    assert numbers["load"]["style"] == "plain"
    assert 450 < result["settings"]["max_tokens"] < 512  # not the paper's 30,000: what the context leaves
    assert numbers["grader"] == f"reward {own / 'my.py'}:short"
    assert "maj@2" not in numbers["metrics"]
    scores = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()[1:]]
    mean = sum(sample["score"] for sample in scores) / 6
    assert numbers["score"] == pytest.approx(mean)
    assert f" {mean:.3f} " in capsys.readouterr().out
    # Scored again from the samples alone: the file says which function judged.
    again = ["evaluate", "--samples", str(tmp_path / "samples.jsonl"), "--output", str(tmp_path / "again.json")]
    assert main(again) == 0
    assert json.loads((tmp_path / "again.json").read_text())["benchmarks"]["mine"]["score"] == pytest.approx(mean)


def test_evaluate_repeats_the_score_of_training(own, trained, tmp_path):
    stored = json.loads((trained / "evaluations" / "heldout_after.json").read_text())
    options = ["--benchmarks", f"task:{own / 'mine.csv'}", "--reward", f"{own / 'my.py'}:short", "-k", "2"]
    options += ["--template_text", "Add 1 and 2. {question}\n", "--limit", "4", "--output", str(tmp_path)]
    options += ["--max-tokens", str(stored["settings"]["max_tokens"])]
    assert main(["evaluate", "--model", str(trained / "model"), *options]) == 0
    again = json.loads((tmp_path / "result.json").read_text())
    same = ("problem", "sample", "seed", "completion", "score")
    assert [[s[key] for key in same] for s in again["samples"]] == [[s[key] for key in same] for s in stored["samples"]]
    assert again["average"]["score"] == stored["average"]["score"]


def test_the_default_prompt_is_said(trained):
    """The hidden "put your final answer within a box" is part of what is trained."""
    rows = [Problem("1", "Say 1.", "1", "math", {"question": "Say 1."})]
    said = default_prompt("mine.jsonl?answer=label", rows)
    assert "template 'math'" in said
    assert "{question}\\n\\nPlease reason step by step, and put your final answer within \\boxed{}." in said
    assert "`template_text`" in said
    for chosen in ("mine.jsonl?template=math", "mine.jsonl?template_text={question}", "mine.jsonl?shots=4"):
        assert default_prompt(chosen, rows) is None
    chat = [{"role": "user", "content": "Say 1."}]
    assert default_prompt("mine.jsonl", [Problem("1", chat, "1", "math", {"question": chat})]) is None
    assert "prompt: the template" not in (trained / "log.txt").read_text()
