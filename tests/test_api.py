"""The commands from Python: the same words, and data that comes back."""

import numpy as np
import pytest
import torch

from command_line import built, run_info
from delta_rlvr import Delta, api, token_coefficients, token_weights
from delta_rlvr.adapters.running import running_weights
from delta_rlvr.cli import main
from delta_rlvr.evaluate import EvaluationError, EvaluationResult, compare_results, evaluate_policy
from delta_rlvr.models import load_policy
from delta_rlvr.runs import read_run
from delta_rlvr.tasks import get_task
from delta_rlvr.testing import check_rule
from delta_rlvr.training.request import RunRequest
from rows import write_rows

SMALL = {"per_device_train_batch_size": 8, "num_generations": 4, "eval_problems": 4, "eval_samples": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return api.train(**SMALL, steps=2, rollouts_every=1, output=str(tmp_path_factory.mktemp("api") / "run"))


def test_train_is_the_command(trained, tmp_path, capsys):
    words = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    folder = tmp_path / "run"
    assert main(["train", *words, "--steps", "2", "--rollouts_every", "1", "--output", str(folder)]) == 0
    ours, theirs = run_info(trained.folder), run_info(folder)
    assert ours["final"] == theirs["final"]
    moved = {"output_dir", "logging_dir"}
    assert {key: one for key, one in ours["settings"].items() if key not in moved} == {
        key: one for key, one in theirs["settings"].items() if key not in moved
    }
    assert ours["given"] == theirs["given"]
    assert trained.after.summary()["accuracy"] == ours["final"]["after"]["accuracy"]
    assert trained.report.is_file()


def test_nothing_is_printed_unless_asked_for(tmp_path, capsys):
    api.train(**{**SMALL, "eval_problems": 0}, steps=1, report=False, output=str(tmp_path / "run"))
    assert capsys.readouterr().out == ""
    assert ": 1 step, " in (tmp_path / "run" / "log.txt").read_text()


def test_report_evaluate_and_explain(trained, tmp_path):
    assert api.report([trained.folder], tmp_path / "page.html").stat().st_size > 100_000
    data = write_rows(tmp_path / "p.jsonl", [{"question": "1+1?", "answer": "2"}])
    with pytest.raises(ValueError, match="is not a page of explain or report"):
        api.report([trained.folder], data)
    assert "1+1?" in data.read_text()
    result = api.evaluate(["phrased-sums"], limit=3, k=2, max_tokens=16, output=str(tmp_path / "out"))
    assert result.summary()["problems"] == 3
    rows = [{"prompt": "1+1?", "response": text, "reward": reward} for text, reward in (("2", 1.0), ("3 4", 0.0))]
    explained = api.explain("builtin", write_rows(tmp_path / "rollouts.jsonl", rows), methods=["delta", "grpo"])
    weights = explained.records["delta"].weights
    assert len(weights) == sum(len(one.ids) for one in explained.passes)
    np.testing.assert_allclose(weights.mean().item(), 1.0, rtol=1e-5)  # float32, few tokens
    assert set(explained.records) == {"delta", "grpo"}


def test_a_temperature_that_is_no_number_is_refused(tmp_path):
    rows = write_rows(tmp_path / "rollouts.jsonl", [{"prompt": "1+1?", "response": "2", "reward": 1.0}])
    with pytest.raises(ValueError, match="temperature='1': give a number"):
        api.explain("builtin", rows, temperature="1")


def test_compare(tmp_path):
    done = api.compare(["dapo", "delta"], seeds=1, output=tmp_path, steps=1, **SMALL)
    assert [row.method for row in done.table.rows] == ["dapo", "delta"]
    assert {path.name for path in tmp_path.iterdir()} >= {"dapo-seed42", "delta-seed42", "report.html"}


def test_names_may_be_one_text(trained, tmp_path):
    assert api.report(str(trained.folder), tmp_path / "page.html").exists()
    done = api.evaluate("task:phrased-sums", limit=2, k=1, output=str(tmp_path / "score"))
    assert list(done.document["benchmarks"]) == ["phrased-sums"]
    with pytest.raises(ValueError, match="methods='dapo;delta': give two or more different names, as in dapo,delta"):
        api.compare("dapo;delta")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: api.compare("dapo,delta", seeds=[1, 2]), r"seeds=\[1, 2\]: give a whole number"),
        (lambda: api.compare("dapo,delta", seeds=10**8), "seeds=100000000: give how many seeds"),
        (lambda: api.evaluate("task:phrased-sums", k="2"), "k='2': give a whole number"),
        (lambda: api.evaluate("task:phrased-sums", limit=2, k=10**8), "these are 200000000 completions; give fewer"),
        (lambda: api.evaluate("task:phrased-sums", dtype="float33"), "dtype='float33': there is no such type"),
        (lambda: api.explain("builtin", [1, 2]), r"rollouts=\[1, 2\]: give the path of a file"),
        (lambda: api.report([5]), r"runs=\[5\]: give at least one run folder, by its path"),
        (lambda: get_task(3), "3: give a name as a text"),
        (lambda: load_policy(None), "model=None: give its name or folder"),
        (lambda: api.train(seed=None), "seed=None: give a whole number"),
        (lambda: api.train(step=1), r"there is no setting 'step'; did you mean 'steps'\?"),
        (lambda: api.evaluate("x", limits=1), r"evaluate has no setting 'limits'; did you mean 'limit'\?"),
        (lambda: api.evaluate("x", style="chatty"), "style='chatty': give one of 'auto', 'chat', 'plain'"),
        (
            lambda: api.explain("builtin", "x", method="dapo"),
            r"explain has no setting 'method'; did you mean 'methods'\?",
        ),
        (lambda: api.compare(5), "methods=5: give a list, each a text"),
        (lambda: api.report(5), "runs=5: give at least one run folder, by its path"),
        (lambda: read_run(None), "path=None: give a text or a path"),
        (
            lambda: compare_results("a", "b"),
            "baseline='a': give what `evaluate_policy` returns, or `EvaluationResult.load",
        ),
        (lambda: EvaluationResult("a.json"), "document='a.json': give .*EvaluationResult.load"),
        (lambda: evaluate_policy(None, None, get_task().problems("train", 1)), "model=None: give the model that"),
        (lambda: evaluate_policy(*load_policy(), ["1+1?"]), "problems=.'1.1.'.: give a list, each a Problem"),
        (lambda: get_task().problems("train", "5"), "count='5': give a whole number"),
        (
            lambda: token_coefficients(None, None, None, None, rule="delta"),
            "rule='delta': give a rule object, as in Delta",
        ),
        (lambda: check_rule(Delta), "rule=.*: give a rule object, as in Delta"),
        (lambda: running_weights(None, torch.zeros(1), 1.0), r"state=None: give RunningCentroids\(\) at first"),
        (
            lambda: token_weights(None, [1.0], np.ones((1, 1)), method="dapo", ranks=2),
            "ranks=2: give a ProcessGroup or",
        ),
    ],
)
def test_values_of_another_kind_are_refused_in_words(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, EvaluationError), match=words):
        call()


@pytest.mark.parametrize("given", [1.0, None, "right"])
def test_a_grader_that_gives_no_verdict_is_refused_before_sampling(given):
    problems = get_task().problems("train", 1)
    with pytest.raises(EvaluationError, match=f"it gave {given!r}; give a Verdict"):
        evaluate_policy(*load_policy(), problems, grade=lambda problem, text: given)


def test_a_request_is_changed_by_name(tmp_path):
    request = RunRequest({"steps": 3, "seed": 1}, "mine.yaml", {"seed": 5, "method": "dapo"})
    options, config = request.but(output=str(tmp_path), template="math", task="my.jsonl").build()
    assert (config.max_steps, config.seed, config.method) == (3, 1, "dapo")
    assert (options.task, options.steps, config.output_dir) == ("my.jsonl?template=math", None, str(tmp_path))
    assert request.without("seed").build()[1].seed == 5
    assert request.given == {"steps": 3, "seed": 1}, "but and without give another request"
    assert request.settings == {"max_steps", "seed", "method"}
    with pytest.raises(ValueError, match=r"there is no setting 'stepps'; did you mean 'steps'\?"):
        RunRequest({"stepps": 3}).build()


@pytest.mark.parametrize(
    ("file", "given", "task"),
    [
        ({"template": "paper_math"}, {"template_text": "{question}", "extract": "whole"}, "template_text=%7Bquestion%7D&extract=whole"),
        ({"template_text": "{question}", "extract": "whole"}, {"template": "math"}, "template=math"),
        ({"task": "my.jsonl?template=math"}, {"template": "paper_math"}, "template=paper_math"),
        ({"template": "paper_math"}, {"seed": 1}, "template=paper_math"),
    ],
)  # fmt: skip
def test_a_prompt_that_is_given_replaces_the_settings_files(tmp_path, file, given, task):
    request = RunRequest({**given, "output": str(tmp_path)}, "mine.yaml", {"task": "my.jsonl", **file})
    assert request.build()[0].task == f"my.jsonl?{task}"


def test_values_of_a_file_have_the_types_of_their_options(tmp_path):
    """YAML takes 1e-6 for a text."""
    (tmp_path / "mine.yaml").write_text("learning_rate: 1e-6\nreport: false\n")
    options, config = built(["--config", tmp_path / "mine.yaml"])
    assert (config.learning_rate, options.report) == (1e-6, False)
