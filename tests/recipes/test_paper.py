"""Every file of recipes/paper says what make.py says, holds the paper's numbers, and builds the trainer that it describes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from command_line import built
from delta_rlvr.adapters.trl import DeltaTrainer
from delta_rlvr.credit import Delta
from delta_rlvr.objectives import all_methods, get_method
from delta_rlvr.tasks.sources.schemas import SCHEMAS
from delta_rlvr.tasks.templates import TEMPLATES
from delta_rlvr.user_code import module_at
from replayed_training import make_model, tokenizer

PAPER = Path(__file__).parents[2] / "recipes" / "paper"
FILES = sorted(PAPER.glob("*-*/*.yaml"))
PROCESSES = 8

# What a test machine cannot do: everything else comes from the file.
HERE = ["--use_cpu", "true", "--bf16", "false", "--use_vllm", "false", "--save_strategy", "no"]


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


def test_files_are_up_to_date():
    done = subprocess.run([sys.executable, PAPER / "make.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_row_of_the_paper_has_a_file():
    names = {name_of(path) for path in FILES}
    assert len(names) == 3 * 5 + 5 + 11 + 5
    for policy in ("qwen3-8b-deepmath", "qwen3-14b-deepmath", "olmo3-7b-deepmath", "qwen3-8b-eurus2-code"):
        assert {f"{policy}/{method}" for method in ("dapo", "dapo-ft", "sapo", "fipo", "delta")} <= names
    # Table 11's files are named after what they change.
    others = ("beyond", "Table 11")
    ablations = {name for name, row in all_methods().items() if name.startswith("delta-") and row.paper not in others}
    assert {f"qwen3-8b-deepmath/{name}" for name in ablations} <= names


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_builds_its_trainer(path, tmp_path):
    raw = yaml.safe_load(path.read_text())
    options, config = built(["--config", str(path), *HERE, "--output", str(tmp_path)])
    row = next(row for row in module_at(str(PAPER / "make.py")).rows() if row.path == path)
    trainer = DeltaTrainer(
        model=make_model(),
        reward_funcs=lambda prompts, **_: [0.0] * len(prompts),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1 + 1"] * 128}),
        processing_class=tokenizer(),
    )

    # Table 5, worked out: 32 prompts x 16 responses an update, 128 x 16 a rollout batch, hence four updates.
    responses = config.per_device_train_batch_size * PROCESSES
    assert trainer.num_generations == 16
    assert responses * config.gradient_accumulation_steps == 32 * 16
    assert responses * config.steps_per_generation == 128 * 16
    assert config.num_iterations == 1
    assert (trainer.max_completion_length, trainer.temperature, trainer.top_p) == (20480, 1.0, 1.0)
    assert (config.learning_rate, config.weight_decay, config.max_grad_norm, config.beta) == (1e-6, 0.1, 1.0, 0.0)
    assert (trainer.epsilon_low, trainer.epsilon_high) == ((0.2, 0.28) if config.method != "sapo" else (0.2, 0.2))
    assert raw["vllm_max_model_length"] == 2048 + 20480
    assert options.overlong_buffer is None
    if row.data == "deepmath":
        batches = 300 if "14B" in raw["model"] else 220
        assert config.max_steps == 4 * batches
    else:
        assert config.num_train_epochs == 2
        assert options.train_problems % 128 == 0
    assert raw["save_steps"] % 4 == 0  # between rollout batches, so that resuming is exact

    # The method: the named one, with the row's own changes and no other.
    named = get_method(row.method)
    assert trainer.method.rule == replace(named.rule, **dict(row.settings))
    assert (trainer.method.surrogate, trainer.method.aggregation) == (named.surrogate, named.aggregation)
    if isinstance(named.rule, Delta):
        told = {"lambda_min": 0.8, "lambda_max": 1.2, "refinements": 1} | dict(row.settings)
        if row.method == "delta-no-refinement":
            told["refinements"] = 0
        assert {name: getattr(trainer.method.rule, name) for name in told} == told
    if row.method == "fipo":
        assert config.delta == named.surrogate.dual == 10.0
    if config.method == "sapo":
        assert (config.sapo_temperature_pos, config.sapo_temperature_neg) == (1.0, 1.05)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_files_task_can_be_read(path):
    """Without the hub: the schema and the template that it names exist."""
    raw = yaml.safe_load(path.read_text())
    settings = dict(pair.split("=") for pair in raw["task"].partition("?")[2].split("&"))
    assert settings["schema"] in SCHEMAS
    assert raw.get("template", "math") in TEMPLATES
    assert raw["output"].endswith(f"{path.parent.name}-{path.stem}")


@pytest.mark.parametrize("name", ["fsdp2", "zero3"])
def test_accelerate_reads_the_launch_files(name):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(PAPER / "accelerate" / f"{name}.yaml"))
    assert config.num_processes == PROCESSES
    assert config.mixed_precision == "bf16"
    assert config.distributed_type.value == {"fsdp2": "FSDP", "zero3": "DEEPSPEED"}[name]
