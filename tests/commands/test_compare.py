"""`delta-rlvr compare`: terminal, stored file and page say the same; a comparison that is interrupted goes on."""

import io
import json
import os
import signal
import statistics

import pytest
from rich.console import Console

from command_line import metrics, run, run_info, start
from delta_rlvr.cli import main
from delta_rlvr.commands.compare import show
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.training import compare
from delta_rlvr.training.compare import conclude
from report_pages import unpacked

OPTIONS = ["--per_device_train_batch_size", 8, "--num_generations", 4, "--steps", 2, "--save_steps", 2]
OPTIONS += ["--eval_problems", 6, "--eval_samples", 2, "--rollouts_every", 0]


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (["--seed", "2"], "2 methods x 3 seeds (2, 3, 4): 6 runs of 80 steps"),
        (["--seed", "7", "--seeds", "1", "--steps", "1"], "2 methods x 1 seed (7): 2 runs of 1 step"),
        (["--seeds", "20"], "2 methods x 20 seeds (42 to 61): 40 runs of 80 steps"),
        (["--num_train_epochs", "1", "--train_problems", "64"], "2 methods x 3 seeds (42, 43, 44): 6 runs"),
    ],
)
def test_the_first_line_says_which_runs_there_will_be(options, plan, tmp_path, capsys, monkeypatch):
    """`--seed 2`, meant as two seeds, started three from seed 2 without a word."""
    monkeypatch.setattr(compare, "_one", lambda *_: None)
    monkeypatch.setattr(compare, "conclude", lambda *_: None)
    assert main(["compare", "--methods", "dapo,delta", "--output", str(tmp_path), *options]) == 0
    first, second, *_ = [*capsys.readouterr().out.splitlines(), ""]
    assert first == plan
    # Whatever comes out, the end can say no more than this of so few seeds: it is said before they are run.
    assert second.startswith(f"With {plan.split(' x ')[1].split(' (')[0]} and 1 comparison") == (
        "20 seeds" not in plan
    )


@pytest.mark.parametrize("with_what", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_and_started_again(tmp_path, with_what):
    folder = tmp_path / "compare"
    seeds = 2 if with_what == signal.SIGKILL else 1
    given = ["compare", "--methods", "dapo,delta", "--seeds", seeds, "--output", folder, *OPTIONS]
    command = start(*given, log=tmp_path / "first.txt")
    second = folder / "delta-seed42"
    if with_what == signal.SIGKILL:
        command.kill_when(lambda: len(metrics(second)) >= 1)
        assert run_info(second)["status"] == "running"
    else:
        while not metrics(second):
            assert command.process.is_alive(), command.output
        os.kill(command.process.pid, signal.SIGINT)
        assert command.finish() == 130
        assert "interrupted; in run 2 of 2; the same command keeps finished runs" in command.output
        assert run_info(second)["status"] == "interrupted"
    first = folder / "dapo-seed42"
    assert run_info(first)["status"] == "finished"
    kept = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    assert not (folder / "comparison.json").exists()

    told = run(*given, log=tmp_path / "second.txt")
    assert f"run 1 of {2 * seeds}: {first} is finished: kept" in told
    assert "seed 42, about" not in told  # a kept run says nothing of the time
    if seeds == 2:
        assert "run 3 of 4: dapo, seed 43, about 0:" in told
        assert " left in all" in told
    # One score of the start that all runs share; the second run had taken it over before it was stopped.
    everything = command.output + told
    assert everything.count("held-out accuracy before training, 6 problems") == 1
    assert everything.count("taken from dapo-seed42, which started from the same weights") >= 2 * seeds - 1
    starts = [
        (folder / f"{m}-seed42" / "evaluations" / "heldout_before.json").read_bytes()
        for m in ("dapo", "delta")
    ]
    assert starts[0] == starts[1]
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == kept
    assert "cannot come below p = " in told
    stored = json.loads((folder / "comparison.json").read_text())
    assert [row["method"] for row in stored["rows"]] == ["dapo", "delta"]
    for method in ("dapo", "delta"):
        finals = [
            run_info(folder / f"{method}-seed{42 + s}")["final"]["after"]["accuracy"] for s in range(seeds)
        ]
        assert stored["scores"][method] == finals
        row = next(row for row in stored["rows"] if row["method"] == method)
        assert row["mean"] == pytest.approx(statistics.fmean(finals))
        assert f" {100 * row['mean']:.1f} " in told
        assert len(metrics(folder / f"{method}-seed42")) == 2
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")[:2000]


def test_the_table_fits_a_terminal_of_80_columns(tmp_path):
    """The name of a rule of one's own was cut to `my_rules.py:Un...`, and intervals broke over two lines."""
    scores = {"dapo": [0.5, 0.4], "my_rules.py-Unlikely": [0.4, 0.6]}
    finished_runs(tmp_path, scores)
    console = Console(record=True, width=80, file=io.StringIO())
    show(conclude(tmp_path, ["dapo", "my_rules.py:Unlikely"], range(2)), console)
    lines = console.export_text().splitlines()
    row = next(line for line in lines if "my_rules.py:Unlikely │" in line)
    assert "50.0 ± 14.1" in row
    assert "+5.0 (-10.0, +20.0)" in row
    assert "as an interval needs 5 seeds" in " ".join(" ".join(lines).split())
    assert max(len(line) for line in lines if not line.startswith("report: ")) <= 80  # a path is never broken


def test_a_long_name_breaks_after_its_file(tmp_path):
    """`stock_rules.py:La` stood in one line, `teTokens` in the next."""
    finished_runs(tmp_path, {"dapo": [0.5, 0.4], "stock_rules.py-LateTokens": [0.4, 0.6]})
    texts = []
    for width in (80, 200):
        console = Console(record=True, width=width, file=io.StringIO())
        show(conclude(tmp_path, ["dapo", "stock_rules.py:LateTokens"], range(2)), console)
        texts.append(console.export_text())
    assert [
        [line.split()[1] for line in text.splitlines() if line.startswith("│ ") and "dapo" not in line]
        for text in texts
    ] == [["stock_rules.py:", "LateTokens"], ["stock_rules.py:LateTokens"]]


def finished_runs(folder, scores):
    """Run folders as `compare` leaves them, with given final scores."""
    for method, values in scores.items():
        for seed, accuracy in enumerate(values):
            description = RunDescription(
                "trl", method, seed, "builtin", "sums", {"output_dir": f"{method}{seed}"}
            )
            with RunWriter.create(folder / f"{method}-seed{seed}", description) as writer:
                spread = {"low": accuracy - 0.03, "high": accuracy + 0.03, "problems": 200, "samples": 4}
                writer.update(final={"after": {"accuracy": accuracy, **spread}})


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        # Every seed gains 5 or 6 points, and seeds lie far apart: sign flips see 2 / 64, ranks see nothing.
        (
            {"dapo": [0.40, 0.45, 0.50, 0.55, 0.60, 0.65], "delta": [0.45, 0.51, 0.55, 0.61, 0.65, 0.71]},
            "delta differs from dapo by +5.5 points",
        ),
        ({"dapo": [0.5], "delta": [0.9]}, "cannot come below p = 1,"),
        ({"dapo": [0.5] * 6, "delta": [0.51, 0.49] * 3, "grpo": [0.5, 0.51] * 3}, "take 7 seeds or more"),
    ],
)
def test_terminal_file_and_page_give_one_test_and_one_conclusion(tmp_path, scores, words):
    finished_runs(tmp_path, scores)
    console = Console(record=True, width=400, file=io.StringIO())
    show(conclude(tmp_path, list(scores), range(len(scores["dapo"]))), console)
    said = console.export_text()
    stored = json.loads((tmp_path / "comparison.json").read_text())
    page = unpacked(tmp_path / "report.html")["page"]
    sentence = page["comparison"]["sentence"]
    assert words in sentence
    assert stored["sentence"] == sentence
    assert page["sections"][0] == "comparison"  # the page opens on it
    assert sentence in said.replace("\n", " ")
    assert [row["method"] for row in stored["rows"]] == list(scores)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if "│" in line]
    shown = {row[0]: row[2:] for row in rows}
    assert len(page["comparison"]["tests"]) == len(scores) - 1
    for test in page["comparison"]["tests"]:
        method, _, baseline = test["pair"].partition(" against ")
        assert baseline == "dapo"
        assert shown[method] == [test["difference"], test["p"], test["p_adjusted"]]
        assert test["test"] in said
    assert "%" not in "".join(test["difference"] for test in page["comparison"]["tests"])
