"""`delta-rlvr compare`: terminal, stored file and page say the same; a comparison that is interrupted goes on."""

import io
import json
import os
import re
import shlex
import signal
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from command_line import metrics, run, run_info, start
from delta_rlvr.cli import main
from delta_rlvr.commands.compare import show
from delta_rlvr.evaluate import EvaluationResult
from delta_rlvr.evaluate.seeds import seed_table
from delta_rlvr.exit_codes import WorkFailed
from delta_rlvr.report import write_report
from delta_rlvr.runs import RunDescription, RunWriter, read_run
from delta_rlvr.runs.reader import runs_below
from delta_rlvr.score_units import POINTS, REWARD
from delta_rlvr.training import compare, plan
from delta_rlvr.training.compare import ComparedRuns, Further, conclude
from delta_rlvr.training.plan import Making, Plan, PlannedRun
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.request import RunRequest, run_settings
from delta_rlvr.training.tuning import TunedRate, tuned_sentence
from delta_rlvr.words import rate_text
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
    monkeypatch.setattr(compare.Making, "all", lambda *_: None)
    monkeypatch.setattr(compare, "conclude", lambda *_: None)
    assert main(["compare", "--methods", "dapo,delta", "--output", str(tmp_path), *options]) == 0
    first, second, *_ = [*capsys.readouterr().out.splitlines(), ""]
    assert first == plan
    # Whatever comes out, the end can say no more than this of so few seeds: it is said before they are run.
    assert second.startswith(f"With {plan.split(' x ')[1].split(' (')[0]} and 1 comparison") == ("20 seeds" not in plan)


def test_the_folder_of_a_run_is_not_for_a_comparison(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    assert main(["compare", "--methods", "dapo,delta", "--output", str(tmp_path)]) == 2
    assert "holds a run, and a comparison needs a folder of its own" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(("line", "name"), [("methods: dapo,delta", "methods"), ("seeds: 3", "seeds")])
def test_a_settings_file_has_no_options_of_compare(tmp_path, capsys, line, name):
    """ "--methods is required", where the file had them."""
    file = tmp_path / "c.yaml"
    file.write_text(f"{line}\n")
    assert main(["compare", "--config", str(file), "--output", str(tmp_path / "out")]) == 2
    assert f"{file}: {name} is given on the command line, as --{name}, and not in the file" in capsys.readouterr().err


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
        assert (
            "interrupted; in run 2 of 2 (delta, seed 42): checkpoint-2 is kept; the same command keeps finished runs"
            in command.output
        )
        assert run_info(second)["status"] == "interrupted"
    first = folder / "dapo-seed42"
    assert run_info(first)["status"] == "finished"
    kept = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    assert not (folder / "comparison.json").exists()

    told = run(*given, log=tmp_path / "second.txt")
    assert f"run 1 of {2 * seeds}: {first} is finished: kept" in told
    assert "seed 42, about" not in told  # a kept run says nothing of the time
    if seeds == 2:
        assert re.search(r"run 3 of 4: dapo, seed 43, about \d+:\d\d", told)
        assert " left in all" in told
    # One score of the start that all runs share; the second run had taken it over before it was stopped.
    everything = command.output + told
    assert everything.count("held-out accuracy before training, 6 problems") == 1
    assert everything.count("taken from dapo-seed42, which started from the same weights") >= 2 * seeds - 1
    starts = [(folder / f"{m}-seed42" / "evaluations" / "heldout_before.json").read_bytes() for m in ("dapo", "delta")]
    assert starts[0] == starts[1]
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == kept
    assert "cannot come below p = " in told
    stored = json.loads((folder / "comparison.json").read_text())
    assert [row["method"] for row in stored["rows"]] == ["dapo", "delta"]
    assert stored["rows"][1]["difference"] | {"low": None, "high": None} == stored["rows"][1]["difference"]
    for method in ("dapo", "delta"):
        finals = [run_info(folder / f"{method}-seed{42 + s}")["final"]["after"]["accuracy"] for s in range(seeds)]
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
    lines = shown(tmp_path, ["dapo", "my_rules.py:Unlikely"], 2, width=80).splitlines()
    row = next(line for line in lines if "my_rules.py:Unlikely │" in line)
    assert "50.0 ± 14.1" in row
    assert "+5.0 (-10.0 and +20.0)" in row
    assert "as an interval needs 5 seeds" in " ".join(" ".join(lines).split())
    assert max(len(line) for line in lines if not line.startswith("report: ")) <= 80  # a path is never broken


def test_a_long_name_breaks_after_its_file(tmp_path):
    """`stock_rules.py:La` stood in one line, `teTokens` in the next."""
    finished_runs(tmp_path, {"dapo": [0.5, 0.4], "stock_rules.py-LateTokens": [0.4, 0.6]})
    texts = [shown(tmp_path, ["dapo", "stock_rules.py:LateTokens"], 2, width) for width in (80, 200)]
    assert [
        [line.split()[1] for line in text.splitlines() if line.startswith("│ ") and "dapo" not in line]
        for text in texts
    ] == [["stock_rules.py:", "LateTokens"], ["stock_rules.py:LateTokens"]]


def shown(folder, methods, seeds, width):
    """What the terminal says of finished runs."""
    console = Console(record=True, width=width, file=io.StringIO())
    show(conclude(folder, methods, range(seeds)), console)
    return console.export_text()


def finished_runs(folder, scores, before=None, **settings):
    """Run folders as `compare` leaves them, with given final scores."""
    for method, values in scores.items():
        for seed, accuracy in enumerate(values):
            settings = {**settings, "output_dir": f"{method}{seed}"}
            description = RunDescription("trl", method, seed, "builtin", "sums", settings)
            with RunWriter.create(folder / f"{method}-seed{seed}", description) as writer:
                spread = {"low": accuracy - 0.03, "high": accuracy + 0.03, "problems": 200, "samples": 4}
                start = {} if before is None else {"before": {"accuracy": before, **spread}}
                writer.update(final={**start, "after": {"accuracy": accuracy, **spread}})


def test_pass_at_k_of_a_custom_reward_says_why_there_is_none(tmp_path):
    rows = [Further(method, 1e-4, 0.5, 0.4, "-", None, 0.2) for method in ("dapo", "delta")]
    table = seed_table({"dapo": {0: 0.5}, "delta": {0: 0.6}}, REWARD)
    beside = ComparedRuns(tmp_path, table, "", tmp_path, rows, 4).beside
    assert beside["caption"].endswith("; pass@4: none, as a custom reward is not right or wrong")
    right = replace(table, unit=POINTS)
    assert "none" not in ComparedRuns(tmp_path, right, "", tmp_path, rows, 4).beside["caption"]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        # Every seed gains 5 or 6 points, and seeds lie far apart: sign flips see 2 / 64, ranks see nothing.
        (
            {"dapo": [0.40, 0.45, 0.50, 0.55, 0.60, 0.65], "delta": [0.45, 0.51, 0.55, 0.61, 0.65, 0.71]},
            "delta is ahead of dapo by 5.5 points (",
        ),
        ({"dapo": [0.5], "delta": [0.9]}, "cannot come below p = 1,"),
        ({"dapo": [0.5] * 6, "delta": [0.51, 0.49] * 3, "grpo": [0.5, 0.51] * 3}, "6 seeds, about 12 needed for the"),
    ],
)
def test_terminal_file_and_page_give_one_test_and_one_conclusion(tmp_path, scores, words):
    finished_runs(tmp_path, scores)
    said = shown(tmp_path, list(scores), len(scores["dapo"]), width=400)
    stored = json.loads((tmp_path / "comparison.json").read_text())
    page = unpacked(tmp_path / "report.html")["page"]
    assert words in stored["sentence"]
    # It leads on the page, and is the first sentence elsewhere.
    assert stored["sentence"].startswith(page["lede"])
    assert stored["sentence"].endswith(page["comparison"]["sentence"])
    assert page["sections"][0] == "comparison"
    assert stored["sentence"] in said.replace("\n", " ")
    assert [row["method"] for row in stored["rows"]] == list(scores)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if "│" in line]
    cells = {row[0]: row[2:] for row in rows}
    assert len(page["comparison"]["tests"]) == len(scores) - 1
    for test in page["comparison"]["tests"]:
        method, _, baseline = test["pair"].partition(" against ")
        assert baseline == "dapo"
        assert cells[method] == [test["difference"], test["p"], test["p_adjusted"]]
        assert test["test"] in said
    assert "%" not in "".join(test["difference"] for test in page["comparison"]["tests"])


def test_methods_that_all_broke_lead_terminal_file_and_page(tmp_path):
    """delta was "behind dapo, p = 0.031" where a learning rate that nobody had tuned had broken both."""
    broken = {"dapo": [0.2, 0.18, 0.25, 0.14, 0.27, 0.16], "delta": [0.17, 0.14, 0.2, 0.12, 0.15, 0.1]}
    finished_runs(tmp_path, broken, before=0.331, learning_rate=1e-3)
    console = Console(record=True, width=400, file=io.StringIO())
    done = conclude(tmp_path, list(broken), range(6))
    show(done, console)
    page = unpacked(tmp_path / "report.html")["page"]
    lead = (
        "Every method ended below where it started (33.1 %): the learning rate is probably too high, so this compares how they "
        "break, not how they learn. Try `--learning-rates 1e-4,2e-4,5e-4`. delta is behind dapo by"
    )
    assert done.table.sentence.startswith(lead)
    assert page["lede"].startswith(lead)
    assert done.table.sentence in " ".join(console.export_text().split())
    untuned = "All at one learning rate (1e-3), not tuned: at each method's own best rate the order may differ."
    assert done.table.sentence.endswith(untuned)
    assert page["comparison"]["sentence"].endswith(untuned)


RATES = {1e-4: [0.5, 0.6], 2e-4: [0.7, 0.4], 4e-4: [0.2, 0.8]}


@pytest.mark.parametrize(
    ("scores", "rate", "edge"),
    [
        (RATES, 1e-4, "lowest"),  # 0.55 twice: the lower one
        (RATES | {2e-4: [0.7, 0.5]}, 2e-4, None),
        (RATES | {4e-4: [0.9, 0.8]}, 4e-4, "highest"),
    ],
)
def test_the_best_rate_and_the_edge_of_the_grid(scores, rate, edge):
    tuned = TunedRate("delta", scores)
    assert (tuned.rate, tuned.edge) == (rate, edge)
    words = tuned_sentence([tuned], [45, 46], "sampled held-out accuracy")
    assert (
        "the best of 1e-4, 2e-4, 4e-4 by sampled held-out accuracy on seeds 45 to 46: "
        f"delta {rate_text(rate)}." in words
    )
    assert words.endswith(f"The best rate of every method is the {edge} of the grid: widen it.") == bool(edge)


def test_grids_that_ended_too_soon_are_named_once():
    """The sentence was there once for each method, whatever the edge."""
    ends = [TunedRate(name, {1e-4: [low], 1e-3: [high]}) for name, low, high in (("a", 2, 1), ("b", 2, 1), ("c", 1, 2))]
    words = tuned_sentence(ends, [45], "sampled held-out accuracy")
    assert "The best rate of a and b is the lowest of the grid: widen it. The best rate of c is the highest of" in words
    assert tuned_sentence(ends[:2], [45], "accuracy").count("widen it") == 1


def test_every_method_at_its_own_rate(tmp_path):
    """Rates are chosen on a seed that no comparison has; terminal, file and page say so and show the greedy score too."""
    folder = tmp_path / "compare"
    given = ["compare", "--methods", "dapo,delta", "--seeds", 2, "--learning-rates", "1e-4,1e-2", "--output", folder]
    told = " ".join(run(*given, *OPTIONS, "--pass-at", 2, log=tmp_path / "log.txt").split())
    assert (
        "2 methods x 2 seeds (42, 43): 4 runs of 2 steps first, to choose learning rates: 2 x 2 learning rates x 1 seed: 4 runs"
        in told
    )
    assert "run 8 of 8: delta, seed 43" in told
    tuning = folder / "tuning"
    assert {path.name for path in tuning.iterdir()} == {
        f"{method}-lr{rate}-seed1042" for method in ("dapo", "delta") for rate in ("1e-4", "1e-2")
    }
    stored = json.loads((folder / "comparison.json").read_text())
    page = unpacked(folder / "report.html")["page"]
    for row in stored["further"]:
        method = row["method"]
        scores = {
            rate: run_info(tuning / f"{method}-lr{rate}-seed1042")["final"]["after"]["accuracy"]
            for rate in ("1e-4", "1e-2")
        }
        best = "1e-4" if scores["1e-4"] >= scores["1e-2"] else "1e-2"
        assert stored["tuning"][method]["scores"] == {rate: [score] for rate, score in scores.items()}
        assert stored["tuning"][method]["edge"] == {"1e-4": "lowest", "1e-2": "highest"}[best]
        infos = [run_info(folder / f"{method}-lr{best}-seed{seed}") for seed in (42, 43)]
        assert {info["settings"]["learning_rate"] for info in infos} == {float(best)} == {row["learning_rate"]}
        finals = [info["final"]["after"] for info in infos]
        assert row["greedy"] == pytest.approx(statistics.fmean(final["greedy"]["accuracy"] for final in finals))
        assert row["sampled"] == pytest.approx(statistics.fmean(final["accuracy"] for final in finals))
        assert finals[0]["greedy"]["samples"] == 1
        ends = [read_run(folder / f"{method}-lr{best}-seed{seed}").series("entropy")[1] for seed in (42, 43)]
        assert row["entropy"] == pytest.approx(statistics.fmean(value for end in ends for value in end))
        # pass@2 of two samples: one of them is right.
        passed = [
            any(scores)
            for seed in (42, 43)
            for scores in EvaluationResult.load(folder / f"{method}-lr{best}-seed{seed}/evaluations/heldout_after.json")
            .scores("heldout")
            .values()
        ]
        assert row["pass_at"] == pytest.approx(statistics.fmean(passed))
        shown = next(cells for cells in page["comparison"]["beside"]["rows"] if cells[0] == method)
        assert shown[1:6:2] == [best, f"{100 * row['greedy']:.1f}", f"{100 * row['pass_at']:.1f}"]
        assert f"{method} {best}" in page["comparison"]["sentence"]
    assert stored["tuned"] in told
    assert "Chosen on 1 seed: `--tuning-seeds 3` is safer." in stored["tuned"]
    assert "not tuned" not in stored["sentence"] + page["comparison"]["sentence"]
    # A page that is made again says the same.
    write_report([folder], tmp_path / "again.html")
    again = unpacked(tmp_path / "again.html")["page"]["comparison"]
    assert [again[part] for part in ("sentence", "beside")] == [
        page["comparison"][part] for part in ("sentence", "beside")
    ]
    again = run(*given, *OPTIONS, "--pass-at", 2, log=tmp_path / "again.txt")
    assert again.count("is finished: kept") == 8
    assert json.loads((folder / "comparison.json").read_text()) == stored
    more = [word if word != 2 else 3 for word in given]  # the tuning seed was 44, which `--seeds 3` made 45
    again = run(*more, *OPTIONS, "--pass-at", 2, log=tmp_path / "more.txt")
    assert again.count("is finished: kept") == 8


def test_another_best_rate_makes_other_runs(tmp_path, monkeypatch, capsys):
    """A wider grid, as the comparison itself advises, ended in "was run with other settings" once its best rate was another."""
    trained = []

    def train(request, *_, **__):
        options, config = request.build()
        folder, rate = Path(config.output_dir), config.learning_rate
        trained.append(str(folder.relative_to(tmp_path)))
        settings = run_settings(options, config)
        with RunWriter.create(folder, RunDescription("trl", config.method, config.seed, "m", "t", settings)) as writer:
            writer.log({"step": 1, "signal_groups": 1.0})
            writer.update(final={"after": {"accuracy": 0.5 + rate + config.seed / 1e5}})

    monkeypatch.setattr(plan, "train", train)
    given = ["compare", "--methods", "dapo,delta", "--seed", "0", "--seeds", "2", "--output", str(tmp_path)]
    given += ["--parallel", "1", "--steps", "1", "--eval_samples", "2"]
    assert main([*given, "--learning-rates", "1e-4,2e-4"]) == 0
    assert "tuning/dapo-lr1e-4-seed1000" in trained
    assert trained[4:] == [f"{method}-lr2e-4-seed{seed}" for seed in (0, 1) for method in ("dapo", "delta")]
    trained.clear()
    assert main([*given, "--learning-rates", "1e-4,2e-4,1e-3"]) == 0
    assert trained[2:] == [f"{method}-lr1e-3-seed{seed}" for seed in (0, 1) for method in ("dapo", "delta")]
    assert sorted(path.name for path in runs_below([tmp_path])) == sorted(trained[2:])
    assert json.loads((tmp_path / "comparison.json").read_text())["runs"] == sorted(trained[2:])


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_by_one")
    run(*COMPARED, "--output", folder / "runs", log=folder / "log.txt")
    return folder / "runs"


COMPARED = ["compare", "--methods", "dapo,delta", "--seeds", 2, "--eval_every", 2, *OPTIONS]


def assert_same_comparison(one, other):
    assert (one / "comparison.json").read_bytes() == (other / "comparison.json").read_bytes()
    for place in sorted(one.glob("*-seed*")):
        assert metrics(place) == metrics(other / place.name)
        weights = place.relative_to(one) / "model" / "model.safetensors"
        assert (one / weights).read_bytes() == (other / weights).read_bytes()


def test_runs_side_by_side_are_those_one_after_another(one_by_one, tmp_path):
    told = run(*COMPARED, "--parallel", 2, "--output", tmp_path / "runs", log=tmp_path / "log.txt")
    assert_same_comparison(one_by_one, tmp_path / "runs")
    for number in range(1, 5):
        assert f"run {number} of 4: d" in told
    after = run_info(tmp_path / "runs" / "delta-seed43")["final"]["after"]["accuracy"]
    assert re.search(rf"run 4 of 4: delta, seed 43: accuracy {100 * after:.1f} % after \d+:\d\d", told)
    assert [row["best"] is not None for row in json.loads((one_by_one / "comparison.json").read_text())["further"]]


def test_each_run_by_itself_and_then_the_conclusion(one_by_one, tmp_path, capsys):
    """What a job array does: the listed commands in any order, and the last one when all are done."""
    given = [str(word) for word in (*COMPARED, "--output", tmp_path / "runs")]
    assert main([*given, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in listed if not line.startswith("#")]
    assert len(commands) == 5
    assert [line.partition(" # ")[2] for line in listed[:2]] == ["dapo, seed 42", "delta, seed 42"]
    for number in (3, 0, 2, 1):
        assert main(commands[number]) == 0
    assert not (tmp_path / "runs" / "comparison.json").exists()
    capsys.readouterr()
    assert main(commands[4]) == 0
    assert capsys.readouterr().out.count("is finished: kept") == 4
    assert_same_comparison(one_by_one, tmp_path / "runs")
    assert main([*given, "--only", "5"]) == 2
    assert "give the number of a run, 1 to 4" in capsys.readouterr().err


def test_a_run_that_fails_is_named_and_the_others_are_kept(tmp_path):
    """The rule of the second method's runs works on its trials, in the comparison and in the run, and not on what is sampled."""
    rule = tmp_path / "broken.py"
    rule.write_text(BROKEN)
    given = ["compare", "--methods", f"dapo,{rule}:Broken", "--seeds", 2, *OPTIONS, "--output", tmp_path / "runs"]
    command = start(*given, "--show_methods", "", "--parallel", 2, log=tmp_path / "log.txt")
    assert command.finish() == 1
    last = command.output.strip().splitlines()[-1]
    assert "run 2 of 4" in last
    assert "failed with exit code 1" in last
    assert "the same command keeps finished runs and resumes this one" in last
    assert "train --output" not in last
    assert run_info(tmp_path / "runs" / "dapo-seed42")["status"] == "finished"


BROKEN = """
from dataclasses import dataclass
from delta_rlvr.credit import TokenRule, register

@register("broken-on-purpose")
@dataclass(frozen=True)
class Broken(TokenRule):
    def weigh(self, batch):
        if int(batch.keys.min()) < 100:
            raise ValueError("this rule does not work")
        return batch.row.new_ones(len(batch.row)).float()
"""


@pytest.mark.parametrize("with_what", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_reaches_all_runs(tmp_path, with_what):
    long = [*OPTIONS, "--steps", 400, "--save_steps", 400]
    given = ["compare", "--methods", "dapo,delta", "--seeds", 1, "--output", tmp_path / "runs", *long]
    command = start(*given, "--parallel", 2, log=tmp_path / "log.txt")
    places = [tmp_path / "runs" / f"{method}-seed42" for method in ("dapo", "delta")]
    while not all(map(metrics, places)):
        assert command.process.is_alive(), command.output
        time.sleep(0.05)
    os.kill(command.process.pid, with_what)
    assert command.finish() == 128 + with_what
    for place in places:
        info = run_info(place)
        assert info["status"] == "interrupted"
        assert (place / f"checkpoint-{info['steps']}" / "complete.json").exists()


def test_a_run_without_a_signal_stops_the_comparison(tmp_path, capsys):
    reward = tmp_path / "same.py"
    reward.write_text("def same(completions, **_):\n    return [0.5 for _ in completions]\n")
    given = ["compare", "--methods", "dapo,delta", "--seeds", 1, *OPTIONS, "--reward", f"{reward}:same"]
    given = [str(word) for word in (*given, "--output", tmp_path / "runs")]
    for _ in range(2):  # the run is kept, and says it again
        assert main(given) == 1
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("delta-rlvr compare: run 1 of 2 (dapo, seed 42): Nothing was learnt")
        assert told.endswith("The comparison stops here; --without-signal lets it continue")
        assert not (tmp_path / "runs" / "delta-seed42").exists()
    assert main([*given, "--without-signal"]) == 0
    assert (tmp_path / "runs" / "comparison.json").exists()


def test_on_a_terminal_it_asks(tmp_path):
    place = tmp_path / "dapo-seed42"
    description = RunDescription(engine="trl", method="dapo", seed=42, model="m", task="t")
    with RunWriter.create(place, description) as writer:
        writer.log({"step": 1, "signal_groups": 0.0, "reward": 0.0})
    planned, asked = PlannedRun(1, "dapo", 42, place), []

    def ask(answer):
        making = Making(Plan(RunRequest(), ["dapo", "delta"], [42], tmp_path), Teller())
        making.ask = lambda question: asked.append(question) or answer
        return making

    ask(True)._check_signal(planned)
    assert asked[0].endswith("(the notes of the steps say why). Continue?")
    with pytest.raises(WorkFailed, match="The comparison stops here"):
        ask(False)._check_signal(planned)


def test_weights_without_effect_lead_terminal_and_page(tmp_path):
    """A rule that trained nothing was only "behind dapo"."""
    methods = {"dapo": [0.5, 0.6], "delta": [0.4, 0.4]}
    finished_runs(tmp_path, methods)
    zeros = {"step": 1, "reward": 0.5, "signal_groups": 1.0, "weight_signal_mean": 0.0, "weight_signal_std": 0.0}
    for seed in range(2):
        (tmp_path / f"delta-seed{seed}" / "metrics.jsonl").write_text(json.dumps(zeros) + "\n")
    lead = "delta: every weight is 0: nothing is learnt. Cannot tell delta from dapo"
    assert conclude(tmp_path, list(methods), range(2)).table.sentence.startswith(lead)
    assert unpacked(tmp_path / "report.html")["page"]["comparison"]["verdict"].startswith(lead)
