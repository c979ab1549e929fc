"""How tasks and methods are shown to people, worked out by hand; and files that are loaded by their path."""

import os
import subprocess
import sys

import pytest

from delta_rlvr.hints import near_file, near_path
from delta_rlvr.score_units import POINTS
from delta_rlvr.specs import shown_spec
from delta_rlvr.user_code import module_at
from delta_rlvr.words import command_line


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("phrased-sums", "phrased-sums"),
        ("zwhe99/DeepMath-103K", "zwhe99/DeepMath-103K"),
        ("problems.jsonl?template_text=%7Bquestion%7D%0A", "problems.jsonl (template_text={question}\\n)"),
        ("/home/me/data/problems.jsonl?limit=5&chat=true", "problems.jsonl (limit=5, chat=true)"),
        ("../problems.csv", "problems.csv"),
        # 37 characters and three dots: 40 in all
        (f"x.csv?template_text={'a' * 41}", f"x.csv (template_text={'a' * 37}...)"),
        (f"x.csv?template_text={'a' * 40}", f"x.csv (template_text={'a' * 40})"),
        ("some other?thing", "some other?thing"),
    ],
)
def test_a_task_as_a_table_shows_it(spec, shown):
    assert shown_spec(spec) == shown


def test_a_difference_is_shown_alike_however_it_was_added_up():
    """3.75 points were +3.8 in the terminal and +3.7 on the page: 0.4375 - 0.4 is a little less than 0.0375."""
    assert 0.4375 - 0.4 < 0.0375
    assert POINTS.signed(0.4375 - 0.4) == POINTS.signed(0.0375) == "+3.8"
    assert POINTS.plain(0.4375 - 0.4) == "3.8"
    assert POINTS.signed(0.4 - 0.4375) == "-3.8"
    assert POINTS.signed(0.1 + 0.2 - 0.3) == POINTS.signed(0.3 - 0.2 - 0.1) == "+0.0"  # 5e-17 and -3e-17: two ways to 0


def test_a_file_is_loaded_as_it_is_now(tmp_path, monkeypatch):
    """Two edits of the same size, in what a file system takes for the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "rule.py"
    for number, nanoseconds in ((1, 10), (2, 20)):
        file.write_text(f"number = {number}\n")
        os.utime(file, ns=(10**18 + nanoseconds, 10**18 + nanoseconds))
        assert module_at(str(file)).number == number


def test_a_command_with_a_line_break_is_one_line_that_a_shell_reads_back():
    words = ["a b", "plain", "{question}\nIt's \\boxed{}\t.\x1b", ""]
    line = command_line("printf", "%s\\0", *words)
    assert "\n" not in line
    told = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert told.decode().split("\0")[:-1] == words


def test_the_nearest_folder_is_named_wherever_the_slip_is(tmp_path):
    (tmp_path / "runs" / "demo" / "model").mkdir(parents=True)
    meant = f"; did you mean '{tmp_path / 'runs' / 'demo' / 'model'}'?"
    assert near_path(tmp_path / "runs" / "demo" / "modle") == meant
    assert near_path(tmp_path / "runs" / "dmeo" / "model") == meant
    assert near_path(tmp_path / "rnus" / "dmeo" / "modle") == meant
    assert near_file(tmp_path / "runs" / "demo" / "modle") == "", "a folder is no file"
    assert near_path(tmp_path / "runs" / "another" / "thing") == ""


def test_the_nearest_file_is_named(tmp_path):
    (tmp_path / "market.jsonl").touch()
    assert near_file(tmp_path / "market.jsnl") == f"; did you mean '{tmp_path / 'market.jsonl'}'?"
    (tmp_path / "openq.csv").touch()
    assert near_file(tmp_path / "nope.jsonl") == "", "too far apart"
    assert near_file(tmp_path / "other.csv") == near_file(tmp_path / "nowhere" / "x.csv") == ""
