"""recipes/gpu_engines: what it asks of a result, its table, and its cases as far as a machine without a GPU runs them."""

import json
from pathlib import Path

import pytest

from delta_rlvr.user_code import module_at

SCRIPT = Path(__file__).parents[2] / "recipes" / "gpu_engines" / "prove.py"


@pytest.fixture(scope="module")
def prove():
    return vars(module_at(str(SCRIPT)))


def result(losses, **more):
    steps = [
        {"step": n, "loss": loss, "grad_norm": 1.0, "seconds": 2.0, "weight_mean": None} | more
        for n, loss in enumerate(losses, 1)
    ]
    return {"steps": steps, "memory_gib": 3.0, "alone": True}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, None),
        ({"weight_mean": 1.1}, "weights have mean one"),
        ({"weight_mean_in_loss": 0.9}, "mean one in the loss"),
        ({"grad_norm": float("nan")}, "finite"),
        ({"grad_norm": 0.0}, "something is learnt"),
        ({"solve_seconds": 0.02}, "solves under 10 ms"),
    ],
)
def test_what_a_case_must_show(prove, more, wrong):
    shown = result([0.1] * 4, **{"weight_mean": 1.0} | more)
    judged = prove["checks"]("verl-delta", shown, {}, 4, False)
    assert [name for name, held in judged.items() if not held] == ([wrong] if wrong else [])
    assert not prove["checks"]("verl-delta", shown, {}, 5, False)["steps 1 to 5"]
    # Beside other cases the seconds of a solve say little.
    assert all(
        prove["checks"](
            "verl-delta", result([0.1] * 4, solve_seconds=0.02, weight_mean=1.0) | {"alone": False}, {}, 4, False
        ).values()
    )


def test_a_loss_that_is_not_stocks(prove):
    stock, ours = result([0.1, 0.2]), result([0.1, 0.3])
    judged = prove["checks"]("trl-dapo", ours, {"trl-stock": stock}, 2, False)
    assert judged["loss of the first step is stock's"]
    assert prove["apart"](ours, stock) == pytest.approx([0, 0.1])
    ours["steps"][0]["loss"] = 0.11
    assert not prove["checks"]("trl-dapo", ours, {"trl-stock": stock}, 2, False)["loss of the first step is stock's"]


def run(prove, out, cases, steps):
    code = prove["main"]([str(out), "--cpu", "--steps", str(steps), "--limit", "900", "--cases", cases])
    return code, json.loads((out / "results.json").read_text())["cases"]


@pytest.mark.timeout(900)
def test_the_cases_of_trl_on_a_cpu(prove, tmp_path, capsys):
    code, cases = run(prove, tmp_path, "trl-stock,trl-dapo,trl-delta,trl-server,trl-resume", 2)
    assert code == 0, capsys.readouterr().out
    outcomes = {name: case["outcome"] for name, case in cases.items()}
    assert outcomes.pop("trl-server").startswith("not run: vLLM's server needs a GPU of its own")
    assert set(outcomes.values()) == {"passed"}
    assert cases["trl-resume"]["checks"]["losses are the uninterrupted run's"]
    assert "| trl-dapo | passed | 2 |" in (tmp_path / "results.md").read_text()
    capsys.readouterr()
    assert run(prove, tmp_path, "trl-stock", 2)[0] == 0
    assert "trl-stock: passed before, kept" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_cases_of_verl_on_a_cpu(prove, tmp_path, capsys):
    names = [name for name in prove["CASES"] if not name.startswith("trl")]
    code, cases = run(prove, tmp_path, ",".join(names), 4)
    assert code == 0, capsys.readouterr().out
    assert cases.pop("verl-lora")["outcome"].startswith("not run: the rollout that stands in for vLLM")
    assert {case["outcome"] for case in cases.values()} == {"passed"}
