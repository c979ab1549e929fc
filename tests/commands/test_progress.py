"""What a person sees while a run goes on: on a terminal, in a pipe, and in the log file."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from delta_rlvr.training.progress import LEGEND, Teller, TrainingProgress


def line(step, **more):
    return {"step": step, "loss": 0.01 * step, "grad_norm": 12_345.0, "entropy": 0.3, "seconds_step": 2.0, **more}


ROLLOUT = {"reward": 0.25, "signal_groups": 0.5, "length": 52.5, "weight_signal_std": 0.123}
NOTE = "no learning signal: every response was graded 0 [see rollouts]"


def show(path, steps, lines, **console):
    """What is told of these steps, 80 columns wide where nothing else is said."""
    with Teller(Console(file=io.StringIO(), **{"width": 80, **console})) as teller:
        teller.log_to(path)
        with TrainingProgress(teller, steps) as progress:
            for metrics in lines:
                progress.show(metrics)
    return teller.console.file.getvalue()


def test_in_a_pipe(tmp_path):
    told = show(tmp_path / "log.txt", 100, [line(n, **ROLLOUT) for n in range(1, 101)])
    lines = told.splitlines()
    assert lines[0] == LEGEND
    headings = [*("step", "reward", "signal", "length", "entropy", "spread"), *("loss", "grad", "s/step", "left")]
    assert lines[1].split() == headings
    # One line in five (100 / 20), the first and the last.
    assert [int(text.split()[0]) for text in lines[2:]] == [1, *range(5, 101, 5)]
    assert lines[2].split()[:9] == ["1", "0.250", "50%", "52.5", "0.300", "0.123", "+0.0100", "1.23e+04", "2.00"]
    assert re.fullmatch(r"\d+:\d\d", lines[2].split()[9])
    assert "\x1b" not in told
    # The columns stand under their headings.
    for text in lines[2:]:
        assert len(text) == len(lines[1]) <= 80


@pytest.mark.parametrize(
    ("steps", "parts", "words"), [(1, 1, None), (2, 1, "and length"), (2, 2, "varies between parts")]
)
def test_steps_that_share_a_batch(tmp_path, steps, parts, words):
    """A loss of +0.08, then -0.08, looked like a fault: each step trains on one half of the batch."""
    told = io.StringIO()
    with Teller(Console(file=told, width=200)) as teller, TrainingProgress(teller, 10, steps, parts=parts):
        pass
    shared = [line for line in told.getvalue().splitlines() if line.startswith(f"every {steps} steps share one batch")]
    assert [line.endswith(words) for line in shared] == ([True] if words else [])


def test_the_log_has_every_step(tmp_path):
    show(tmp_path / "log.txt", 100, [line(n) for n in range(1, 101)])
    text = (tmp_path / "log.txt").read_text()
    assert [int(row.split()[0]) for row in text.splitlines()[2:]] == list(range(1, 101))


def test_what_a_step_does_not_measure_is_shown_as_it_last_was(tmp_path):
    told = show(tmp_path / "log.txt", 2, [line(1, **ROLLOUT), line(2)])
    assert told.splitlines()[3].split()[1:4] == ["0.250", "50%", "52.5"]


def test_a_plain_method_has_no_spread(tmp_path):
    assert show(tmp_path / "log.txt", 1, [line(1)]).splitlines()[2].split()[:6] == ["1", "-", "-", "-", "0.300", "-"]


def test_a_note_is_told_once_and_counted(tmp_path):
    lines = [line(1, note=NOTE), line(2, note=NOTE), line(3), line(4, note=NOTE)]
    told = show(tmp_path / "log.txt", 4, lines)
    assert f"step 1: {NOTE}" in told  # in one line, brackets and all
    assert [text[:6] for text in told.splitlines() if NOTE in text] == ["step 1"]
    assert told.splitlines()[-1].endswith("the note of step 1 applied to 3 steps in all")
    assert (tmp_path / "log.txt").read_text().count(NOTE) == 1


def test_on_a_terminal(tmp_path):
    """After the bar is taken away every line stands alone, and the steps are within 80 columns."""
    lines = [line(n, **ROLLOUT, note=NOTE) for n in range(1, 6)]
    screen = on_screen(show(tmp_path / "log.txt", 5, lines, force_terminal=True, width=100, color_system=None))
    # Sentences are broken by the terminal: a command in one can be copied.
    rows = [text for text in screen if re.match(r" +\d+ +0\.250 ", text)]
    assert all(len(text) <= 80 for text in rows)
    assert [int(text.split()[0]) for text in rows] == [1, 2, 3, 4, 5]
    assert len({len(text) for text in rows}) == 1
    assert "training" not in screen[-1]


def on_screen(stream):
    """What a terminal shows of a stream that moves the cursor up and clears lines."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", stream):
        if piece == "\n":
            row, column = row + 1, 0
            if row == len(lines):
                lines.append("")
        elif piece == "\r":
            column = 0
        elif piece.startswith("\x1b["):
            if piece.endswith("A"):
                row -= int(piece[2:-1] or 1)
            elif piece.endswith("K"):
                lines[row] = ""
            else:
                assert piece.endswith(("h", "l", "m")), piece
        else:
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return [text.rstrip() for text in lines if text.strip()]


def test_tables_go_to_the_log_too(tmp_path):
    table = Table(title="held-out accuracy")
    table.add_column("accuracy")
    table.add_row("31.2%")
    with Teller(Console(file=io.StringIO())) as teller:
        teller.log_to(tmp_path / "log.txt")
        teller.show(table)
    assert "31.2%" in (tmp_path / "log.txt").read_text()


def test_a_command_to_be_copied_is_not_broken():
    """In a terminal of 80 columns, `delta-rlvr compare ...` had line breaks in it."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    command = (
        "delta-rlvr compare --methods dapo,delta --seeds 6 --output runs/somewhere --task problems.jsonl --steps 100"
    )
    Teller(console).say(f"to compare: {command}")
    assert command in console.file.getvalue()
