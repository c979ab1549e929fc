"""The commands from Python: the same words, and data that comes back."""

import numpy as np
import pytest

from command_line import built, run_info
from delta_rlvr import api
from delta_rlvr.cli import main
from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import get_task
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
    with pytest.raises(ValueError, match="temperature='1': give the sampling temperature, a positive number"):
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
        (lambda: api.compare("dapo,delta", seeds=[1, 2]), r"seeds=\[1, 2\]: give how many seeds"),
        (lambda: api.compare("dapo,delta", seeds=10**8), "seeds=100000000: give how many seeds"),
        (lambda: api.evaluate("task:phrased-sums", k="2"), "k='2': give a whole number"),
        (lambda: api.evaluate("task:phrased-sums", limit=2, k=10**8), "these are 200000000 completions; give fewer"),
        (lambda: api.evaluate("task:phrased-sums", dtype="float33"), "dtype='float33': there is no such type"),
        (lambda: api.explain("builtin", [1, 2]), r"rollouts=\[1, 2\]: give the path of a file"),
        (lambda: api.report([5]), r"runs=\[5\]: give at least one run folder, by its path"),
        (lambda: get_task(3), "3: give a name as a text"),
        (lambda: load_policy(None), "model=None: give its name or folder"),
    ],
)
def test_values_of_another_kind_are_refused_in_words(call, words):
    with pytest.raises((ValueError, EvaluationError), match=words):
        call()


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
