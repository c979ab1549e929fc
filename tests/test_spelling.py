"""How tasks and methods are shown to people, worked out by hand."""

import pytest

from delta_rlvr.spelling import shown_spec


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
