"""How tasks and methods are shown to people, worked out by hand; and files that are loaded by their path."""

import os
import sys

import pytest

from delta_rlvr.spelling import module_at, shown_spec


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


def test_a_file_is_loaded_as_it_is_now(tmp_path, monkeypatch):
    """Two edits of the same size, in what a file system takes for the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "rule.py"
    for number, nanoseconds in ((1, 10), (2, 20)):
        file.write_text(f"number = {number}\n")
        os.utime(file, ns=(10**18 + nanoseconds, 10**18 + nanoseconds))
        assert module_at(str(file)).number == number
