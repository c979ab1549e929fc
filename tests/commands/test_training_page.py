"""docs/training.md: its settings parse, its script runs, and what it names exists."""

import re
from dataclasses import fields
from pathlib import Path

import yaml
from datasets import Dataset
from trl import GRPOConfig

from command_line import built, metrics
from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.models import load_policy
from delta_rlvr.runs import read_run
from delta_rlvr.runs.recorder import no_signal
from delta_rlvr.training.options import BUILT_IN_DEFAULTS

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_the_settings_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(block("yaml"))
    options, config = built(["--config", str(path)])
    assert options.task == "zwhe99/DeepMath-103K"
    assert (config.method, config.max_steps, config.learning_rate) == ("delta", 200, 1e-6)
    assert config.updates_per_batch == 4  # 16 passes a rollout batch, 4 a step
    assert config.prompts_per_batch == 16


def test_the_defaults_that_are_not_trls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (told,) = re.findall(r"^Defaults that differ from TRL's: (.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)
    ours, bundled = (dict(re.findall(r"`(\w+)(?:: ([\w.-]+))?`", part)) for part in told.split("bundled policy"))
    device = {"use_cpu": True, "bf16": False}
    trl = GRPOConfig("runs/train", disable_tqdm=False, **device)  # transformers asks its log level

    def other(model):
        _, config = built(["--model", model, "--num_train_epochs", "1", "--use_cpu", "true", "--bf16", "false"])
        found = {}
        for one in fields(GRPOConfig):
            stock, own = (getattr(config, one.name) for config in (trl, config))
            if stock != own and one.name not in ("num_train_epochs", "generation_batch_size"):
                found[one.name] = getattr(own, "value", own)
        return found

    expected = {name: yaml.safe_load(value) if value else None for name, value in ours.items()}
    assert other("some/model") == expected | {"epsilon_high": 0.28}  # that of the default method
    steps = {"max_steps": 80}  # not beside a number of epochs
    expected |= {name: float(value) if "e-" in value else yaml.safe_load(value) for name, value in bundled.items()}
    assert other("builtin") | steps == expected | {"epsilon_high": 0.28}
    assert BUILT_IN_DEFAULTS["max_steps"] == 80


def test_the_script(tmp_path, monkeypatch):
    model, tokenizer = load_policy()
    small = {
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 8,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
    }
    monkeypatch.chdir(tmp_path)
    # The page's config, in small.
    monkeypatch.setattr(
        "delta_rlvr.adapters.trl.DeltaTrainerConfig",
        lambda *words, **settings: DeltaTrainerConfig(*words, **small, **settings),
    )

    def reward(completions, **_):
        return [float(len(set(text))) for text in completions]

    data = Dataset.from_list([{"prompt": f"Add {n} and 11."} for n in range(10, 20)])
    names = {"model": model, "reward": reward, "data": data}
    exec(compile(block("python"), "docs/training.md", "exec"), names)
    assert [line["step"] for line in metrics(tmp_path / "runs" / "mine")] == [1, 2]
    found = read_run(tmp_path / "runs" / "mine")
    assert found.info["status"] == "finished"
    assert found.tokens is not None
    assert tokenizer.decode(found.rollouts(1)[0]["ids"]) == found.rollouts(1)[0]["response"]


def test_every_flag_exists():
    options, config = built([])
    known = {*vars(options), *vars(config)}
    others = {"methods", "seeds", "config", "help", "help-all", "nproc_per_node", "config_file", "cpu"}
    others |= {"trl-tests", "vocabulary"}  # of scripts/trl_suite.py
    others |= {"no-steps", "processes"}  # of doctor
    others |= {"learning-rates", "tuning-seeds", "parallel", "list", "only", "without-signal"}  # of compare
    others |= {"array", "gres", "time", "wrap"}  # of sbatch
    others |= {"benchmarks", "max-tokens"}  # of evaluate
    others |= {"no-deps"}  # of pip
    others |= {"seconds"}  # of study
    others |= {"cases"}  # of recipes/gpu_engines/prove.py
    for flag in set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", PAGE)) - others:
        assert flag in known, flag


def test_the_causes_are_the_ones_that_are_told():
    section = PAGE.split("### When nothing is learnt")[1].split("\n## ")[0]
    causes = re.findall(r"^\| ((?:every|all).*?) \|", section, re.MULTILINE)
    lines = [
        {"signal_groups": 0.0, "reward": 0.0, "truncated": 1.0},
        {"signal_groups": 0.0, "reward": 0.0},
        {"signal_groups": 0.0, "reward": 1.0},
        {"signal_groups": 0.0, "reward": 0.3, "reward_std": 0.0, "rewards/mine/mean": 0.3},
        {"signal_groups": 0.0, "reward": 0.5},
    ]
    assert len(causes) == len(lines)
    for cause, line in zip(causes, lines, strict=True):
        assert cause.replace(" R", f" {line['reward']}") in no_signal(line)
