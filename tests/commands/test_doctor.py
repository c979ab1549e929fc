"""`delta-rlvr doctor`: what it sees of a run and of a verl launch, what it asks to change, and numbers worked out by hand."""

import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import metadata, requires
from pathlib import Path

import pyarrow
import pytest
import torch
from packaging.requirements import Requirement
from pyarrow import parquet
from transformers import AutoConfig
from trl.import_utils import is_vllm_available

from command_line import SMALL
from delta_rlvr.cli import main
from delta_rlvr.commands.help import DOCTOR
from delta_rlvr.doctor import run as doctor_run
from delta_rlvr.doctor import sizes, verl, versions
from delta_rlvr.doctor import trial as doctor_trial
from delta_rlvr.doctor.checklist import Checklist
from delta_rlvr.doctor.trial import Trial, seconds_per_batch, seconds_per_step
from delta_rlvr.models import hub
from delta_rlvr.models.load import load_policy, resolve_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test here leaves anything behind, in its folder or in the one for temporary files."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert not list((tmp_path / "temporary").iterdir())


def doctor(capsys, *words, code):
    assert main(["doctor", *map(str, words)]) == code
    return capsys.readouterr().out


# ---------------------------------------------------------------- a run of train


def test_a_run_that_is_ready(tmp_path, capsys):
    (tmp_path / "settings.yaml").write_text("method: delta\nsteps: 50\nseed: 3\n")
    said = doctor(capsys, tmp_path / "settings.yaml", *SMALL, "--max_completion_length", 64, code=0)
    assert said.splitlines()[-1] == "ready"
    assert re.search(r"two steps +\d+\.\d s per step, peak memory \d\.\d GB; 50 steps take about \d+ ", said)
    assert len(said.splitlines()) < 24
    assert max(map(len, said.splitlines())) <= 100
    assert not list(Path.cwd().iterdir())


def test_a_reward_that_tells_nothing_apart(tmp_path, capsys):
    """The two steps work, and would teach nothing."""
    (tmp_path / "mine.py").write_text("def never(completions, **_):\n    return [0.0] * len(completions)\n")
    reward = f"{tmp_path / 'mine.py'}:never"
    said = doctor(capsys, "--reward", reward, *SMALL, "--max_completion_length", 64, code=2)
    assert re.search(r"two steps +\d+\.\d s per step", said)
    problem = " ".join(said.partition("what to change:")[2].split())
    assert problem.startswith("1. no learning signal: every response was graded 0: ")
    assert re.search(r"your reward function\) does not find the answers \(one of them: '.+', reward 0\)$", problem)


@pytest.fixture
def no_steps(monkeypatch):
    """The steps are not what is tested: they are taken as done in 3 seconds each."""
    taken = []

    def counted(arguments, config):
        taken.append(arguments)
        return Trial(3.0, 0.05, 2 * 10**9, None)

    monkeypatch.setattr(doctor_run, "two_steps", counted)
    return taken


def test_without_steps(no_steps, capsys):
    said = doctor(capsys, "--no-steps", code=0)
    assert "not taken (none were requested)" in said
    assert said.splitlines()[-1] == "ready"
    assert doctor(capsys, "--processes", 4, code=0).splitlines()[-1] == "ready"
    assert not no_steps


@pytest.mark.parametrize(("problems", "rough"), [(19, True), (20, False), (0, False)])
def test_a_score_of_few_problems(no_steps, capsys, problems, rough):
    said = " ".join(doctor(capsys, "--eval_problems", problems, code=0).split())
    assert ("score A score of 19 problems is rough" in said) == rough
    assert "run delta, builtin folder runs/train is free" in said


def test_the_time_of_the_whole_run(no_steps, capsys):
    said = " ".join(doctor(capsys, "--steps", 1200, code=0).split())
    assert "3.0 s per step, peak memory 2.0 GB; 1200 steps take about 60 minutes" in said
    said = " ".join(doctor(capsys, "--steps", 1, code=0).split())
    assert "; 1 step takes about 3" in said
    said = " ".join(doctor(capsys, "--steps", 1200, code=0).split())
    # 200 problems, 4 samples each, twice, at 0.05 s: 80 s.
    assert "60 minutes, the held-out scores before and after about 80 s (checkpoints not counted)" in said
    # 64 problems, 32 prompts per batch, 2 steps on each: 4 steps per epoch.
    said = " ".join(doctor(capsys, "--num_train_epochs", 3, "--train_problems", 64, code=0).split())
    assert "12 steps take about 36 s" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max_completion_length", 5000], "so a response may have"),
        (["--leaning_rate", 1], "there is no option --leaning_rate"),
        (["--train_problems", 2], "2 training problems cannot fill a batch of 32 prompts"),
        (["--use_vllm", "true"], "vllm is not installed, and trl[vllm] needs it"),
    ],
)
def test_what_to_change_in_the_settings(arguments, said, no_steps, capsys):
    out = doctor(capsys, *arguments, code=2)
    listed = " ".join(out.partition("what to change:")[2].split())
    assert listed.startswith("1. ")
    assert said in listed
    assert not no_steps


def test_what_is_not_there(monkeypatch, no_steps, tmp_path, capsys):
    """All problems at once, an unreachable hub in one line each."""
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    words = ["--model", "nobody/nothing", "--task", "nobody/nothing", "--steps", 1]
    listed = " ".join(doctor(capsys, *words, code=2).partition("what to change:")[2].split())
    assert listed.count("it is not in the cache, and huggingface.co does not answer") == 2
    assert " 2. " in listed
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "run.json").write_text("{}")
    assert "holds a run" in doctor(capsys, "--output", tmp_path / "taken", code=2)
    (tmp_path / "bare.jsonl").write_text('{"question": "1 + 1?"}')
    said = doctor(capsys, "--no-steps", "--task", tmp_path / "bare.jsonl", code=2)
    assert "it has no answer" in " ".join(said.partition("what to change:\n  1. ")[2].split())


def test_too_little_memory_or_disk(monkeypatch, no_steps, capsys):
    # 338,112 parameters x 16 bytes, and 128 x 64 tokens x 585 entries x 8 bytes: 43.7 MB. Stored: 256 x 64 tokens x 96 x 4 bytes.
    monkeypatch.setattr(sizes, "free_memory", lambda device: 10**6)
    listed = " ".join(doctor(capsys, code=2).partition("what to change:")[2].split())
    assert "need 43.7 MB, and 1.0 MB are free: lower --per_device_train_batch_size (128)" in listed
    # The weights and logits fit, the hidden states beside them do not.
    monkeypatch.setattr(sizes, "free_memory", lambda device: 45 * 10**6)
    listed = " ".join(doctor(capsys, code=2).partition("what to change:")[2].split())
    assert "stored hidden states may need 6.3 MB, and there is room for 1.3 MB" in listed
    assert "ready" in doctor(capsys, "--method", "dapo", code=0)  # it stores none
    monkeypatch.undo()
    monkeypatch.setattr(sizes, "free_disk", lambda folder: 10**7)
    listed = " ".join(doctor(capsys, "--no-steps", code=2).partition("what to change:")[2].split())
    assert "4 checkpoints of 4.1 MB and the model: 17.6 MB of 10.0 MB free: set --save_total_limit" in listed


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "lower --per_device_train_batch_size"),
        (ValueError("the reward broke"), "the two steps failed: the reward broke"),
    ],
)
def test_steps_that_fail(error, said, monkeypatch, capsys):
    def fails(*_):
        raise error

    monkeypatch.setattr(doctor_trial, "train", fails)
    assert said in " ".join(doctor(capsys, code=1).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.yaml"], "there is no such file"),
        (["--resume"], "doctor checks new runs only"),
        (["--processes", "0"], "give 1 or more"),
    ],
)
def test_mistakes_are_named(arguments, said, capsys):
    assert main(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_help(capsys):
    assert doctor(capsys, "--help", code=0) == DOCTOR
    assert max(map(len, DOCTOR.splitlines())) <= 136


# ---------------------------------------------------------------- numbers by hand


def test_seconds_per_step():
    def line(generate, update):
        return {
            "seconds_generate": generate,
            "seconds_logps": 1.0,
            "seconds_reward": 0.0,
            "seconds_credit": 0.0,
            "seconds_update": update,
        }

    # A batch per step: (5 + 3) / 2 of rollouts and 2 of updates.
    assert seconds_per_step([line(4.0, 1.0), line(2.0, 3.0)], 1) == 4 + 2
    # One batch for 4 steps, of which 2 were taken: 5 + 1 seconds of rollouts over 4 steps.
    assert seconds_per_step([line(4.0, 1.0), line(0.0, 3.0)], 4) == 6 / 4 + 2
    # The same batch alone, 4 s; and four batches in two steps, 6 s.
    assert seconds_per_batch([line(4.0, 1.0), line(0.0, 3.0)], 4) == 4
    assert seconds_per_batch([line(4.0, 1.0), line(2.0, 3.0)], 0.5) == 6 / 4
    # Two batches a step: all of it is a step's.
    assert seconds_per_step([line(4.0, 1.0), line(2.0, 3.0)], 0.5) == 4 + 2


def test_sizes():
    model, _ = load_policy("builtin")
    config = AutoConfig.from_pretrained(resolve_model("builtin"))
    shape = sizes.ModelShape.of(config)
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    assert shape.width == model.config.hidden_size
    small = sizes.ModelShape(parameters=100, trained=10, width=8, vocabulary=50, context=None)
    assert sizes.state_bytes(small) == 100 * 4 + 10 * 4 + 10 * 8
    assert sizes.state_bytes(small, sizes.optimizer_bytes("adamw_bnb_8bit")) == 100 * 4 + 10 * 4 + 10 * 2
    assert sizes.logits_bytes(small, 3) == 3 * 50 * 4 * 2
    assert sizes.store_bytes(small, 3, 2) == 3 * 8 * 2
    assert sizes.checkpoint_bytes(small) == 10 * 4 + 10 * 8


def test_the_size_of_a_lora_adapter():
    from peft import LoraConfig, get_peft_model

    model, _ = load_policy("builtin")
    shape = sizes.ModelShape.of(model.config, lora_rank=4)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    assert shape.trained == sum(one.numel() for one in adapted.parameters() if one.requires_grad)


def test_the_size_of_a_real_checkpoint(finished):
    """Weights and moments of the run that other tests made; files have headers, and the schedule beside them."""
    folder, _ = finished
    config = AutoConfig.from_pretrained(resolve_model("builtin"))
    expected = sizes.checkpoint_bytes(sizes.ModelShape.of(config))
    files = [folder / "checkpoint-4" / name for name in ("model.safetensors", "optimizer.pt")]
    written = sum(file.stat().st_size for file in files)
    assert expected <= written < 1.1 * expected


# ---------------------------------------------------------------- versions


def test_what_a_requirement_asks_for(monkeypatch):
    installed = {"torch": "2.13.0+cpu", "vllm": "0.32.0", "trl": "1.16.1.dev0"}
    monkeypatch.setattr(versions, "installed_version", installed.get)

    def problem(text):
        return versions.unmet("delta-rlvr[trl]", Requirement(text))

    assert problem("torch>=2.8,<=2.13.0") is None  # the local part does not count
    assert problem("trl>=1.16,<1.17") is None
    expected = 'vllm 0.32.0 is installed, and delta-rlvr[trl] needs <=0.31.0: pip install "vllm<=0.31.0"'
    assert problem("vllm<=0.31.0") == expected
    assert problem("peft>=0.15") == ('peft is not installed, and delta-rlvr[trl] needs it: pip install "peft>=0.15"')


def test_extras_are_followed(monkeypatch):
    lines = {"mine": ["torch>=2.8", 'trl<2; extra == "trl"', 'mine[trl]; extra == "train"', 'x; extra == "y"']}
    monkeypatch.setattr(versions, "requires", lines.get)
    assert [want.name for _, want in versions.wants("mine")] == ["torch"]
    assert [want.name for _, want in versions.wants("mine", "train")] == ["torch", "torch", "trl"]


def test_trls_metadata_says_what_trl_checks():
    """TRL warns about versions of vLLM outside of a range: its metadata, which doctor reads, has the same one."""
    checked = set(re.findall(r'Version\("([\d.]+)"\)', inspect.getsource(is_vllm_available)))
    ranges = [Requirement(line) for line in requires("trl")]
    named = next(one for one in ranges if one.name == "vllm" and one.marker.evaluate({"extra": "vllm"}))
    assert {bound.version for bound in named.specifier} == checked


def test_what_is_installed_here_goes_together():
    assert versions.version_problems({"delta-rlvr": "trl", "trl": None, "transformers": "torch"}) == []


# ---------------------------------------------------------------- a launch of verl


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """The recipe's settings with a model and data that are here, on a node that has what it asks for."""
    data = tmp_path / "data.parquet"
    data.touch()
    done = subprocess.run(
        ["bash", str(ROOT / "recipes" / "verl" / "qwen3_8b_base.sh"), "delta"],
        env={**os.environ, "DRY_RUN": "1", "MODEL": resolve_model("builtin"), "DATA": str(data)},
        capture_output=True,
        text=True,
        check=True,
    )
    file = tmp_path / "launch.txt"
    file.write_text(done.stdout)
    monkeypatch.setattr(verl.torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(verl, "_trl_is_in_the_way", lambda: False)
    monkeypatch.setattr(verl, "_look_at_rollouts", lambda engine, checks: checks.saw("rollouts", engine))
    return file


SHORT = ["data.max_prompt_length=128", "data.max_response_length=256"]


def test_a_launch_that_is_ready(launch, capsys):
    said = doctor(capsys, launch, *SHORT, code=0)
    assert said.splitlines()[-1] == "ready"
    assert "prompt 128 + response 256 of 512 tokens" in said
    # 128 x 16 responses of 256 tokens, width 96, bf16, over 8 ranks: 12.6 MB.
    assert "stored hidden states up to 12.6 MB" in " ".join(said.split())
    assert "not taken" in said


def test_what_to_change_in_a_launch(launch, capsys):
    words = ["actor_rollout_ref.actor.strategy=megatron", "data.train_files=none.parquet"]
    listed = doctor(capsys, launch, *words, code=2).partition("what to change:")[2]
    listed = " ".join(listed.split())
    for said in (
        "strategy=megatron",
        "none.parquet does not exist",
        "are 22528 tokens, and the model's context has 512",
    ):
        assert said in listed
    assert "3. " in listed
    refused = " ".join(doctor(capsys, launch, "no.such.setting=1", code=2).split())
    assert "verl refuses the settings" in refused


def test_a_missing_file_of_validation_is_named(launch, capsys):
    said = " ".join(doctor(capsys, launch, *SHORT, "data.val_files=[none.parquet]", code=2).split())
    assert "data.val_files: none.parquet does not exist" in said
    assert "data.train_files:" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainer.total_epochs=2"], "20 checkpoints of"),
        (["trainer.total_epochs=2", "data.train_max_samples=3200"], "10 checkpoints of"),
        (["trainer.total_epochs=2", "trainer.max_actor_ckpt_to_keep=3"], "3 checkpoints of"),
        (["trainer.total_training_steps=100"], "10 checkpoints of"),
        (["trainer.total_training_steps=101"], "11 checkpoints of"),  # the last step is saved too
        (["trainer.total_epochs=2", "trainer.save_freq=-1"], "0 checkpoints of"),
        (["trainer.total_epochs=2", "data.train_files=none.parquet"], "how many there will be cannot be known"),
        (["trainer.max_actor_ckpt_to_keep=3", "data.train_files=[]"], "3 checkpoints of"),
        (["trainer.total_epochs=2", "data.train_files=[]"], "how many there will be cannot be known"),
    ],
)
def test_the_checkpoints_of_a_launch(launch, capsys, words, said):
    """With 6,400 rows and batches of 64, an epoch has 100 steps."""
    parquet.write_table(pyarrow.table({"id": range(6400)}), launch.with_name("data.parquet"))
    lines = [
        line for line in launch.read_text().splitlines() if not re.match(r"\+*trainer\.(total|max_actor|save)", line)
    ]
    launch.write_text("\n".join([*lines, *SHORT]))
    code = 2 if "data.train_files=none.parquet" in words else 0
    told = doctor(capsys, launch, "data.train_batch_size=64", "trainer.save_freq=10", *words, code=code)
    assert said in " ".join(told.split())


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("sglang", 'sglang is not installed: pip install "verl[sglang]"'),
        (
            "hf",
            'hf is not installed, and verl has no extra that installs it: set vllm or sglang, as in pip install "verl[vllm]"',
        ),
    ],
)
def test_only_extras_that_verl_has_are_named(engine, said, monkeypatch):
    monkeypatch.setattr(verl, "installed_version", lambda name: None)
    checks = Checklist()
    verl._look_at_rollouts(engine, checks)
    assert checks.problems == [f"actor_rollout_ref.rollout.name={engine}: {said}"]
    assert set(verl._EXTRAS) <= set(metadata("verl").get_all("Provides-Extra"))


@pytest.mark.parametrize("block", ["actor_rollout_ref", "trainer", "data", "algorithm"])
def test_a_config_of_verl_without_a_delta_block(tmp_path, launch, capsys, block):
    (tmp_path / "config.yaml").write_text(f"{block}: {{}}\n")
    listed = " ".join(doctor(capsys, tmp_path / "config.yaml", code=2).split())
    assert "the block `delta` is missing: write `delta: {method: delta}`" in listed


def test_a_config_with_a_delta_block(tmp_path, launch, capsys):
    (tmp_path / "config.yaml").write_text("delta:\n  method: dleta\n")
    listed = " ".join(doctor(capsys, tmp_path / "config.yaml", code=2).split())
    assert "delta.method: unknown method 'dleta'" in listed
    assert main(["doctor", str(tmp_path / "config.yaml"), "trainer.nnodes=2"]) == 2
    assert "write this one into" in capsys.readouterr().err


def as_a_script(launch):
    """The same launch as people write it."""
    lines = [line for line in launch.read_text().splitlines() if "max_response" not in line]
    data = next(line.partition("=")[2] for line in lines if line.startswith("data.train_files"))
    quoted = [shlex.quote(line).replace(shlex.quote(data), '"$DATA"') for line in lines]
    body = " \\\n    ".join(quoted).replace("data.max_prompt_length=2048", "data.max_prompt_length=${PROMPT:-128}")
    file = launch.with_name("mine.txt")
    file.write_text(
        f"#!/bin/bash\nset -x  # say it\nexport DATA={data} UNUSED=$(nvidia-smi)\n\n"
        f"python3 -m verl.trainer.main_ppo \\\n    {body} \\\n    # the next one is short\n"
        '    data.max_response_length=256 "$@" 2>&1 | tee log.txt\n'
    )
    return file


def test_a_launch_script(launch, capsys):
    said = " ".join(doctor(capsys, as_a_script(launch), code=0).split())
    assert said.endswith("ready")
    assert "prompt 128 + response 256 of 512 tokens" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python -m verl.trainer.main_ppo data.train_batch_size=$MISSING\n", "$MISSING cannot be resolved"),
        ('python -m verl.trainer.main_ppo "${SETTINGS[@]}"\n', "${SETTINGS[@]} cannot be resolved"),
        ("python -m verl.trainer.main_ppo\n", "no launch of verl with settings"),
        ("python -m verl.trainer.main_ppo 'a=1\n", "cannot be read as a shell would"),
        ("just words\n", "give settings of `train`"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_formats(tmp_path, capsys, monkeypatch, text, words):
    monkeypatch.delenv("MISSING", raising=False)
    file = tmp_path / "mine.txt"
    file.write_text(text)
    assert main(["doctor", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert verl.FORMATS in said


def test_a_key_of_a_config_that_is_given_twice(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("trainer:\n  nnodes: 1\n  nnodes: 2\n")
    assert main(["doctor", str(file)]) == 2
    assert "mine.yaml: nnodes is given twice (lines 2 and 3): remove one" in capsys.readouterr().err


def test_settings_without_a_delta_block_are_verls(tmp_path, capsys, monkeypatch):
    file = tmp_path / "stock.txt"
    file.write_text("algorithm.adv_estimator=grpo\ntrainer.nnodes=1\n")
    assert "delta" in doctor(capsys, file, code=2).partition("what to change:")[2]


def test_a_loss_that_is_not_the_methods_is_remarked(launch, capsys):
    own = ("clip_ratio_high", "clip_ratio_c", "use_kl_loss")
    lines = [line for line in launch.read_text().splitlines() if not any(name in line for name in own)]
    launch.write_text("\n".join([*lines, "actor_rollout_ref.actor.use_kl_loss=True"]))
    said = " ".join(doctor(capsys, launch, *SHORT, code=0).split())
    assert "the clip is 0.2 below and 0.2 above, and delta is defined with 0.2 and 0.28" in said
    assert "verl's dual clip is at 3.0, and delta has none" in said
    assert "actor_rollout_ref.actor.use_kl_loss=True adds a KL term" in said
    assert said.endswith("ready")


def test_the_recipe_is_the_method(launch, capsys):
    assert "remark" not in doctor(capsys, launch, *SHORT, code=0)


def test_the_class_that_verl_misses():
    """doctor says that verl does not start beside this TRL: the class is gone from it, and verl asks for it."""
    import importlib.util

    import trl

    assert not hasattr(trl, verl.VALUE_HEAD)
    assert verl._trl_is_in_the_way()
    home = Path(importlib.util.find_spec("verl").origin).parent
    assert any(verl.VALUE_HEAD in file.read_text() for file in home.rglob("*.py"))


def test_a_launch_is_looked_at_where_trl_is_not_installed(launch):
    code = "import sys; sys.modules['trl'] = None; from delta_rlvr.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", str(launch)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 2, done.stderr
    assert "what to change:" in done.stdout
