"""Each mistake is one line on standard error and exit code 2, and nothing that was there is touched."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from command_line import SMALL, built, refused
from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.cli import main
from delta_rlvr.runs import RunFolderError, read_run
from delta_rlvr.training import session
from delta_rlvr.training.request import RunRequest
from delta_rlvr.training.resuming import advised_comparison
from rows import write_rows


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "phrased-sums?adends=3"], "phrased-sums has no setting 'adends'"),
        (["--task", "phrased-sums?addends=x"], "addends=x: give a whole number"),
        (["--task", "p.jsonl?shots=x"], "shots=x: give a whole number, 0 or more"),
        (["--task", "/dev/null"], "/dev/null is not a file of rows: give one that ends in"),
        (["--model", __file__], "is a file, not a model"),
        (["settings.yaml"], "settings.yaml: a settings file is given as --config settings.yaml"),
        (["--seed", "1", "2"], "'2' belongs to no option"),
        (["--batch_size", "8"], "did you mean --per_device_train_batch_size?"),
        (["--epochs", "1"], "did you mean --num_train_epochs?"),
        (["--method", "GRPO"], "unknown method 'GRPO'; did you mean 'grpo'? (`delta-rlvr methods` lists them)"),
        (["--method", "dapo,delta"], "delta-rlvr compare --methods dapo,delta"),
        (["--steps", "0"], "--steps 0: give 1 or more"),
        (["--eval_problems", "-1"], "--eval_problems -1"),
        (["--steps", "many"], "invalid int value: 'many'"),
        (["--method", "dapo?lambda_min=0.5"], "method 'dapo' has no setting 'lambda_min'"),
        (["--num_generations", "3"], "cannot be divided into groups of 3; set num_generations to 4"),
        (["--train_problems", "2"], "2 training problems cannot fill a batch of 4 prompts"),
        (["--train_problems", "2"], "give --per_device_train_batch_size 4, or --train_problems 4 or more"),
        (["--model", "smollm2-135m", "--learning_rate", "1e-5"], "give the length of the run"),
        (["--config"], "expected one argument"),
        (["--output", ""], "--output '': give a folder"),
        (["--lr", "3"], "there is no option --lr; did you mean --learning_rate?"),
        (["--config", "."], "--config .: is a folder: name a file"),
        (["--temperature", "0"], "--temperature 0.0: training samples its responses; give a positive number"),
        (["--learning_rate=-1e-4"], "--learning_rate -0.0001: give 0 or more"),
        (["--method", "oracle"], "needs labels of the decisive tokens, which TRL does not give"),
        (["--steps_per_generation", "0"], "--steps_per_generation 0: give 1 or more"),
        (["--gradient_accumulation_steps", "0"], "--gradient_accumulation_steps 0: give 1 or more"),
        (["--num_iterations", "0"], "--num_iterations 0: give 1 or more"),
        (["--per_device_train_batch_size", "0"], "--per_device_train_batch_size 0: give 1 or more"),
        (["--max_completion_length", "0"], "--max_completion_length 0: give 1 or more"),
        (["--steps", "99999999999"], "--steps 99999999999: give 1000000 at most"),
        (["--train_problems", "100000000"], "--train_problems 100000000: give 1000000 at most"),
        (["--scale_rewards", "foo"], "--scale_rewards foo: choose one of group, batch, none"),
        (["--top_k=-5"], "--top_k -5: give 0 or more"),
        (["--top_p", "2"], "--top_p 2.0: give 1 at most"),
        (["--epsilon=-0.2"], "--epsilon -0.2: give 0 or more"),
        (["--max_grad_norm=-1"], "--max_grad_norm -1.0: give 0 or more"),
        (["--save_steps=-3"], "--save_steps -3.0: give a positive number"),
        (["--temperature", "1e9"], "--temperature 1000000000.0: give 100 at most"),
        (["--seed=-1"], "--seed -1: give 0 or more"),
        (["--steps", "3", "--num_train_epochs", "2"], "two lengths of one run: give one of them"),
        (["--load_best_model_at_end", "true"], "--load_best_model_at_end: give --eval_every too"),
        (["--reward", "a.py:f,a.py:g"], "--reward a.py:f,a.py:g: give one function"),
        (["--max_completion_length", "512"], "--max_completion_length 512: the longest prompt has"),
    ],
)
def test_options(arguments, words, capsys, tmp_path):
    assert words in refused(capsys, "train", *SMALL, "--output", tmp_path / "run", *arguments)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_push_to_a_hub_that_does_not_answer(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(session, "hub_answers", lambda: False)
    told = refused(capsys, "train", *SMALL, "--steps", 2, "--push_to_hub", "true", "--output", tmp_path / "run")
    assert "--push_to_hub: huggingface.co does not answer" in told


BROKEN = """
import torch
from dataclasses import dataclass
from delta_rlvr import TokenRule

@dataclass(frozen=True)
class Rule(TokenRule):
    def weigh(self, batch):
        return torch.full((len(batch.row),), WEIGHT)

def reward(completions, **_):
    return [1.0]
"""


@pytest.mark.parametrize(
    ("weight", "given", "words"),
    [
        ("float('nan')", ["--method", "Rule"], "Rule.weigh gave the weight nan to token 0"),
        ("-1.0", ["--method", "Rule"], "(tried on a small random batch)"),
        ("1.0", ["--reward", "reward"], "gave 1 rewards for 2 completions. It was tried with two empty completions"),
    ],
)
def test_code_of_ones_own_is_tried_before_anything_is_loaded(weight, given, words, monkeypatch, capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(BROKEN.replace("WEIGHT", weight))
    monkeypatch.setattr(session, "load_policy", lambda _: pytest.fail("the model was loaded first"))
    place = [given[0], f"{file}:{given[1]}", "--show_methods", ""]
    assert words in refused(capsys, "train", *SMALL, "--steps", 2, *place, "--output", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "problems", "fits"),
    [
        # 128 responses x 2 passes / 8 are 32 prompts: one prompt for each 4 responses per pass.
        ({}, 31, {"per_device_train_batch_size": 124}),
        ({}, 4, {"per_device_train_batch_size": 16}),
        ({}, 1, {"per_device_train_batch_size": 4}),
        # Three passes of 8 make 3 groups at least.
        ({"steps_per_generation": 3}, 2, {"steps_per_generation": 1, "per_device_train_batch_size": 8}),
        ({"generation_batch_size": 256, "steps_per_generation": None}, 31, {"generation_batch_size": 128}),
        ({"generation_batch_size": 256, "steps_per_generation": None}, 4, {}),
        ({}, 0, {}),
    ],
)
def test_the_largest_batch_that_so_many_problems_fill(settings, problems, fits, tmp_path):
    made = {"per_device_train_batch_size": 128, "num_generations": 8, "steps_per_generation": 2, **settings}
    config = DeltaTrainerConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **made)
    assert config.smaller_batch(problems) == fits
    if fits:
        smaller = DeltaTrainerConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **{**made, **fits})
        assert 1 <= smaller.prompts_per_batch <= problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps: 2\nlearning_rat: 1e-5\n", "there is no option 'learning_rat'; did you mean --learning_rate?"),
        ("steps: [2\nseed: 1\n", "is not YAML (line 2"),
        ("- steps\n", "write one option per line"),
        ("steps: 2\nseed: 1\nsteps: 3\n", "settings.yaml: steps is given twice (lines 1 and 3): remove one"),
        ("env: {A: 1, A: 2}\n", "A is given twice (line 1)"),
        ("steps: 2\nnum-generations: 4\nnum_generations: 8\n", "'num_generations' comes twice"),
        ("steps: 2\nmax_steps: 3\n", "settings.yaml: steps and max_steps are two names of one setting: give one"),
        ("env: foo\n", "settings.yaml: env sets variables, as in `env: {"),
        ("learning_rate:\n", "--learning_rate None: give a number"),
        ("steps: many\n", "settings.yaml: argument --steps: invalid int value: 'many'"),
        ("model: {a: b}\n", "{'a': 'b'}: give its name or folder, as a text"),
        ("method: dleta\n", "unknown method 'dleta'"),
    ],
)
@pytest.mark.parametrize("form", ["two words", "one word"])
def test_settings_file(text, words, form, capsys, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    given = ["--config", path] if form == "two words" else [f"--config={path}"]
    assert words in refused(capsys, "train", *given)


def test_a_flag_wins_over_another_name_of_the_setting_in_the_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(f"steps: 9\noutput-dir: {tmp_path / 'file'}\n")
    _, config = built(["--config", path, "--max_steps", 2, "--output", tmp_path / "flag"])
    assert (config.max_steps, config.output_dir) == (2, str(tmp_path / "flag"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": "2"}, "steps='2': give a whole number"),
        ({"steps": 1.5}, "steps=1.5: give a whole number"),
        ({"learning_rate": "1e-4x"}, "learning_rate='1e-4x': give a number"),
        ({"output": 3}, "output=3: give a text"),
        ({"task": [{"question": "1"}]}, "give its name, a file of rows or a data set, as a text"),
        ({"reward": len}, "give its place, as in 'my.py:function'"),
        ({"model": object()}, "give its name or folder, as a text"),
        ({"report": "no"}, "report='no': give True or False"),
    ],
)
def test_values_of_another_type_in_python(settings, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        RunRequest(settings).build()


def test_a_row_without_an_answer(capsys, tmp_path):
    path = write_rows(tmp_path / "problems.jsonl", [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?"}])
    assert "problems.jsonl, line 2: it has no answer" in refused(capsys, "train", "--task", path, "--steps", 1)


@pytest.mark.parametrize("changed", [["--method", "dapo"], ["--seed", "7"]])
def test_a_folder_with_another_run(finished, changed, capsys):
    folder, _ = finished
    before = contents(folder)
    told = refused(capsys, "train", *SMALL, "--steps", 4, "--output", folder, "--resume", *changed)
    assert "holds another run" in told
    assert f"{changed[0].strip('-')} " in told
    assert contents(folder) == before


def test_a_folder_with_a_run_is_refused_before_anything_is_loaded(finished, monkeypatch, capsys):
    folder, _ = finished
    before = contents(folder)
    monkeypatch.setattr(session, "load_policy", lambda _: pytest.fail("the model was loaded first"))
    monkeypatch.setattr(session, "get_task", lambda *_, **__: pytest.fail("the problems were read first"))
    assert "holds a run already" in refused(capsys, "train", *SMALL, "--output", folder)
    assert contents(folder) == before


def test_resume_without_a_run(capsys, tmp_path):
    told = refused(capsys, "train", *SMALL, "--output", tmp_path, "--resume")
    assert f"--resume: there is no run in {tmp_path}" in told
    assert not any(tmp_path.iterdir())
    (tmp_path / "checkpoint-2").mkdir()
    told = refused(capsys, "train", *SMALL, "--output", tmp_path, "--resume")
    assert f"run.json is missing in {tmp_path}, which has checkpoint-2" in told


def test_a_folder_where_a_file_is_asked_and_the_other_way(capsys, tmp_path):
    (tmp_path / "x.jsonl").mkdir()
    (tmp_path / "run.json").write_text("{}")
    for words in (("explain", "--model", "builtin", "--rollouts"), ("train", "--steps", "1", "--task")):
        assert "x.jsonl: is a folder: name a file" in refused(capsys, *words, tmp_path / "x.jsonl")
    told = refused(capsys, "report", tmp_path / "run.json")
    assert f"run.json is not a folder: give the folder of a run, {tmp_path}" in told


@pytest.mark.parametrize(
    "command",
    [
        ("train", *SMALL, "--resume", "--output", "{}"),
        ("evaluate", "--benchmarks", "phrased-sums", "--model", "{}/model"),
        ("evaluate", "--benchmarks", "phrased-sums", "--model", "{}"),
        ("evaluate", "--select", "{}"),
    ],
)
def test_a_folder_of_runs_in_the_place_of_a_run(capsys, tmp_path, command):
    """ "There is no run in runs/mine": there were four."""
    for name in ("delta-2", "dapo-1", "dapo-2", "delta-1"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "run.json").write_text("{}")
    words = f"{tmp_path / 'mine'} is a folder of 4 runs (dapo-1, dapo-2, delta-1, ...): name one"
    assert words in refused(capsys, *(word.format(tmp_path / "mine") for word in map(str, command)))
    with pytest.raises(RunFolderError, match=re.escape(words)):
        read_run(tmp_path / "mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "dapo,dapo"], "give two or more different names"),
        (["--methods", "dapo,dleta"], "unknown method 'dleta'"),
        (["--methods", "dapo,delta", "--seeds", "0"], "--seeds 0: give the number of seeds, at least 1"),
        (["--methods", "dapo,delta", "--seeds", "1,2"], "--seed 1 --seeds 2 runs seeds 1 and 2"),
        (["--methods", "dapo,delta", "--eval_problems", "0"], "compare needs a held-out score"),
        (["--methods", "dapo,delta", "--learning-rates", "1e-5,fast"], "'fast' is not a number; write 5e-6,1e-5,2e-5"),
        (["--methods", "dapo,delta", "--learning-rates", "1e-5,-1"], "-1.0 is not a positive number"),
        (["--methods", "dapo,delta", "--learning-rates", "nan,1"], "nan is not a positive number"),
        (["--methods", "dapo,delta", "--learning-rates", "1e-5"], "give two or more different ones"),
        (
            ["--methods", "dapo,delta", "--learning-rates", "1,2", "--learning_rate", "3"],
            "or one --learning_rate, not both",
        ),
        (["--methods", "dapo,delta", "--tuning-seeds", "3"], "--tuning-seeds belongs to --learning-rates"),
        (
            ["--methods", "dapo,delta", "--seeds", "2", "--seed", str(2**32 - 1)],
            "go up to 4294967296, and 4294967295 is",
        ),
        (["--methods", "dapo,delta", "--tuning-seeds", "0"], "--tuning-seeds 0: give a whole number of at least 1"),
        (["--methods", "dapo,delta", "--pass-at", "5"], "each held-out problem has 4 samples; give 1 to 4"),
        (["--methods", "dapo,delta", "--eval_temperature", "-0.5"], "--eval_temperature -0.5: give 0 or more"),
        (["--methods", "dapo,delta", "--method", "dapo"], "--method is not for compare"),
        (["--methods", "dapo,delta", "--resume=true"], "--resume is not for compare"),
        (["--methods", "dapo,delta", "--metho", "dapo"], "--method is not for compare"),
        ([], "--methods"),
    ],
)
def test_compare(arguments, words, capsys, tmp_path):
    assert words in refused(capsys, "compare", "--output", tmp_path, *arguments)
    assert not any(tmp_path.iterdir())


def test_compare_takes_the_settings_file_of_train(monkeypatch, capsys, tmp_path):
    """What `train --config` advises at its end: the file names a method and a folder, which a comparison has of its own."""
    from delta_rlvr.training import compare, plan

    runs = []
    monkeypatch.setattr(plan, "train", lambda request, *_, **__: runs.append(request.build()))
    monkeypatch.setattr(compare, "conclude", lambda *_: None)
    file = tmp_path / "mine.yaml"
    file.write_text(f"method: surprise\noutput: {tmp_path}/mine\nseed: 7\nsteps: 3\nresume: true\neval_problems: 5\n")
    advised = shlex.split(advised_comparison("surprise", RunRequest(file=str(file))))
    assert main([*advised[1:], "--seeds", "1", "--output", str(tmp_path / "all"), "--without-signal"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"compare does not use method: surprise, output: {tmp_path}/mine, resume: True." in said
    assert [(config.method, config.seed, config.max_steps) for _, config in runs] == [
        ("dapo", 7, 3),
        ("surprise", 7, 3),
    ]
    assert [options.eval_problems for options, _ in runs] == [5, 5]
    assert {str(Path(config.output_dir).parent) for _, config in runs} == {str(tmp_path / "all")}


def test_compare_keeps_no_run_with_other_settings(finished, capsys, tmp_path):
    folder, _ = finished
    shutil.copytree(folder, tmp_path / "delta-seed42")
    told = refused(
        capsys, "compare", *SMALL, "--methods", "delta,dapo", "--eval_problems", 4, "--steps", 9, "--output", tmp_path
    )
    assert "was run with other settings" in told
    assert "--steps was 4 and is now 9" in told
