"""The run folder's writer: created once, resumed without a step twice, never mixed with another run."""

import gzip
import json

import numpy as np
import pytest

from delta_rlvr.runs import RunDescription, RunFolderError, RunWriter, TokenSums, read_run
from delta_rlvr.runs.layout import round_significant, shown_text


def describe(**changes):
    values = {"engine": "minimal", "method": "delta", "seed": 3, "model": "m", "task": "t", "steps_planned": 6}
    return RunDescription(**{**values, **changes})


def response(tokens=("1", "+", "2"), **changes):
    return {"group": 0, "index": 0, "prompt": "p", "reward": 1.0, "advantage": 0.5, "tokens": list(tokens), **changes}


def test_what_is_written_is_read(tmp_path):
    with RunWriter.create(tmp_path / "run", describe(rule={"k": 1})) as writer:
        writer.log({"step": 1, "reward": np.float32(0.25), "note": None})
        writer.write_rollouts(1, [response(weight=np.array([1.0, 0.9, 1.123456789]), decisive=[True, False, True])])
        writer.tokens.add([5, 7, 5], [1.0, 0.9, 1.2], 1)
        writer.save_tokens(text_of=lambda ids: [f"<{i}>" for i in ids])
    run = read_run(tmp_path / "run")
    assert run.problems == []
    assert run.info["status"] == "finished"
    assert run.info["steps"] == 1
    assert run.info["rule"] == {"k": 1}
    assert run.metrics == [{"step": 1, "reward": 0.25, "note": None}]
    (read,) = run.rollouts(1)
    assert read["weight"] == [1.0, 0.9, 1.1235]  # five significant digits
    assert read["decisive"] == [1, 0, 1]
    assert read["response"] == "1+2"
    assert run.tokens.ids.tolist() == [5, 7]
    assert run.tokens.text([7, 5]) == ["<7>", "<5>"]


def test_each_metrics_line_is_on_disk_when_log_returns(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    writer.log({"step": 1, "reward": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "reward": 0.5}


def test_values_that_are_not_finite_become_null_with_a_note(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    writer.log({"step": 1, "loss": float("nan"), "grad_norm": float("inf"), "note": "odd"})
    (line,) = read_run(tmp_path).metrics
    assert line["loss"] is None
    assert line["note"] == "odd; not finite: loss = nan, grad_norm = inf"


@pytest.mark.parametrize("part", ["run.json", "metrics.jsonl", "tokens.npz"])
def test_create_refuses_a_folder_with_a_part_of_a_run(tmp_path, part):
    (tmp_path / part).write_text("{}")
    with pytest.raises(RunFolderError, match=rf"holds a run already \({part}\)"):
        RunWriter.create(tmp_path, describe())


def test_a_run_without_a_checkpoint_is_not_to_be_resumed(tmp_path):
    """A script was sent to `resume_from_checkpoint`, which sent it back."""
    with RunWriter.create(tmp_path, describe()) as writer:
        writer.log({"step": 1})
    with pytest.raises(RunFolderError, match="it has no checkpoint yet: resume it, which starts it again"):
        RunWriter.create(tmp_path, describe())
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(RunFolderError, match=": resume it, give another folder, or delete it"):
        RunWriter.create(tmp_path, describe())


def test_a_folder_in_which_no_step_ran_may_be_used_again(tmp_path):
    """Unless its run is live, as far as anyone can tell, or has a checkpoint."""
    for _ in range(2):
        with pytest.raises(KeyError), RunWriter.create(tmp_path / "run", describe()):
            raise KeyError("before the first step")
    (tmp_path / "run" / "checkpoint-2").mkdir()
    RunWriter.create(tmp_path / "live", describe())
    for name in ("run", "live"):
        with pytest.raises(RunFolderError, match="holds a run already"):
            RunWriter.create(tmp_path / name, describe())


def test_create_accepts_a_folder_with_foreign_files(tmp_path):
    (tmp_path / "log.txt").write_text("hello")
    RunWriter.create(tmp_path, describe()).finish()
    assert read_run(tmp_path).info["status"] == "finished"


@pytest.mark.parametrize("change", [{"method": "dapo"}, {"seed": 4}, {"model": "other"}, {"rule": {"k": 2}}])
def test_resume_refuses_another_run(tmp_path, change):
    RunWriter.create(tmp_path, describe()).interrupt()
    with pytest.raises(RunFolderError, match=f"holds another run \\({next(iter(change))} "):
        RunWriter.resume(tmp_path, describe(**change), 0)


def test_resume_names_another_method_and_not_its_settings(tmp_path):
    RunWriter.create(tmp_path, describe(method="dapo", rule=None)).interrupt()
    with pytest.raises(RunFolderError, match=r"holds another run \(method 'dapo' is now 'delta'\): resume"):
        RunWriter.resume(tmp_path, describe(method="delta", rule={"k": 1, "low": 0.8}), 0)
    RunWriter.create(tmp_path / "same", describe(rule={"k": 1, "low": 0.8})).interrupt()
    with pytest.raises(RunFolderError, match=r"holds another run \(rule low 0\.8 is now 0\.5\): resume"):
        RunWriter.resume(tmp_path / "same", describe(rule={"k": 1, "low": 0.5}), 0)


def test_a_chat_is_shown_line_by_line():
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1 and 2."}]
    assert shown_text(chat) == "system: Be brief.\nuser: Add 1 and 2."
    assert shown_text("Add 1 and 2.") == "Add 1 and 2."


def test_resume_needs_a_run(tmp_path):
    with pytest.raises(RunFolderError, match=r"no run\.json"):
        RunWriter.resume(tmp_path, describe(), 0)


def test_resume_drops_what_came_after_the_checkpoint(tmp_path):
    writer = RunWriter.create(tmp_path, describe(settings={"lr": 1e-6, "batch": 8}))
    for step in (1, 2, 3, 4):
        writer.log({"step": step, "reward": step / 10})
        writer.write_rollouts(step, [response()])
        writer.tokens.add([1], [1.0], 1)
        if step == 2:
            writer.save_tokens(step, text_of=lambda ids: ["a"] * len(ids))
    writer.save_tokens()
    writer.update(final={"before": {"accuracy": 0.1}, "after": {"accuracy": 0.2}})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "rew')  # the crash
    assert TokenSums.load(tmp_path / "tokens.npz").count_positive.tolist() == [0, 4]

    writer = RunWriter.resume(tmp_path, describe(settings={"lr": 2e-6, "batch": 8}), 2)
    assert writer.tokens.count_positive.tolist() == [0, 2]
    writer.log({"step": 3, "reward": 0.9})
    writer.finish()
    run = read_run(tmp_path)
    assert [(line["step"], line["reward"]) for line in run.metrics] == [(1, 0.1), (2, 0.2), (3, 0.9)]
    assert run.rollout_steps == [1, 2]
    assert run.problems == []
    assert run.info["final"] == {"before": {"accuracy": 0.1}}  # what came after was of other steps
    (resumed,) = run.info["resumed"]
    assert resumed["settings_changed"] == {"lr": [1e-6, 2e-6]}
    assert resumed["metrics_lines_unreadable"] == 1


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "optim", "lora_rank"])
def test_what_a_checkpoint_brings_back_cannot_be_changed(tmp_path, name):
    writer = RunWriter.create(tmp_path, describe(settings={name: 1}))
    writer.log({"step": 1})
    before = (tmp_path / "run.json").read_text()
    with pytest.raises(
        RunFolderError, match=f"`{name}` was 1 and is now 2, but a resumed run goes on with the optimizer"
    ):
        RunWriter.resume(tmp_path, describe(settings={name: 2}), 1, accept_changed=True)
    assert (tmp_path / "run.json").read_text() == before
    RunWriter.resume(tmp_path, describe(settings={name: 2}), 0)  # from the start


def test_resume_without_the_checkpoints_sums_says_so(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    writer.log({"step": 1})
    with pytest.warns(UserWarning, match=r"checkpoint-1.tokens\.npz is missing or damaged"):
        RunWriter.resume(tmp_path, describe(), 1).finish()
    assert "start at step 1" in read_run(tmp_path).info["resumed"][0]["tokens"]


def test_steps_are_written_once_and_in_order(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    writer.log({"step": 2})
    with pytest.raises(ValueError, match="step 2 after step 2"):
        writer.log({"step": 2})
    with pytest.raises(ValueError, match="integer step"):
        writer.log({"reward": 1.0})


def test_arrays_that_do_not_fit_the_tokens_are_refused(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    with pytest.raises(ValueError, match="response 1: margin has 2 entries for 3 tokens"):
        writer.write_rollouts(1, [response(), response(margin=[0.1, 0.2])])
    with pytest.raises(ValueError, match=r"other_weights\['dapo'\] has 1 entries"):
        writer.write_rollouts(1, [response(other_weights={"dapo": [1]})])
    assert read_run(tmp_path).rollout_steps == []  # nothing half-written
    assert not list((tmp_path).glob("rollouts/*"))


def test_equal_rollouts_give_equal_files(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    first = writer.write_rollouts(1, [response()]).read_bytes()
    assert writer.write_rollouts(1, [response()]).read_bytes() == first
    assert gzip.decompress(first).endswith(b"\n")


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (ValueError("no signal"), "failed")]
)
def test_leaving_by_an_exception_is_recorded(tmp_path, error, status):
    with pytest.raises(type(error)), RunWriter.create(tmp_path, describe()):
        raise error
    info = read_run(tmp_path).info
    assert info["status"] == status
    assert info.get("error") == (None if status == "interrupted" else "ValueError: no signal")


def test_description_is_validated():
    with pytest.raises(ValueError, match="method must be a non-empty text"):
        describe(method="")
    with pytest.raises(ValueError, match="seed must be an integer"):
        describe(seed=None)


def test_rounding_agrees_with_formatting():
    draw = np.random.default_rng(0)
    values = np.concatenate([draw.normal(size=500) * 10.0 ** draw.integers(-15, 15, 500), [0.0, 1.0, -99999.5, 123456]])
    assert round_significant(values) == [float(f"{value:.5g}") for value in values]
    assert round_significant([None, float("nan"), float("inf"), 2]) == [None, None, None, 2.0]
    assert round_significant([True, False, 3]) == [1, 0, 3]


def test_half_a_surrogate_pair_does_not_stop_a_run(tmp_path):
    writer = RunWriter.create(tmp_path, describe())
    writer.write_rollouts(1, [response(tokens=["a\ud800", "b"])])
    assert read_run(tmp_path).rollouts(1)[0]["tokens"] == ["a?", "b"]
