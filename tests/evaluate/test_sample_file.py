"""The file that samples wait in: resume, torn lines, bad lines with their numbers, two writers."""

import json

import pytest

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Completion, Sample
from delta_rlvr.evaluate.sample_file import SampleFile, read_samples
from delta_rlvr.evaluate.settings import SampleKey
from delta_rlvr.files import InUse

IDENTITY = {"model": {"name": "tiny"}, "settings": {"samples": 2, "seed": 0}}


def _sample(problem="q0", number=0, score=1.0):
    completion = Completion("the answer is 4", "stop", 5)
    return Sample(SampleKey("sums", problem, number), completion, 17, score, "correct", "4")


def _write(path, *samples):
    with SampleFile(path, IDENTITY) as file:
        file.append(samples)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "samples.jsonl"
    _write(path, _sample(), _sample(number=1, score=0.0))
    with SampleFile(path, IDENTITY) as file:
        assert list(file.samples.values()) == [_sample(), _sample(number=1, score=0.0)]
        assert file.notes == []
    header, samples = read_samples(path)
    assert header == IDENTITY
    assert len(samples) == 2


@pytest.mark.parametrize("cut", [1, 5, 60, 150])
def test_a_torn_last_line_is_cut_off_and_said(tmp_path, cut):
    path = tmp_path / "samples.jsonl"
    _write(path, _sample(), _sample(number=1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with SampleFile(path, IDENTITY) as file:
        assert list(file.samples) == [_sample().key]
        assert "incomplete" in file.notes[0]
        file.append([_sample(number=1)])
    assert path.read_bytes() == whole


def test_a_torn_header_starts_anew(tmp_path):
    path = tmp_path / "samples.jsonl"
    _write(path)
    path.write_bytes(path.read_bytes()[:10])
    _write(path, _sample())
    assert len(read_samples(path)[1]) == 1


def test_other_settings_are_refused_by_name(tmp_path):
    path = tmp_path / "samples.jsonl"
    _write(path, _sample())
    before = path.read_bytes()
    other = {"model": {"name": "tiny"}, "settings": {"samples": 2, "seed": 1}}
    with pytest.raises(EvaluationError, match=r"settings\.seed was 0 and is now 1"):
        SampleFile(path, other)
    assert path.read_bytes() == before


def test_a_header_alone_binds_nobody(tmp_path):
    """An evaluation that was refused before its first sample."""
    path, other = tmp_path / "samples.jsonl", {"model": {"name": "another"}}
    for identity in (IDENTITY, other, other):
        with SampleFile(path, identity) as file:
            assert not file.samples
    _write(path, _sample())
    with pytest.raises(EvaluationError, match="is now 'another'"):
        SampleFile(path, other)


def test_two_writers_are_kept_apart(tmp_path):
    path = tmp_path / "samples.jsonl"
    with SampleFile(path, IDENTITY), pytest.raises(InUse, match="another evaluation"):
        SampleFile(path, IDENTITY)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", r"line 3: not JSON"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", r"line 3: .* nested more than 100 deep"),
        ('{"score": 1, "score": 0}', r"line 3: .*'score' comes twice"),
        ("[1, 2]", r"line 3: expected an object, got list"),
        ('{"benchmark": "sums", "sample": 0, "completion": "x"}', r"line 3: 'problem' must be text"),
        ('{"benchmark": "sums", "problem": "q1", "sample": -1, "completion": "x"}', r"line 3: 'sample' must be"),
        ('{"benchmark": "sums", "problem": "q1", "sample": 0}', r"line 3: 'completion' must be text"),
        (
            '{"benchmark": "sums", "problem": "q1", "sample": 0, "completion": "x", "score": "1"}',
            r"line 3: 'score' must be a number",
        ),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, line, message):
    path = tmp_path / "samples.jsonl"
    _write(path, _sample())
    path.write_text(path.read_text() + line + "\n")
    for read in (read_samples, lambda path: SampleFile(path, IDENTITY)):
        with pytest.raises(EvaluationError, match=message):
            read(path)


def test_duplicates_are_named(tmp_path):
    path = tmp_path / "samples.jsonl"
    _write(path, _sample(), _sample())
    with pytest.raises(EvaluationError, match=r"line 3: sums q0 sample 0 is already on line 2"):
        read_samples(path)


def test_a_graded_sample_replaces_the_ungraded_one(tmp_path):
    path = tmp_path / "samples.jsonl"
    _write(path, _sample(score=None), _sample())
    assert [sample.score for sample in read_samples(path)[1]] == [1.0]


def test_lines_of_other_programs_need_no_header(tmp_path):
    path = tmp_path / "theirs.jsonl"
    rows = [{"benchmark": "sums", "problem": "q0", "sample": n, "completion": "4"} for n in range(2)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    header, samples = read_samples(path)
    assert header is None
    assert [sample.seed for sample in samples] == [None, None]
    path.write_text("\n".join(json.dumps(row) for row in [*rows, rows[0]]))
    with pytest.raises(EvaluationError, match=r"line 3: .* is already on line 1"):
        read_samples(path)
    with pytest.raises(EvaluationError, match="does not begin with the header"):
        SampleFile(path, IDENTITY)


def test_absent_and_empty_files(tmp_path):
    with pytest.raises(EvaluationError, match="no file"):
        read_samples(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(EvaluationError, match="no samples"):
        read_samples(tmp_path / "empty.jsonl")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(EvaluationError, match="no list of samples"):
        read_samples(tmp_path / "other.json")
