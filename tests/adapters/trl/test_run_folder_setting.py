"""`DeltaTrainerConfig(run_folder=True)`: all that a script needs for a run folder."""

import json
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from delta_rlvr.adapters.metrics import MAIN_METRICS, PREFIX
from delta_rlvr.adapters.trl import interrupts
from delta_rlvr.adapters.trl.recorded import _contents, _write_page
from delta_rlvr.adapters.trl.run_folder import _NAMES
from delta_rlvr.credit import stream
from delta_rlvr.credit.diagnostics import diagnose
from delta_rlvr.report.comparison import comparison
from delta_rlvr.report.dynamics import panels
from delta_rlvr.report.groups import group_runs
from delta_rlvr.rewards import FormatReward, WeightedReward
from delta_rlvr.runs import RunFolderError, read_run
from real_generation import build_real, letters
from report_pages import unpacked
from rlvr_graders import MathReward

PAGE = Path(__file__).parents[3] / "docs" / "run_schema.md"
DUE = {"run_folder": True, "save_strategy": "steps", "save_steps": 2, "max_steps": 4, "logging_steps": 1}


def test_a_script_gets_the_whole_folder(tmp_path, capsys, monkeypatch):
    trainer = build_real(output_dir=str(tmp_path), rollouts_every=2, rollout_groups=1, **DUE)
    trainer.train()
    run = read_run(tmp_path)
    assert run.info["status"] == "finished"
    assert run.info["steps"] == run.info["steps_planned"] == 4
    assert (run.info["engine"], run.info["method"], run.info["seed"]) == ("trl", "delta", 3)
    assert run.info["settings"]["reward"] == "letters"
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    solved = [batch.record.summary()["weight_std"] for batch in trainer.batches]
    assert [line["weight_std"] for line in run.metrics] == solved
    assert {line["group"] for line in run.rollouts(2)} == {0}
    with np.load(tmp_path / "tokens.npz") as sums:
        tokens = sum(int((batch.record.side != 0).sum()) for batch in trainer.batches)
        assert sums["count_positive"].sum() + sums["count_negative"].sum() == tokens > 0
    # The weights after the last step, with a card that says what they are.
    saved = load_file(tmp_path / "model" / "model.safetensors")
    for name, value in trainer.model.state_dict().items():
        assert name not in saved or torch.equal(saved[name], value)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "4 steps of `delta`" in card
    assert "| reward | letters |" in card
    assert not (tmp_path / "README.md").exists()  # TRL's card, which says nothing of the method
    page = tmp_path / "report.html"
    assert f"report: {page}\n" in capsys.readouterr().out
    assert unpacked(page)["page"]["runs"][0]["info"]["status"] == "finished"
    monkeypatch.setitem(sys.modules, "delta_rlvr.report", None)  # as where scipy is not installed
    _write_page(tmp_path)
    assert capsys.readouterr().out.endswith(f"then `delta-rlvr report {tmp_path}`\n")
    with pytest.raises(RunFolderError, match="holds a run already"):
        build_real(output_dir=str(tmp_path), **DUE).train()


@pytest.mark.parametrize("every", [1, 2])
def test_trackers_get_six_numbers_or_all_and_the_folder_gets_all(tmp_path, every):
    """Whoever logs every second step gets the means of two, the folder too."""
    given = DUE | {"rollouts_every": 1, "logging_steps": every}
    tracked = []
    for name, settings in (("six", {}), ("all", {"all_credit_metrics": True})):
        trainer = build_real(output_dir=str(tmp_path / name), **settings, **given)
        trainer.train()
        lines = [line for line in trainer.state.log_history if "loss" in line]
        tracked.append([{key: line[key] for key in line if key.startswith(PREFIX)} for line in lines])
    some, every_one = tracked
    assert set().union(*some) == {f"{PREFIX}{name}" for name in MAIN_METRICS}
    assert len(every_one[0]) > 30
    for few, many in zip(some, every_one, strict=True):
        assert few == {key: many[key] for key in few}
    folders = [
        [
            {key: value for key, value in line.items() if not key.startswith(("seconds_", "time"))}
            for line in read_run(tmp_path / name).metrics
        ]
        for name in ("six", "all")
    ]
    assert folders[0] == folders[1]
    for line, logged in zip(folders[0], every_one, strict=True):
        for key, value in logged.items():
            assert line[key.removeprefix(PREFIX)] == value


def test_the_seconds_of_a_solve_leave_out_a_close_look(tmp_path, monkeypatch):
    diagnosed = []

    def slow(*given):
        diagnosed.append(time.sleep(1))
        return diagnose(*given)

    monkeypatch.setattr(stream, "diagnostics", slow)
    build_real(output_dir=str(tmp_path), rollouts_every=1, **DUE | {"max_steps": 1}).train()
    (line,) = read_run(tmp_path).metrics
    assert diagnosed
    assert line["seconds_credit"] < 1 < line["seconds_step"]


def test_it_resumes_in_the_same_folder(tmp_path):
    def stop_at_three(trainer):
        def stop(batch):
            if batch.step == 3:
                raise KeyboardInterrupt

        trainer.observers.append(stop)
        return trainer

    whole = build_real(output_dir=str(tmp_path / "whole"), **DUE)
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        stop_at_three(build_real(output_dir=str(tmp_path / "run"), **DUE)).train()
    assert read_run(tmp_path / "run").info["status"] == "interrupted"
    (tmp_path / "run" / "checkpoint-3").mkdir()  # torn: nothing in it
    build_real(output_dir=str(tmp_path / "run"), **DUE).train(resume_from_checkpoint=True)
    expected, resumed = read_run(tmp_path / "whole"), read_run(tmp_path / "run")
    assert resumed.info["status"] == "finished"
    assert resumed.info["resumed"][0]["step"] == 2
    assert len({line["loss"] for line in expected.metrics}) == 4
    assert [line["loss"] for line in resumed.metrics] == [line["loss"] for line in expected.metrics]
    weights = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "run")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_waits_for_the_end_of_the_batch_and_is_no_loss(tmp_path, capsys, number):
    """Two steps share a rollout batch; the signal comes while the second batch is made."""
    given = DUE | {"save_steps": 100, "steps_per_generation": 4, "gradient_accumulation_steps": 2, "max_steps": 6}
    build_real(output_dir=str(tmp_path / "whole"), **given).train()
    trainer = build_real(output_dir=str(tmp_path / "run"), **given)
    trainer.observers.append(lambda batch: signal.raise_signal(number) if batch.step == 3 else None)
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as stopped:
        trainer.train()
    assert stopped.value.args == (() if number == signal.SIGINT else (128 + number,))
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    said = capsys.readouterr().err
    assert "interrupted: checkpoint-4 is kept; trainer.train(resume_from_checkpoint=True) resumes\n" in said
    info = read_run(tmp_path / "run").info
    assert (info["status"], info["steps"]) == ("interrupted", 4)
    build_real(output_dir=str(tmp_path / "run"), **given).train(resume_from_checkpoint=True)
    expected, resumed = read_run(tmp_path / "whole"), read_run(tmp_path / "run")
    assert resumed.info["status"] == "finished"
    assert [line["loss"] for line in resumed.metrics] == [line["loss"] for line in expected.metrics]


def test_a_changed_reward_or_data_set_is_not_resumed_in_silence(tmp_path):
    given = DUE | {"output_dir": str(tmp_path), "max_steps": 2}
    build_real(**given).train()
    fewer = build_real(**given | {"max_steps": 3})
    fewer.train_dataset = fewer.train_dataset.select(range(16))
    with pytest.raises(RunFolderError, match=r"`train_dataset` has other rows \(32, now 16\) since this run began"):
        fewer.train(resume_from_checkpoint=True)
    with_eval = read_run(tmp_path).info
    with_eval["settings"] |= {"eval_dataset_sha256": "of two rows", "eval_rows": 2}
    (tmp_path / "run.json").write_text(json.dumps(with_eval))
    more = build_real(**given | {"max_steps": 3})
    more.eval_dataset = more.train_dataset.select(range(3))
    with pytest.raises(RunFolderError, match=r"`eval_dataset` has other rows \(2, now 3\) since this run began"):
        more.train(resume_from_checkpoint=True)
    other = build_real(**given | {"max_steps": 3})
    other.reward_funcs = [nothing_right]
    words = r"the code of `reward` has changed .* anyway with `trainer\.train\(\.\.\., accept_changed=True\)`"
    with pytest.raises(RunFolderError, match=words):
        other.train(resume_from_checkpoint=True)
    other.train(resume_from_checkpoint=True, accept_changed=True)
    assert "reward_sha256" in read_run(tmp_path).info["resumed"][0]["settings_changed"]


def test_changed_settings_of_a_reward_are_not_resumed_in_silence(tmp_path):
    def weighted(form, steps=2):
        reward = WeightedReward([(letters, 1), (FormatReward(), form)])
        return build_real(output_dir=str(tmp_path), reward=reward, **DUE | {"max_steps": steps})

    weighted(0.1).train()
    with pytest.raises(
        RunFolderError, match=r"the settings of its reward functions, or .* have changed since this run began"
    ):
        weighted(10, 3).train(resume_from_checkpoint=True)
    weighted(0.1, 3).train(resume_from_checkpoint=True)
    run_json = tmp_path / "run.json"
    info = json.loads(run_json.read_text())
    del info["settings"]["reward_settings_sha256"]  # as of an older version
    run_json.write_text(json.dumps(info))
    weighted(10, 4).train(resume_from_checkpoint=True)


def test_a_handler_of_the_script_is_left_alone(tmp_path):
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append("SIGTERM"))
    try:
        trainer = build_real(output_dir=str(tmp_path), **DUE)
        trainer.observers.append(lambda batch: signal.raise_signal(signal.SIGTERM) if batch.step == 2 else None)
        trainer.train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == ["SIGTERM"]
    assert read_run(tmp_path).info["status"] == "finished"


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(tmp_path, capsys):
    trainer = build_real(output_dir=str(tmp_path), **DUE)

    def killed(batch):
        if batch.step == 2:
            raise SystemExit

    trainer.observers.append(killed)
    with pytest.raises(SystemExit):
        trainer.train()
    info = read_run(tmp_path).info
    (tmp_path / "run.json").write_text(json.dumps(info | {"status": "running"}))  # as after kill -9
    with pytest.raises(RunFolderError, match="resume it, which starts it again"):
        build_real(output_dir=str(tmp_path), **DUE).train()
    build_real(output_dir=str(tmp_path), **DUE).train(resume_from_checkpoint=True)
    run = read_run(tmp_path)
    assert (run.info["status"], run.info["steps"]) == ("finished", 4)
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    assert "has no complete checkpoint yet: the run starts again" in capsys.readouterr().err


def test_without_a_run_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(ValueError, match="there is no run in"):
        build_real(output_dir=str(tmp_path), run_folder=True).train(resume_from_checkpoint=True)
    assert not (Path(tmp_path) / "run.json").exists()


@pytest.mark.parametrize(
    ("reward", "columns", "kept"),
    [
        (MathReward(column="gold"), {"gold": "7", "answer": "not asked"}, "7"),
        (WeightedReward([(FormatReward(), 0.1), (MathReward(column="gold"), 1)]), {"gold": 7}, "7"),
        (letters, {"solution": "8"}, "8"),
        (letters, {}, ""),
    ],
)
def test_the_reference_answer_is_kept_whatever_its_column(tmp_path, reward, columns, kept):
    given = {"output_dir": str(tmp_path), "run_folder": True, "max_steps": 1, "rollouts_every": 1}
    build_real(**given, reward=reward, columns=columns).train()
    assert {line["answer"] for line in read_run(tmp_path).rollouts(1)} == {kept}


def test_the_last_step_has_its_line_of_metrics(tmp_path):
    build_real(output_dir=str(tmp_path), run_folder=True, max_steps=3, logging_steps=2).train()
    run = read_run(tmp_path)
    assert [line["step"] for line in run.metrics] == [2, 3]


def test_an_interrupt_keeps_the_metrics_since_the_last_line(tmp_path):
    given = {"output_dir": str(tmp_path), "run_folder": True, "max_steps": 6, "logging_steps": 3}
    trainer = build_real(**given)
    trainer.observers.append(lambda batch: signal.raise_signal(signal.SIGINT) if batch.step == 2 else None)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    build_real(**given).train(resume_from_checkpoint=True)
    assert [line["step"] for line in read_run(tmp_path).metrics] == [2, 3, 6]


def test_an_interrupt_without_time_for_the_batch_keeps_them_too(tmp_path, monkeypatch):
    """The line of step 2 has nothing of the batch that is let go."""
    monkeypatch.setattr(interrupts, "_ECHO", -1.0)  # a second signal is none of the first
    given = {"run_folder": True, "max_steps": 6}
    build_real(**given, output_dir=str(tmp_path / "whole"), logging_steps=2).train()
    trainer = build_real(**given, output_dir=str(tmp_path / "run"), logging_steps=3)

    def interrupted(batch):
        if batch.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    trainer.observers.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    whole, cut = ([*read_run(tmp_path / name).metrics] for name in ("whole", "run"))
    assert [line["step"] for line in cut] == [2]
    later = {"grad_norm", "learning_rate", "note"}
    for name in whole[0].keys() - later:
        if not name.startswith(("seconds_", "time")):
            assert cut[0][name] == whole[0][name], name
    build_real(**given, output_dir=str(tmp_path / "run"), logging_steps=3).train(resume_from_checkpoint=True)
    assert [line["step"] for line in read_run(tmp_path / "run").metrics] == [2, 3, 6]


def test_steps_without_a_line_of_metrics_count(tmp_path):
    build_real(output_dir=str(tmp_path), run_folder=True, max_steps=3, logging_strategy="no").train()
    run = read_run(tmp_path)
    assert run.metrics == []
    assert run.info["steps"] == 3
    assert "3 steps of `delta`" in (tmp_path / "model" / "README.md").read_text()


def test_without_the_setting_there_is_no_folder(tmp_path):
    build_real(output_dir=str(tmp_path), max_steps=1).train()
    assert not list(tmp_path.iterdir())


def test_the_page_has_a_scripts_own_settings(tmp_path):
    trainer = build_real(output_dir=str(tmp_path), run_folder=True)
    assert [name for name in _contents(trainer).keys() - {"method_sha256"} if f"`{name}`" not in PAGE.read_text()] == []


def test_the_page_has_trls_names(tmp_path):
    page = PAGE.read_text()
    table = page.partition("### In a tracker")[2].partition("\n## ")[0]
    assert [theirs for ours, theirs in _NAMES.items() if theirs != ours and f"`{theirs}`" not in table] == []
    trainer = build_real(output_dir=str(tmp_path), **DUE)
    trainer.train()
    for line in (one for one in trainer.state.log_history if "loss" in one):
        assert line["credit/signal_groups"] == pytest.approx(1 - line["frac_reward_zero_std"])


@pytest.mark.parametrize("folder", [True, False])
def test_a_script_is_told_why_nothing_is_learnt(tmp_path, folder):
    """It was told that "the problems are too easy or too hard for the policy", where every response was cut."""
    trainer = build_real(output_dir=str(tmp_path), **DUE | {"run_folder": folder, "max_completion_length": 2})
    trainer.reward_funcs, trainer.reward_func_names = [nothing_right], ["nothing_right"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    told = [str(one.message) for one in caught]
    cause = "every response was cut at the length limit before it gave an answer: raise max_completion_length"
    assert [one for one in told if "no learning signal" in one] == [f"step 1: no learning signal: {cause}"]
    assert not any("too easy" in one for one in told)


def nothing_right(completions, **_):
    return [0.0] * len(completions)


def test_scores_of_trls_own_evaluation_are_kept(tmp_path):
    given = {"eval_steps": 2, "per_device_eval_batch_size": 4, "eval_on_start": True}
    trainer = build_real(output_dir=str(tmp_path), **DUE, **given)
    trainer.eval_dataset, trainer.args.eval_strategy = trainer.train_dataset.select(range(2)), "steps"
    trainer.train()
    logged = [line for line in trainer.state.log_history if "eval_reward" in line]
    assert [line["step"] for line in logged] == [0, 2, 4]
    run = read_run(tmp_path)
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    assert all("loss" in line for line in run.metrics)
    scores = {line["step"]: line["eval_reward"] for line in run.metrics if "eval_reward" in line}
    assert scores == {line["step"]: line["eval_reward"] for line in logged[1:]}
    assert run.info["settings"]["eval_rows"] == 2
    assert run.info["settings"]["eval_dataset_sha256"] != run.info["settings"]["train_dataset_sha256"]
    final = run.info["final"]
    assert final["before"]["accuracy"] == logged[0]["eval_reward"]
    assert final["after"] == {
        "accuracy": logged[2]["eval_reward"], "own_reward": True, "metric": "eval_reward", "step": 4
    }  # fmt: skip
    compared = comparison([run], group_runs([run]))
    assert compared["runs"][0]["after"]["accuracy"] == logged[2]["eval_reward"]
    assert compared["reward_steps"] is None  # not the mean reward over training
    assert "TRL eval_reward" in compared["verdict"]
    assert "on the eval_dataset (step 4)" in compared["verdict"]
    assert "held-out" not in compared["verdict"]
    assert "TRL's eval_reward on the eval_dataset: " in (tmp_path / "model" / "README.md").read_text()
    assert "TRL eval_reward" in {panel["title"] for panel in panels([run])}
