"""The command as a person runs it, on the bundled policy and on a stub server."""

import argparse
import io
import json
import re
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from delta_rlvr.cli import main
from delta_rlvr.commands import evaluate as command
from delta_rlvr.commands.evaluate import _named_results
from delta_rlvr.commands.evaluate_display import unanswered
from delta_rlvr.evaluate import EvaluationError, EvaluationResult, evaluation
from delta_rlvr.evaluate.benchmarks import BENCHMARKS, load_benchmark
from delta_rlvr.evaluate.evaluation import EvaluationRequest, sampling_settings
from delta_rlvr.evaluate.progress import ConsoleProgress
from delta_rlvr.evaluate.records import Completion, Sample, SampleKey
from delta_rlvr.models import hub
from delta_rlvr.models.load import check_model_name, load_policy
from delta_rlvr.tasks.registry import get_task
from rows import write_rows, write_sums
from stub_server import stub_server, text_answer


def evaluate(*words):
    return main(["evaluate", *map(str, words)])


SMALL = ("--benchmarks", "phrased-sums", "--limit", 4, "-k", 2, "--batch-size", 8, "--max-tokens", 64)


load_model = evaluation._load_model  # before the fixture below replaces it


@pytest.fixture(scope="module")
def policy():
    return load_policy()


@pytest.fixture(autouse=True)
def loaded(monkeypatch, policy):
    """The bundled policy is loaded once for all tests."""
    monkeypatch.setattr(evaluation, "_load_model", lambda request: policy)


def test_list(capsys, monkeypatch):
    monkeypatch.delenv("DELTA_RLVR_DATA", raising=False)
    assert evaluate("--list") == 0
    printed = capsys.readouterr().out
    for words in ("hmmt26-feb", "33", "MathArena/hmmt_feb_2026", "(not set)", "phrased-sums", "livecodebench"):
        assert words in printed
    assert max(map(len, printed.splitlines())) <= 80
    told = printed.split()
    for benchmark in BENCHMARKS.values():  # each name whole, and where it is from
        assert {benchmark.name, benchmark.files[0], str(benchmark.hub).split()[0]} <= set(told)


def test_sample_continue_rescore_compare(tmp_path, capsys):
    folder = tmp_path / "first"
    assert evaluate(*SMALL, "--output", folder) == 0
    result = EvaluationResult.load(folder)
    numbers = result.document["benchmarks"]["phrased-sums"]
    assert result.complete
    assert numbers["questions"] == 4
    assert result.document["settings"]["max_tokens"] == 64
    assert result.document["model"] == {"name": "builtin"}
    assert result.document["versions"]["delta-rlvr"]
    printed = capsys.readouterr().out
    assert "avg@2" in printed
    assert str(folder / "result.json") in printed

    assert evaluate(*SMALL, "--output", folder) == 0
    assert EvaluationResult.load(folder).document["run"]["sampled"] == 0
    assert evaluate(*SMALL, "--seed", 1, "--output", folder) == 2
    assert "settings.seed was 0 and is now 1" in capsys.readouterr().err

    again = tmp_path / "again.json"
    assert evaluate("--samples", folder / "samples.jsonl", "--output", again) == 0
    drop = lambda document: {key: value for key, value in document.items() if key != "run"}  # noqa: E731
    assert drop(json.loads(again.read_text())) == drop(EvaluationResult.load(folder).document)
    assert evaluate("--samples", folder / "result.json", "--output", tmp_path / "third.json") == 0
    assert evaluate("--samples", folder / "samples.jsonl", "--output", again) == 2, "nothing is overwritten"
    assert evaluate("--samples", folder / "samples.jsonl", "--model", "nothere") == 2
    assert "no model is loaded: leave --model out" in capsys.readouterr().err
    unread = [
        "--reward",
        "math-verify",
        "--limit",
        "1",
        "--style",
        "chat",
        "--template",
        "math",
        "--preset",
        "paper-math",
    ]
    assert evaluate("--samples", folder / "samples.jsonl", *unread, "--output", tmp_path / "fourth.json") == 2
    words = "leave --preset, --limit, --style, --template, --reward out, or add --benchmarks"
    assert words in capsys.readouterr().err

    other = tmp_path / "other.json"
    assert evaluate(*SMALL, "--seed", 1, "--output", other) == 0
    assert (tmp_path / "other.samples.jsonl").is_file()
    capsys.readouterr()
    # Another seed draws other samples of the same questions: repeated evaluations, which compare.
    assert evaluate("--compare", folder, other) == 0
    assert evaluate("--compare", f"{folder},{other}", f"{other},{folder}") == 0
    assert evaluate("--benchmarks", "phrased-sums", "--limit", 3, *SMALL[4:], "--output", tmp_path / "few") == 0
    assert evaluate("--compare", folder, tmp_path / "few") == 2
    assert "differ between the results" in capsys.readouterr().err
    assert evaluate("--compare", folder, again, "--output", tmp_path / "comparison.json") == 0
    assert "training" in capsys.readouterr().out
    assert json.loads((tmp_path / "comparison.json").read_text())[0]["paired"]["p"] == 1.0


@pytest.mark.parametrize("damage", [{"benchmarks": []}, {"samples": None}, {"samples": [3]}, {"settings": []}])
def test_a_damaged_result_is_named(tmp_path, capsys, damage):
    words = ["evaluate", "--benchmarks", "task:phrased-sums", "--limit", "2", "-k", "1", "--output", str(tmp_path)]
    assert main([*words, "--max-tokens", "4"]) == 0
    file = tmp_path / "result.json"
    (tmp_path / "b.json").write_text(json.dumps(json.loads(file.read_text()) | damage))
    assert main(["evaluate", "--compare", str(file), str(tmp_path / "b.json")]) == 2
    assert f"{tmp_path / 'b.json'} is damaged (" in capsys.readouterr().err


def test_rows_of_a_comparison_have_names():
    assert _named_results("a/b,") == ("a/b", ["a/b"])
    assert _named_results("x=a/b,c") == ("x", ["a/b", "c"])
    assert _named_results("/x=1/b") == ("/x=1/b", ["/x=1/b"])
    for text in ("=ev/a", "x=", ",", "x=,"):
        with pytest.raises(EvaluationError, match="give a result, or NAME=RESULT"):
            _named_results(text)


def test_samples_of_another_program(tmp_path, capsys):
    asked = [{"id": n, "problem": f"{n}+1?", "answer": n + 1} for n in range(3)]
    problems = write_rows(tmp_path / "mine.jsonl", asked)
    rows = [
        {"benchmark": "mine", "problem": str(n), "sample": k, "completion": f"\\boxed{{{n + 1 + k}}}"}
        for n in range(3)
        for k in range(2)
    ]
    path = write_rows(tmp_path / "theirs.jsonl", rows)
    assert evaluate("--samples", path, "--benchmarks", problems, "--output", tmp_path / "out.json") == 0
    document = EvaluationResult.load(tmp_path / "out.json").document
    assert document["average"]["score"] == 0.5
    assert document["settings"]["temperature"] is None, "how they were drawn is not known, and not made up"
    assert "so the result has no sampling settings" in capsys.readouterr().out
    assert EvaluationResult.load(tmp_path / "out.json").passes() == [1.0, 0.0]
    write_rows(path, rows[:-1])
    assert evaluate("--samples", path, "--benchmarks", problems, "--output", tmp_path / "part.json") == 3
    assert "mine 2 sample 1: not among the stored samples" in capsys.readouterr().out


def test_absent_data_is_found_before_the_model_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DELTA_RLVR_DATA", str(tmp_path))
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    monkeypatch.setattr(evaluation, "_load_model", lambda request: pytest.fail("loaded"))
    assert evaluate("--preset", "paper-math", "--output", tmp_path / "out") == 2
    printed = capsys.readouterr().err
    assert printed.count("no data. Expected is the file") == 7
    assert not (tmp_path / "out").exists()


def test_settings_come_from_the_task_the_preset_and_the_flags(tmp_path):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    task = [load_benchmark("phrased-sums", limit=2)]

    def settings_of(*words):
        return sampling_settings(command.request_of(parser.parse_args(words)), task)

    assert settings_of().max_tokens == get_task("phrased-sums").max_tokens
    settings = settings_of("--preset", "paper-code", "--top-p", "0.95", "--stop", "A", "--stop", "B")
    assert (settings.samples, settings.max_tokens, settings.top_p, settings.stop) == (5, 30_000, 0.95, ("A", "B"))
    assert settings_of("--preset", "paper-code", "-k", "8").samples == 8


@pytest.mark.parametrize("prefix", ["", "task:"])
def test_a_file_of_ones_own_is_sampled_as_training_scores_it(prefix, tmp_path):
    """From the policy as it is. The paper's nucleus is for the paper's benchmarks."""
    path = write_sums(tmp_path / "own.jsonl", 64)
    settings = sampling_settings(EvaluationRequest(), [load_benchmark(f"{prefix}{path}")])
    assert (settings.temperature, settings.top_p) == (1.0, 1.0)


def test_the_authors_prompt_goes_to_a_server_as_plain_text(tmp_path, capsys, monkeypatch):
    """Preset, benchmark and server as in the paper's recipe: no chat template may change the prompt. math-verify judges as well."""
    monkeypatch.setenv("DELTA_RLVR_DATA", str(tmp_path))
    (tmp_path / "math").mkdir()
    write_rows(tmp_path / "math" / "aime25.jsonl", [{"problem": f"{n}+{n}?", "answer": 2 * n} for n in range(30)])

    def answer(path, body, tries):
        number = int(re.match(r"User:\n(\d+)\+", body["prompt"])[1])
        return 200, text_answer(f"it is ${2 * number}$" if number % 2 else f"\\boxed{{{2 * number}}}")

    words = ("--model", "tiny", "--preset", "paper-math", "--benchmarks", "aime25", "-k", 1)
    with stub_server(answer) as stub:
        for reward, score in (((), 0.5), (("--reward", "math-verify"), 1.0)):
            output = tmp_path / f"out{score}"
            assert evaluate("--server", stub.url, *words, *reward, "--output", output) == 0
            assert EvaluationResult.load(output).accuracy == score
        assert evaluate("--server", stub.url, "--api", "chat", *words) == 2
    assert "--api chat applies the server's chat template" in capsys.readouterr().err
    assert {path for path, _ in stub.requests} == {"/v1/completions"}
    assert all(body["prompt"].endswith("\n\nAssistant:\n") for _, body in stub.requests)


def test_a_server_that_fails_for_some(tmp_path, capsys):
    path = write_rows(tmp_path / "mine.jsonl", [{"problem": f"{n}+{n}?", "answer": 2 * n} for n in range(6)])
    broken = [True]

    def answer(_, body, tries):
        prompt = body["prompt"]
        if prompt.startswith("3+3") and broken[0]:
            return 400, {"error": {"message": "no"}}
        number = int(prompt[0])
        return 200, text_answer(f"\\boxed{{{2 * number if number % 2 else 1}}}")

    with stub_server(answer) as stub:
        words = ("--server", stub.url, "--api", "completions", "--model", "tiny", "--benchmarks", path, "-k", 2)
        assert evaluate(*words, "--output", tmp_path / "out") == 3
        printed = capsys.readouterr().out
        assert "incomplete: 2 samples failed" in printed
        assert "400: no" in printed
        broken[0] = False
        assert evaluate(*words, "--output", tmp_path / "out") == 0
        assert len(stub.requests) == 12 + 2
    # 1, 3 and 5 are right.
    assert EvaluationResult.load(tmp_path / "out").accuracy == 0.5
    assert evaluate(*words, "--output", tmp_path / "none") == 1
    assert "no server answers at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --benchmarks or --preset"),
        (("--benchmarks", "aime23"), "no benchmark 'aime23'"),
        (("--compare", "a.json"), "at least two results"),
        (("--compare", "a.json", "b.json"), "no result a.json"),
        (("--samples", "absent.jsonl"), "no file absent.jsonl"),
        (("--samples", "s.jsonl", "--server", "http://x:1", "--max-tokens", 3), "leave --max-tokens, --server out"),
        (
            ("--compare", "a", "b", "-k", 3, "--temperature", 0.2),
            "--compare reads stored results: leave -k, --temperature",
        ),
        (("--benchmarks", "phrased-sums", "--timeout", "-5", "--concurrency", 0), "leave --concurrency, --timeout out"),
        (("--benchmarks", "phrased-sums", "--rule", "nonsense"), "--rule belongs to --select"),
        (("--select", "absent"), "absent is not a folder"),
        (("--select", "absent", "--rule", "best"), "not of the form"),
        (
            ("--server", "http://127.0.0.1:9/v1", "--style", "chat", "--api", "completions", "--benchmarks", "gsm8k"),
            "--style chat: the completions API takes plain text; use --api chat",
        ),
        (("--benchmarks", "phrased-sums", "--limit", "0"), "limit = 0"),
        (("--benchmarks", "phrased-sums", "-k", "0"), "samples = 0"),
        (("--benchmarks", "phrased-sums", "--max-tokens", "9999"), "context of 512"),
    ],
)
def test_bad_input_is_named(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evaluate(*words) == 2
    assert message in capsys.readouterr().err


def test_models_of_two_runs_have_results_of_their_own(tmp_path, monkeypatch, policy):
    """Every run's policy is in a folder `model`: the second evaluation was refused as another one of the first."""
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/one/model", "runs/two/model", "runs/two/checkpoint-20", "mine/model"):
        for part in policy:
            part.save_pretrained(folder)
    for run in ("runs/one", "runs/two"):
        (tmp_path / run / "run.json").write_text("{}")
    small = ("--benchmarks", "phrased-sums", "--limit", 1, "-k", 1, "--max-tokens", 4)
    for folder in ("runs/one/model", "runs/two/model/", "runs/two/checkpoint-20", "mine/model"):
        assert evaluate("--model", folder, *small) == 0
    monkeypatch.chdir(tmp_path / "runs" / "one")
    assert evaluate("--model", "model", *small) == 0
    results = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("result.json")}
    assert results == {
        *(f"evaluations/{name}" for name in ("one-model", "two-model", "two-checkpoint-20", "model")),
        "runs/one/evaluations/one-model",
    }


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("--compare", "ev/before", "ev/aftr"), "ev/after"),
        (("--samples", "ev/before/smaples.jsonl"), "ev/before/samples.jsonl"),
        (("--select", "rnus/demo"), "runs/demo"),
        (("--benchmarks", "phrased-sums", "--model", "runs/demo/modle"), "runs/demo/model"),
        (("--benchmarks", "phrased-sums", "--model", "runs/dmeo"), "runs/demo"),
        (("--benchmarks", "phrased-sums", "--model", "runs/q.ggfu.gguf"), "runs/q.gguf"),
        (("--benchmarks", "vans.jsonl?question=asks"), "ask"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(words, meant, capsys, tmp_path, monkeypatch):
    """At once, and without a question to the hub."""
    monkeypatch.chdir(tmp_path)
    assert evaluate(*SMALL, "--limit", 1, "-k", 1, "--max-tokens", 4, "--output", "ev/before") == 0
    (tmp_path / "ev" / "after").mkdir()
    (tmp_path / "runs" / "demo" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "run.json").write_text("{}")
    (tmp_path / "runs" / "q.gguf").touch()
    (tmp_path / "vans.jsonl").write_text(json.dumps({"ask": "1+1?", "answer": 2}))
    capsys.readouterr()
    monkeypatch.setattr(hub, "hub_answers", lambda: pytest.fail("the hub was asked"))
    assert evaluate(*words) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_a_name_of_the_hub_is_no_path(tmp_path, monkeypatch):
    """Even where a folder has the owner's name, unless it is one of runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-1.7B").mkdir(parents=True)
    check_model_name("Qwen/Qwen3-0.6B")
    for runs in ("runs/mine", "first"):
        (tmp_path / runs).mkdir(parents=True)
        (tmp_path / runs / "run.json").write_text("{}")
    for name in ("runs/mien", "first/model"):
        with pytest.raises(FileNotFoundError, match="no such folder"):
            check_model_name(name)


def test_a_misspelt_policy_is_not_asked_of_the_hub():
    """It took 8 seconds, and the answer was that the hub does not answer."""
    with pytest.raises(FileNotFoundError, match="there is no such model; did you mean 'builtin'"):
        check_model_name("buitlin")
    check_model_name("gpt2")
    check_model_name("somebody/smollm2-135m")  # a name of the hub, however near it is to one of ours


def test_a_task_s_score_without_answers_says_so_too():
    numbers = {"without_answer": 1.0, "truncated": 0.0, "source": {"task": "vans.jsonl"}}
    assert "if training used --template, --template_text or --extract, give the same" in unanswered(numbers)
    assert unanswered({**numbers, "without_answer": 0.5}) is None


@pytest.mark.parametrize(
    ("completion", "finish", "words"),
    [
        (
            "It is 2.",
            "stop",
            "nearly all responses have no answer where the grader looks for it (boxed). The prompt was the template 'math': "
            "{question}\\n\\nPlease reason step by step, and put your final answer within \\boxed{}. (If the model was trained on "
            "another prompt, give it: --template NAME, or --template_text TEXT with --extract PLACE. For a custom reward: --reward "
            "FILE.py:NAME)",
        ),
        ("It is", "length", "were cut off before an answer: raise --max-tokens"),
        ("\\boxed{3}", "stop", None),
    ],
)
def test_a_score_without_answers_says_what_was_asked(completion, finish, words, tmp_path, capsys):
    """A model that was trained on other prompts scored 0.00, and nothing said why."""
    (tmp_path / "vans.jsonl").write_text(json.dumps({"id": "0", "problem": "1+1?", "answer": 2}))
    row = {"benchmark": "vans", "problem": "0", "sample": 0, "completion": completion, "finish": finish}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))
    given = ("--samples", tmp_path / "samples.jsonl", "--benchmarks", tmp_path / "vans.jsonl")
    assert evaluate(*given, "--output", tmp_path / "out.json") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (words or "vans") in told
    assert ("nearly all" in told) == (words is not None)


def test_responses_without_a_reward_are_counted(tmp_path, capsys):
    (tmp_path / "vans.jsonl").write_text(json.dumps({"id": "0", "problem": "1+1?", "answer": 2}))
    row = {"benchmark": "vans", "problem": "0", "sample": 0, "completion": "2", "finish": "stop"}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))
    given = ("--samples", tmp_path / "samples.jsonl", "--benchmarks", tmp_path / "vans.jsonl")
    (tmp_path / "nothing.py").write_text("def none(completions, **_):\n    return [None for _ in completions]\n")
    assert evaluate(*given, "--reward", f"{tmp_path / 'nothing.py'}:none", "--output", tmp_path / "none.json") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1 of 1 responses have no reward and count 0 (1 times: the reward function gave no reward)" in told


def test_an_edited_reward_file_is_not_mixed_with_its_old_scores(tmp_path, capsys, policy):
    """The old score was printed again, and two versions of the file were compared as one."""
    run, reward, first, second = (tmp_path / name for name in ("run", "mine.py", "first", "second"))
    for part in policy:
        part.save_pretrained(run / "checkpoint-1")
    given = ("--reward", f"{reward}:mine", "--limit", 2)
    select = ("--select", run, "--rule", "phrased-sums:avg@2", *given)
    asked = ("--benchmarks", "phrased-sums", "-k", 2, *given, "--output")
    reward.write_text("def mine(completions, **_):\n    return [1.0 for _ in completions]\n")
    assert evaluate(*asked, first) == evaluate(*select) == 0
    older = tmp_path / "older"
    shutil.copytree(first, older)
    samples = older / "samples.jsonl"
    samples.write_text(re.sub(r',\s*"reward_sha256":\s*"\w+"', "", samples.read_text()))
    assert "sha256" not in samples.read_text()
    reward.write_text("def mine(completions, **_):\n    return [0.0 for _ in completions]\n")
    capsys.readouterr()
    assert evaluate(*asked, first) == evaluate(*select) == 2
    told = capsys.readouterr().err
    assert (
        "the file that --reward names has changed since these samples were graded: grade them again with --samples"
        in told
    )
    assert "was made with other settings: the file that --reward names has changed since" in told
    assert evaluate("--samples", first / "samples.jsonl", "--output", second) == 0
    assert EvaluationResult.load(second).accuracy == 0
    assert evaluate("--compare", first, second) == 2
    assert "the rewards of phrased-sums differ" in capsys.readouterr().err
    reward.write_text(reward.read_text() + "def other(completions, **_):\n    return [1.0 for _ in completions]\n")
    for name, place in (("mine", tmp_path / "mine"), ("other", tmp_path / "other")):
        again = [f"{reward}:{name}" if str(one) == f"{reward}:mine" else one for one in asked]
        assert evaluate(*again, place) == 0
    capsys.readouterr()
    assert evaluate("--compare", tmp_path / "mine", tmp_path / "other") == 2  # two functions of one file
    assert "the rewards of phrased-sums differ" in capsys.readouterr().err
    assert evaluate(*asked, older) == 0, "what an older version was graded with is not known"
    assert evaluate("--compare", older, second) == 0


def test_models_are_loaded_by_name_or_refused(tmp_path):
    request = EvaluationRequest(device="cpu", dtype="bfloat16")
    model, tokenizer = load_model(request)
    assert str(next(model.parameters()).dtype) == "torch.bfloat16"
    assert tokenizer.eos_token_id is not None
    with pytest.raises(EvaluationError, match="cannot be loaded"):
        load_model(replace(request, model=str(tmp_path)))


def test_select_refuses_before_it_samples(tmp_path, capsys, policy):
    """It sampled the first checkpoint, and then found the second without a tokenizer, or the earlier choices damaged."""
    model, tokenizer = policy
    for step in (1, 2):
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    tokenizer.save_pretrained(tmp_path / "checkpoint-1")
    words = ("--select", tmp_path, "--rule", "phrased-sums:avg@2", "--limit", 3)
    assert evaluate(*words) == 2
    assert "checkpoint-2 has no tokenizer: copy" in capsys.readouterr().err
    for damaged in ("[]", "{", '{"choices": [1]}'):
        (tmp_path / "selection.json").write_text(damaged)
        assert evaluate(*words) == 2
        assert "selection.json cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "evaluations").exists()


@pytest.mark.parametrize("prefix", ["", "task:"])
def test_select_by_a_file_with_named_columns(tmp_path, capsys, policy, prefix):
    """It sampled the first checkpoint and then found no score under the rule's name."""
    model, tokenizer = policy
    model.save_pretrained(tmp_path / "checkpoint-1")
    tokenizer.save_pretrained(tmp_path / "checkpoint-1")
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n} + 1 = ?", "solution": str(n + 1)}) + "\n" for n in range(40)))
    words = (
        "--select",
        tmp_path,
        "--max-tokens",
        4,
        "--limit",
        2,
        "--template_text",
        "{question} End with 'Answer: X'",
        "--rule",
    )
    for listed in ((), ("--list",)):
        for rule, told in (
            (f"{prefix}{file}:avg@2", "?question=COLUMN"),
            (f"{prefix}{tmp_path / 'none.jsonl'}:avg@2", "none.jsonl"),
            ("nosuch:avg@2", "there is no benchmark 'nosuch'"),
        ):
            assert evaluate(*words, rule, *listed) == 2
            said = capsys.readouterr()
            assert told in said.err
            assert "checkpoint-1" not in said.out
    assert not (tmp_path / "evaluations").exists()
    assert evaluate(*words, f"{prefix}{file}?question=prompt&answer=solution:avg@2") == 0
    assert "* step 1" in capsys.readouterr().out


def test_select_among_checkpoints(tmp_path, capsys, policy):
    model, tokenizer = policy
    for step in (1, 2):
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
        tokenizer.save_pretrained(tmp_path / f"checkpoint-{step}")
    words = ("--select", tmp_path, "--rule", "phrased-sums:avg@2", "--limit", 3, "--batch-size", 8)
    assert evaluate(*words) == 0
    choice = json.loads((tmp_path / "selection.json").read_text())["choices"][0]
    assert (choice["step"], choice["rule"]) == (1, "phrased-sums:avg@2"), "equal models: the earliest"
    assert len(list((tmp_path / "evaluations").glob("*.json"))) == 2
    assert "* step 1" in capsys.readouterr().out
    assert evaluate(*words) == 0, "the cut to the model's context is no other setting"
    # The old score was printed for any settings.
    text = "{question} End with 'Answer: X'"
    for other, told in (
        (("--limit", 4), "limit was 3 and is now 4"),
        (("--seed", 99, "--max-tokens", 5), "; seed was 0 and is now 99. Give the same settings, or move that file"),
        (("--temperature", 0.5), "temperature was 1.0 and is now 0.5"),
        (("--template_text", text), "template_text was None and is now"),
        (("--reward", "math-verify"), "reward was None and is now 'math-verify'"),
        (("--style", "chat"), "style was 'plain' and is now 'chat'"),
    ):
        assert evaluate(*words, *other) == 2
        assert told in capsys.readouterr().err
    assert evaluate(*words[:4], "--batch-size", 8) == 2
    assert "limit was 3 and is now None" in capsys.readouterr().err
    for unused in (("--output", tmp_path / "x"), ("--model", "builtin"), ("--benchmarks", "aime25"), ("-k", 3)):
        assert evaluate(*words, *unused) == 2
        assert f"leave {unused[0]} out" in capsys.readouterr().err


@pytest.mark.parametrize(("own_reward", "words"), [(True, "mean reward 0.138"), (False, "13.8 % right")])
def test_progress_rounds_as_the_table_does(own_reward, words):
    """Added up, these rewards have a mean of 0.13749999999999998: it was 0.137 while sampling and 0.138 at the end."""
    told = io.StringIO()
    progress = ConsoleProgress(Console(file=told, width=120), own_reward)
    progress.start(8, 0)
    for number, score in enumerate((0.7, 0.1, 0.1, 0.2, 0.0, 0.0, 0.0, 0.0)):
        key, completion = SampleKey("problems", str(number), 0), Completion("", "stop")
        progress.advance(Sample(key, completion, 0, score, "", None))
    assert f"sampling: 8 of 8, {words}" in told.getvalue()
