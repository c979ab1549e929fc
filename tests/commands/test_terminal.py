"""What a person meets on the terminal: names told early, runs that do not collide, and ways on after an end."""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest
from trl import GRPOConfig

from command_line import SMALL, built, metrics, refused, reopen, run_info
from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.cli import main
from delta_rlvr.commands import evaluate, flags, names
from delta_rlvr.commands.options import read_request
from delta_rlvr.commands.parser import CommandParser
from delta_rlvr.files import locked, plain
from delta_rlvr.objectives import all_methods
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.runs import writer as run_writer
from delta_rlvr.runs.model_card import card
from delta_rlvr.training.options import BUILT_IN_DEFAULTS, TrainOptions
from delta_rlvr.training.request import RunRequest, run_settings, stored_run
from delta_rlvr.training.resuming import advised_comparison, saying_how_to_resume

# ---------------------------------------------------------------- names


def test_method_names_are_read_off_the_source():
    # Other tests register rules of their own in this process.
    ours = [name for name, one in all_methods().items() if type(one.rule).__module__.startswith("delta_rlvr.")]
    assert sorted(names.method_names()) == sorted(ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "dleta"], "did you mean 'delta'?"),
        (["--show_methods=dapo-ft,dleta"], "unknown method 'dleta'"),
        (["--task", "phrased-sum"], "did you mean 'phrased-sums'?"),
        (["--template", "maths"], "there is no template 'maths'"),
        (["--model", "/nowhere"], "--model /nowhere: there is no such folder or file"),
        (["--config", "none.yaml"], "none.yaml: there is no such file"),
        (["--task", "none.jsonl"], "none.jsonl: there is no such file"),
        (["--task", "empty.jsonl"], "empty.jsonl has no rows"),
        (["--task", "frage.csv"], "frage.csv, line 2: it has no question"),
        (["--task", "ask.csv?sots=1"], "there is no setting sots"),
        (["--task", "ask.csv"], "ask.csv, line 2: it has no answer"),
        (["--task", "ask.csv", "--reward", "none.py:f"], "none.py: there is no such file (there are: my.py, odd.py)"),
        (["--task", "ask.csv", "--reward", "my.py:jugde"], "there is no 'jugde' in my.py; did you mean 'judge'?"),
        (["--method", "my.py:Mine"], "there is no 'Mine' in my.py"),
        (["--method", "odd.py:Mine"], "odd.py, line 2: this is not Python"),
        (["--report_to", "comet_ml"], "--report_to comet_ml: it is not installed; pip install comet-ml"),
        (
            ["--task", "ask.csv?answer=label", "--reward", "my.py:judge"],
            "no answer (looked for label; it has question)",
        ),
        (["--template_text", "no place"], "has no place for the question"),
    ],
)
def test_wrong_names_are_refused_before_torch_is_loaded(arguments, words, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "frage.csv").write_text("frage,antwort\n1+1,2\n")
    (tmp_path / "ask.csv").write_text("question\n1+1\n")
    (tmp_path / "my.py").write_text("import torch\ndef judge(completions):\n    return [0.0 for _ in completions]\n")
    (tmp_path / "odd.py").write_text("import os\nclass Mine(:\n")
    program = "import sys; from delta_rlvr.cli import main; code = main(); print('torch' in sys.modules, code)"
    done = subprocess.run(
        [sys.executable, "-c", program, "train", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert words in done.stderr
    assert done.stdout.split() == ["False", "2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "--model", "builtin", "--rollouts", "none.jsonl"], "--rollouts none.jsonl: there is no such file"),
        (["explain", "--model", "/nowhere", "--rollouts", "none.jsonl"], "--model /nowhere: there is no such folder"),
        (["explain", "--methods", "dleta"], "did you mean 'delta'?"),
        (["evaluate", "--benchmarks", "gsm8k,none.csv"], "none.csv: there is no such file"),
        (["train", "--task", "ask.csb"], "there is no task 'ask.csb'; did you mean 'ask.csv'?"),
        (["train", "--task", "asks.csv"], "asks.csv: there is no such file; did you mean 'ask.csv'?"),
        (["evaluate", "--benchmarks", "ask.csb"], "there is no benchmark 'ask.csb'; did you mean 'ask.csv'?"),
        (["evaluate", "--benchmarks", "gsm9k"], "there is no benchmark 'gsm9k'; did you mean 'gsm8k'?"),
        (["evaluate", "--server", "http://x/v1", "--benchmarks", "gsm9k"], "did you mean 'gsm8k'?"),
        (
            ["evaluate", "--benchmarks", "my.jsonl?question=q&limit=3"],
            "use --benchmarks 'task:my.jsonl?question=q&limit=3'",
        ),
        (
            ["evaluate", "--benchmarks", "frage.csv"],
            "(looked for problem, question, prompt, input, Problem, Question; it has frage, antwort); name its columns, as in "
            "'frage.csv?question=COLUMN&answer=COLUMN'",
        ),
        (
            ["evaluate", "--benchmarks", "task:ask.csv?answer=question&template_text={question}, please"],
            "write a comma inside a setting as %2C and a line break as %0A",
        ),
        (["evaluate", "--benchmarks", "ask.csv", "--template_text", "Hello"], "has no place for the question"),
        (["train", "--method", "rules.py:Late"], "there is no 'Late' in rules.py (it has Unlikely, helper)"),
    ],
)
def test_other_commands_refuse_early_too(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "frage.csv").write_text("frage,antwort\n1+1,2\n")
    (tmp_path / "ask.csv").write_text("question\n1+1\n")
    (tmp_path / "rules.py").write_text("class Unlikely: ...\n\ndef helper(): ...\n")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails now
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--leaning_rate", "1"], "there is no option --leaning_rate; did you mean --learning_rate?"),
        (["compare", "--methods", "dapo,delta", "--step-size=3"], "there is no option --step-size; "),
        (
            ["train", "--method", "delta?scope=group", "--lambda-min", "0.5"],
            "there is no option --lambda-min; settings of a method follow its name: --method 'delta?scope=group&lambda_min=VALUE'",
        ),
        (["train", "--max_tokens", "8"], "no option --max_tokens; did you mean --max_completion_length?"),
        (["evaluate", "--k", "4"], "there is no option --k; did you mean -k or --samples-per-question?"),
        (
            ["evaluate", "--max_completion_length=64"],
            "there is no option --max_completion_length; did you mean --max-tokens?",
        ),
        (["evaluate", "--temprature", "1"], "did you mean --temperature?"),
        (["explain", "--modle", "builtin"], "there is no option --modle; did you mean --model?"),
        (["study", "p.yaml", "--output_dir", "x"], "there is no option --output_dir; did you mean --output?"),
        (["leaderboard", "--zzz"], "there is no option --zzz; `delta-rlvr leaderboard --help` lists them"),
        (["evaluate", "--limit", "x"], "invalid int value: 'x' (`delta-rlvr evaluate --help` lists"),
        (["evaluate", "--s", "x"], "ambiguous option: --s could match"),
    ],
)
def test_the_nearest_option_is_named(arguments, words, capsys):
    """One line, for every command: no page of usage in front."""
    told = refused(capsys, *arguments)
    assert told.startswith(f"delta-rlvr {arguments[0]}: ")
    assert words in told


def test_dashes_and_underscores_are_the_same():
    parser = CommandParser(prog="x")
    evaluate.add_arguments(parser)
    words = ["--max_tokens=9", "--top_p", "0.5", "--template-text", "{question}", "--samples_per_q", "4"]
    parsed = parser.parse(words)
    assert (parsed.max_tokens, parsed.top_p, parsed.template_text, parsed.k) == (9, 0.5, "{question}", 4)


OPTIONS = {name: f"--{name}" for name in ("model", "steps", "save_steps", "template", "scope", "resume")}


@pytest.mark.parametrize(
    ("library", "command_line"),
    [
        ("model='my model': there is none", "--model 'my model': there is none"),
        ("steps=0: give 1 or more", "--steps 0: give 1 or more"),
        ("resume=True: there is no run", "--resume: there is no run"),
        ("none was written yet (`save_steps` says how often)", "none was written yet (--save_steps says how often)"),
        (
            "as in delta?scope=group&template=x, or `completions`",
            "as in delta?scope=group&template=x, or `completions`",
        ),
        ("shots=4, or steps=2 or more", "shots=4, or --steps 2 or more"),
    ],
)
def test_the_library_names_arguments_and_the_command_line_flags(library, command_line):
    assert flags.as_flags(library, OPTIONS) == command_line


def test_what_cannot_be_known_early_passes(tmp_path):
    names.check_names([])
    names.check_names(["--compare", "a", "b", "--benchmarks", "a-name-in-a-result"])
    names.check_names(["--task"])  # argparse says that a value is missing
    own = tmp_path / "my_rules.py"
    own.write_text("from elsewhere import *\n")  # the name may be among them
    names.check_names(["--method", f"{own}:Mine", "--task", "owner/set", "--model", "owner/model", "--template=math"])
    names.check_names(["--method", "my_package.rules:Mine", "--reward", "my_package.rewards:judge"])
    rows = tmp_path / "rows.csv"
    rows.write_text("question\n1+1\n")  # no answer: the settings file may name a reward
    names.check_names(["--task", str(rows), "--config", str(own)])


def test_something_is_said_while_torch_loads(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    refused_late = main(["train", *SMALL, "--num_generations", "7"])
    assert refused_late == 2
    assert capsys.readouterr().err.splitlines()[0] == "delta-rlvr train: loading ..."


@pytest.mark.parametrize(
    ("inside", "hint"),
    [
        ([], "it is empty"),
        (["notes.txt"], "it has notes.txt"),
        (["model/config.json", "checkpoint-6/config.json"], "did you mean {folder}/model?"),
        (["checkpoint-6/config.json", "checkpoint-12/config.json"], "did you mean {folder}/checkpoint-12?"),
        (["qwen/config.json", "notes.txt"], "did you mean {folder}/qwen?"),
    ],
)
def test_a_folder_without_a_model(inside, hint, tmp_path, capsys):
    for name in inside:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    told = refused(capsys, "train", "--model", tmp_path, "--steps", 1)
    assert f"--model {tmp_path}: the folder holds no model (no config.json)" in told
    assert told.endswith(hint.format(folder=tmp_path))


@pytest.mark.parametrize(
    "command", [["evaluate", "--benchmarks", "phrased-sums"], ["credit-bench"], ["study", "x.yaml"]]
)
def test_a_device_that_is_not_there(command, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "--device cuda: " in refused(capsys, *command, "--device", "cuda")
    assert "no such device; give cpu, cuda or cuda:N" in refused(capsys, *command, "--device", "gpu")


# ---------------------------------------------------------------- folders and resuming


def test_a_second_run_gets_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def folder(*arguments):
        return built([*SMALL, *arguments])[1].output_dir

    assert folder() == "runs/train"
    for name in ("train", "train-2", "train-old"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text('{"status": "finished", "steps": 2}')
    assert folder() == "runs/train-3"
    with locked(tmp_path / "runs" / "train-3"):  # by a run that started at the same moment
        assert folder() == "runs/train-4"
    assert folder("--resume") == "runs/train-2"
    assert folder("--output", "mine") == "mine"
    (tmp_path / "runs" / "train-2" / "run.json").write_text('{"status": "failed", "steps": 0}')
    assert folder() == "runs/train-2"  # no step was lost there


@pytest.mark.parametrize("asked", [[], ["--eval_problems", "3", "--learning_rate", "0.5"], ["--steps", "3"]])
def test_a_finished_run_stays_as_it_is(asked, finished, tmp_path, capsys):
    """Its score was taken again, of other problems, and its model card said nothing about it."""
    folder = shutil.copytree(finished[0], tmp_path / "my run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["train", "--output", str(folder), "--resume", *asked]) == 0
    told = capsys.readouterr().out
    assert "this run is finished, after 4 steps: nothing is changed" in told
    assert f"delta-rlvr train --output '{folder}' --resume --steps 8" in told.replace("\n", "")
    assert "resuming from" not in told
    if "--eval_problems" in asked:
        was = run_info(folder)["settings"]
        assert f"--eval_problems was {was['eval_problems']} and stays so" in told
        assert f"--learning_rate was {was['learning_rate']} and stays so" in told
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_resuming_is_not_announced_before_a_refusal(finished, tmp_path, capsys):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    assert main(["train", "--output", str(folder), "--resume", "--steps", "6", "--seed", "9"]) == 2
    streams = capsys.readouterr()
    assert "resuming from" not in streams.out
    assert "seed" in streams.err


def test_the_card_says_that_two_scores_cannot_be_compared():
    info = {"model": "m", "method": "dapo", "task": "t", "seed": 1, "steps": 2, "settings": {}}
    final = {"before": {"accuracy": 0.5}, "after": {"accuracy": 0.6, "own_reward": True}}
    text = card({**info, "final": final}, apart="they differ")
    assert "50.0 % before training, 0.600 after; they differ." in text


def test_resume_takes_what_is_not_said_from_the_run(finished, tmp_path, capsys):
    """A finished run of 4 steps stays one: 80 are only the default of a new one."""
    folder = shutil.copytree(finished[0], tmp_path / "run")
    before = run_info(folder)
    reopen(folder)
    assert main(["train", "--output", str(folder), "--resume"]) == 0
    told = capsys.readouterr().out
    assert "resuming from checkpoint-4" in told
    assert " was " not in told
    after = run_info(folder)
    moved = {"output_dir": str(folder)}  # the copy's place
    assert after["settings"] == before["settings"] | moved
    assert after["steps"] == 4
    assert after["final"]["after"]["accuracy"] == before["final"]["after"]["accuracy"]
    assert set(after["resumed"][-1]["settings_changed"]) == {"output_dir"}


def test_resume_prints_what_differs(finished, tmp_path, capsys):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    assert main(["train", "--output", str(folder), "--resume", "--steps", "6", "--report", "false"]) == 0
    told = capsys.readouterr().out
    assert "--steps was 4 and is now 6" in told
    assert "learning_rate" not in told
    assert len(metrics(folder)) == 6


# ---------------------------------------------------------------- ends


def full(*_args, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint-6/model.safetensors")


def test_a_full_disk_is_one_line(finished, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(finished[0], tmp_path / "run")

    def tears(*_args, **_options):
        (folder / "checkpoint-6").mkdir()
        full()

    monkeypatch.setattr("delta_rlvr.training.session.DeltaTrainer.train", tears)
    assert main(["train", "--output", str(folder), "--resume", "--steps", "6"]) == 1
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert "the disk is full" in told
    assert "checkpoint-6/model.safetensors" in told
    assert "checkpoint-4 is kept; resume with" in told
    assert run_info(folder)["status"] == "failed"
    assert not (folder / "checkpoint-6").exists()  # torn: its room is worth more


def test_a_full_disk_cannot_hide_that_a_run_failed(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path, RunDescription("trl", "delta", 0, "builtin", "sums"))
    monkeypatch.setattr(run_writer, "atomic", full)
    with pytest.raises(OSError, match="No space left"), writer:
        full()
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"


def test_an_interrupt_before_the_first_checkpoint_names_the_command_too(tmp_path):
    with pytest.raises(KeyboardInterrupt, match=r"\(`save_steps` says how often\)$"), saying_how_to_resume(tmp_path):
        raise KeyboardInterrupt  # before there was a run folder
    RunWriter.create(tmp_path, RunDescription("trl", "delta", 0, "builtin", "sums"))
    again = f"; start again with: delta-rlvr train --output {tmp_path} --resume"
    with pytest.raises(KeyboardInterrupt, match=re.escape(again)), saying_how_to_resume(tmp_path):
        raise KeyboardInterrupt


# ---------------------------------------------------------------- what a run leaves


def test_the_model_card_is_ours_and_true(finished):
    folder, _ = finished
    text = (folder / "model" / "README.md").read_text()
    info = run_info(folder)
    assert "# builtin, trained with delta" in text
    assert "4 steps of `delta` on `phrased-sums`, seed 42" in text
    score = 100 * info["final"]["after"]["accuracy"]
    assert f"{score:.1f} % after (4 problems, 2 samples each, temperature 1, top-p 1, up to 64 tokens)" in text
    cards = [path.relative_to(folder) for path in folder.rglob("README.md")]
    assert [str(path) for path in cards] == ["model/README.md"]  # none of TRL's


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("evaluate", "learning_rate", "delta-within-side", "long-filler", "rollouts"):
        assert word in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


def test_bash_completes(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out

    def completed(*words):
        line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _delta_rlvr; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.split()

    assert completed("delta-rlvr", "ex") == ["explain"]
    assert completed("delta-rlvr", "train", "--method", "delta-wit") == ["delta-within-side"]
    assert completed("delta-rlvr", "explain", "--rew") == ["--reward_key"]


def test_help_tells_the_defaults(capsys):
    """The help is written by hand, so that it is there at once: each number in it is the parser's."""
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    trl = {one.name: one.default for one in fields(GRPOConfig)}
    for name, built_in in BUILT_IN_DEFAULTS.items():
        if f"--{name}" not in text:
            continue
        said = re.search(rf"--{name} [NX] [^(]*\(([^;)]*); ([^)]*)\)", text)
        assert float(said[2]) == built_in, name
        if name != "steps_per_generation":  # None: as many as a step has
            assert float(said[1]) == trl[name], name
    assert re.search(r"--steps N .*?; (\d+)\)", text)[1] == str(BUILT_IN_DEFAULTS["max_steps"])
    assert f"random seed ({trl['seed']})" in text
    assert f"epochs over each rollout batch ({trl['num_iterations']})" in text
    given = TrainOptions()
    assert f"problems ({given.eval_problems}), samples per problem ({given.eval_samples})" in text
    dumps = {one.name: one.default for one in fields(DeltaTrainerConfig)}
    assert f"between dumps ({dumps['rollouts_every']}), prompts per dump ({dumps['rollout_groups']})" in text
    assert "math_answer_line" in text


def test_the_advised_comparison_of_a_resumed_run_has_its_settings(finished):
    """What a resumed run took from its folder is part of the comparison, too."""
    folder, _ = finished
    request = read_request(["--output", str(folder), "--resume", "--steps", "8"])
    told = shlex.split(advised_comparison("delta", request.with_restored()))
    at = told.index("--eval_problems")
    assert told[at + 1] == str(stored_run(folder)["settings"]["eval_problems"])
    # What nobody gave, and the task filled in, is no part of it.
    assert stored_run(folder)["settings"]["max_completion_length"] == 64
    assert "--max_completion_length" not in told
    assert "--model" not in told
    assert told.count("--steps") == 1
    assert "--seed" not in told
    assert "--output" not in told


@pytest.mark.parametrize("as_option", [True, False])
def test_the_advised_comparison_of_a_resumed_run_has_the_task_as_it_was_given(tmp_path, as_option):
    """A prompt that was given with --template_text came back as an escaped setting of the task."""
    problems = tmp_path / "vans.jsonl"
    problems.write_text('{"ask": "1+1?", "answer": 2}\n')
    prompt = ["--template_text", "{question}\nAnswer: "]
    task = ["--task", f"{problems}?question=ask"]
    given = [*task, *prompt]
    if not as_option:
        given = ["--task", f"{task[1]}&template_text=%7Bquestion%7D%0AAnswer%3A%20"]
    request = read_request([*given, "--output", str(tmp_path / "run")])
    (tmp_path / "run").mkdir()
    stored = {"settings": run_settings(*request.build()), "given": sorted(request.settings)}
    (tmp_path / "run" / "run.json").write_text(json.dumps(plain(stored)))
    resumed = RunRequest({"output": str(tmp_path / "run"), "resume": True})
    assert resumed.with_restored().given == {**resumed.given, **read_request(given).given}


def test_the_advised_comparison_can_be_pasted():
    """The same options without those that compare has of its own; what a shell would take apart is quoted."""
    words = ["--task", "my file.jsonl?question=q&answer=a", "--method=delta", "--output", "runs/x", "--steps", "3"]
    request = read_request([*words, "--resume", "--seed", "4", "--report_to", "none"])
    told = advised_comparison("delta?scope=group", request)
    assert shlex.split(told) == [
        *("delta-rlvr", "compare", "--methods", "dapo,delta?scope=group", "--seeds", "6"),
        *("--task", "my file.jsonl?question=q&answer=a", "--steps", "3", "--report_to", "none"),
    ]
    assert "'my file.jsonl?question=q&answer=a'" in told
    assert "--methods dapo,delta --seeds" in advised_comparison("dapo", RunRequest())
