"""The leaderboard: pairs by hand, what is left out, and the committed page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delta_evidence.leaderboard import leaderboard, markdown, replace_table
from delta_evidence.learning.outcome import Outcome
from delta_evidence.learning.protocol import Run
from delta_rlvr.cli import main
from rows import write_rows

ROOT = Path(__file__).parents[2]


def study(folder: Path, name: str, runs: list[tuple[str, int, float, float | None]], **protocol: Any) -> None:
    """A study folder as `delta-rlvr study` leaves it: (arm, seed, every batch's accuracy, held-out accuracy)."""
    place = folder / name
    place.mkdir(parents=True)
    contents = protocol.pop("contents", {})
    written = {"model": "builtin", "training": {"steps": 2}, "reward_noise": 0.0, **protocol}
    (place / "protocol.json").write_text(json.dumps({"protocol": written, "contents": contents}))
    unread = [0.0, 0.0]
    lines = [
        Outcome(Run("sums", arm, seed), 0.1, after, [speed, speed], *[unread] * 5).as_dict()
        for arm, seed, speed, after in runs
    ]
    write_rows(place / "runs.jsonl", lines)


def test_pairs_by_hand(tmp_path: Path) -> None:
    runs = [("dapo", 0, 0.50, 0.6), ("dapo", 1, 0.40, 0.6), ("delta", 0, 0.53, 0.5), ("delta", 1, 0.41, 0.6)]
    # The fifth has no partner, the sixth diverged, the seventh is no method.
    runs += [("delta", 2, 0.9, 0.9), ("surprise", 0, 0.1, None), ("patched-side", 0, 0.9, 0.9)]
    study(tmp_path, "one", runs)
    study(tmp_path, "two", runs)  # the same runs again count once
    study(tmp_path, "deep/er", [("dapo", 7, 0.5, 0.5), ("grpo", 7, 0.5, 0.5)])
    board = leaderboard(tmp_path)
    assert board.columns == ["bundled policy, steps 2"]
    assert [row.method for row in board.rows] == ["delta", "grpo"]
    row = board.rows[0]
    assert len(row.learning["bundled policy, steps 2"]) == 2
    assert row.over_training("bundled policy, steps 2").mean == pytest.approx(0.02)
    assert row.at_the_end("bundled policy, steps 2") == pytest.approx(-0.05)
    # Two pairs have no interval.
    assert markdown(board) == (
        "## Tiny policies\n\n**bundled policy, steps 2**\n\n| method | over training | at the end | pairs |\n|---|---|---|---|\n"
        "| `delta` | +2.0 | -5.0 | 2 |\n"
        "| `grpo` | +0.0 | +0.0 | 1 |\n"
    )
    assert board.left_out == [
        "one, delta: 1 run, no finished run of dapo with the same seed",
        "one, surprise: 1 run, diverged",
        "one, patched-side: 1 run, no method of this version",
        "two, delta: 1 run, no finished run of dapo with the same seed",
        "two, surprise: 1 run, diverged",
        "two, patched-side: 1 run, no method of this version",
        "two, delta: 2 runs of tasks and seeds that one has",
    ]
    # A study's own folder is read too.
    assert [row.method for row in leaderboard(tmp_path / "one").rows] == ["delta"]


def test_a_users_rule_is_what_the_protocol_recorded(tmp_path: Path) -> None:
    runs = [
        ("dapo", 0, 0.5, 0.6),
        ("rules.py:Mine", 0, 0.6, 0.6),
        ("softer", 0, 0.55, 0.6),
        ("my.rules:Mine", 0, 0.5, 0.6),
    ]
    own = {"softer": {"method": "rules.py:Mine?by=0.5"}}
    contents = {"rules.py:Mine": "0123456789", "rules.py:Mine?by=0.5": "0123456789"}
    study(tmp_path, "one", runs, arm_settings=own, contents=contents)
    study(tmp_path, "two", runs[:2], contents={"rules.py:Mine": "abcdefabcdef"})
    study(tmp_path, "three", [("slow", 0, 0.5, 0.6)], baseline="slow")
    board = leaderboard(tmp_path)
    assert [row.method for row in board.rows] == [
        "my.rules:Mine", "rules.py:Mine 01234567", "rules.py:Mine abcdefab", "softer (rules.py:Mine?by=0.5 01234567)"
    ]  # fmt: skip
    assert board.left_out == ["three: no finished run of dapo"]


def test_delta_on_the_same_pairs(tmp_path: Path) -> None:
    # Two draws of DAPO's run of seed 0: delta's row has the first, and stands beside grpo with the second.
    study(tmp_path, "one", [("dapo", 0, 0.50, 0.6), ("delta", 0, 0.52, 0.6)])
    study(tmp_path, "two", [("dapo", 0, 0.48, 0.6), ("delta", 0, 0.53, 0.6), ("grpo", 0, 0.52, 0.6)])
    study(tmp_path, "three", [("dapo", 1, 0.48, 0.6), ("grpo", 1, 0.52, 0.6)])
    text = markdown(leaderboard(tmp_path))
    assert "| `delta` | +2.0 | - | +0.0 | 1 |" in text
    assert "| `grpo` | +4.0 | +5.0 (1) | +0.0 | 2 |" in text


def test_one_rounding(tmp_path: Path) -> None:
    """1.25 points were +1.2 in DelTA's own row and +1.3 beside another's."""
    study(tmp_path, "one", [("dapo", 0, 0.25, 0.6), ("delta", 0, 0.2625, 0.6), ("grpo", 0, 0.25, 0.6)])
    text = markdown(leaderboard(tmp_path))
    own = next(line for line in text.splitlines() if "`delta` |" in line and "over training" not in line).split("|")[2]
    assert f"| `grpo` | +0.0 |{own}|" in text


def test_weights_without_effect_are_told(tmp_path: Path) -> None:
    """A rule that trained nothing led the table, and nothing was said."""
    study(tmp_path, "one", [("dapo", 0, 0.5, 0.6), ("mine.py:Zero", 0, 0.6, 0.6)])
    place = tmp_path / "one" / "runs.jsonl"
    first, second = map(json.loads, place.read_text().splitlines())
    zeros = {"batch": [0], "weight_signal_mean": [0.0], "weight_signal_std": [0.0]}
    write_rows(place, [first, second | {"signal_groups": [1.0, 1.0], "diagnostics": zeros}])
    assert "\n\n`mine.py:Zero`: every weight is 0: nothing is learnt.\n" in markdown(leaderboard(tmp_path))


def test_other_settings_are_other_columns(tmp_path: Path) -> None:
    runs = [("dapo", 0, 0.5, 0.6), ("delta", 0, 0.6, 0.6)]
    study(tmp_path, "one", runs)
    study(tmp_path, "two", runs, training={"steps": 4})
    study(tmp_path, "three", runs, model="folder/large.gguf")
    # Every arm at a rate of its own; an arm that is more than a method is a row of its own.
    mixed = [*runs, ("penalised", 0, 0.9, 0.9)]
    own = {"delta": {"learning_rate": 1e-4}, "penalised": {"method": "dapo", "entropy_bonus": -0.1}}
    study(tmp_path, "four", mixed, model="folder/large.gguf", arm_settings=own)
    board = leaderboard(tmp_path)
    assert board.real == ["large.gguf, steps 2, lr by arm (four)", "large.gguf, steps 2"]
    assert board.tiny == ["bundled policy, steps 2", "bundled policy, steps 4"]
    assert [row.method for row in board.rows] == ["delta", "penalised (dapo)"]
    assert {column: len(pairs) for column, pairs in board.rows[0].learning.items()} == dict.fromkeys(board.columns, 1)
    headings = [line for line in markdown(board).splitlines() if line.startswith(("#", "*"))]
    assert headings == [
        "## Language models",
        *("**large.gguf, steps 2, lr by arm (four)**", "**large.gguf, steps 2**"),
        "## Tiny policies",
        *("**bundled policy, steps 2**", "**bundled policy, steps 4**"),
    ]


def test_a_users_own_study_is_named_by_what_it_had(tmp_path: Path) -> None:
    """It was "lr own" where every arm had the default rate, its 12 steps were not named, and greedy scores decided it."""
    runs = [("dapo", 0, 0.5, 0.6), ("delta", 0, 0.6, 0.6)]
    usual, twice = ({arm: {"learning_rate": rate} for arm in ("dapo", "delta")} for rate in (5e-4, 1e-3))
    training = {"steps": 12, "prompts": 8}
    primary = {"arm": "delta", "task": "sums", "end_point": {"temperature": 0}}
    study(tmp_path, "small", runs, arm_settings=usual, training=training, primary=primary)
    text = markdown(leaderboard(tmp_path / "small"))
    assert "**bundled policy, steps 12, prompts 8**" in text
    assert "`small` is decided by greedy scores (its table.md)." in text
    study(tmp_path, "other", runs, arm_settings=twice)
    assert "**bundled policy, steps 2, lr 0.001**" in markdown(leaderboard(tmp_path / "other"))


def test_the_largest_gain_comes_first(tmp_path: Path) -> None:
    runs = [("dapo", 0, 0.5, 0.6), ("delta", 0, 0.4, 0.6), ("ktae", 0, 0.7, 0.6), ("grpo", 0, 0.5, 0.6)]
    study(tmp_path, "one", runs)
    rows = [line.split("`")[1] for line in markdown(leaderboard(tmp_path)).splitlines() if line.startswith("| `")]
    assert rows == ["ktae", "grpo", "delta"]


def test_planted_credit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"slice": "all", "condition": "clean", "method": "delta", "right_auroc": {"mean": 0.75}},
        {"slice": "all", "condition": "noisy", "method": "dapo", "right_auroc": {"mean": 0.25}},
    ]
    (tmp_path / "credit_bench.json").write_text(json.dumps({"rows": rows}))
    assert main(["leaderboard", str(tmp_path), "--json", str(tmp_path / "board.json")]) == 0
    assert "| `delta` | 0.750 | - | - |" in capsys.readouterr().out
    assert json.loads((tmp_path / "board.json").read_text())["rows"][0]["planted"] == {"right_auroc": 0.75}
    assert main(["leaderboard", str(tmp_path), "--json", str(tmp_path / "board.json")]) == 0
    kept = (tmp_path / "credit_bench.json").read_bytes()
    assert main(["leaderboard", str(tmp_path), "--json", str(tmp_path / "credit_bench.json")]) == 2
    assert "is not the numbers of a leaderboard" in capsys.readouterr().err
    assert (tmp_path / "credit_bench.json").read_bytes() == kept
    study(tmp_path, "one", [("dapo", 0, 0.5, 0.6), ("delta", 0, 0.6, 0.6)])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: begin -->\nold\n<!-- table: end -->\nafter\n")
    assert main(["leaderboard", str(tmp_path), "--output", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- table: begin -->\n## Tiny policies\n")
    assert text.endswith("<!-- table: end -->\nafter\n")
    assert "old" not in text
    assert "0.750" not in text, "the page is about learning"
    assert main(["leaderboard", str(tmp_path), "--output", str(tmp_path / "new.md")]) == 0
    assert (tmp_path / "new.md").read_text() == text[len("before\n") : -len("after\n")]


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
    (tmp_path / "runs.jsonl").touch()
    assert main(["leaderboard", str(tmp_path / "runs.jsonl")]) == 2
    assert f"is a file: name its folder, {tmp_path}\n" in capsys.readouterr().err
    (tmp_path / "runs.jsonl").unlink()
    assert main(["leaderboard", str(tmp_path)]) == 2
    assert "nothing to show" in capsys.readouterr().err
    (tmp_path / "credit_bench.json").write_text("{")
    assert main(["leaderboard", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no place for the table"):
        replace_table("# A page", "| a |")


def test_the_committed_page_is_what_the_outcomes_say() -> None:
    page = (ROOT / "docs" / "leaderboard.md").read_text()
    assert replace_table(page, markdown(leaderboard(ROOT / "evidence" / "results"))) == page
