"""The transformers backend on a tiny real model."""

import pytest
import torch

from delta_rlvr.evaluate.errors import EvaluationError
from delta_rlvr.evaluate.local_sampler import LocalSampler, weights_digest
from delta_rlvr.evaluate.records import SampleRequest
from delta_rlvr.evaluate.runner import run_evaluation
from delta_rlvr.evaluate.settings import EvaluationSettings, SampleKey
from delta_rlvr.models.prompts import encode_prompt
from evaluation_support import sums, tiny_model, tiny_tokenizer

SETTINGS = EvaluationSettings(samples=4, max_tokens=24, temperature=1.0, top_p=0.9, seed=3)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def _texts(result):
    return {
        (sample["problem"], sample["sample"]): (sample["completion"], sample["tokens"], sample["finish"])
        for sample in result.document["samples"]
    }


def _evaluate(model, tokenizer, batch_size, settings=SETTINGS, count=5):
    sampler = LocalSampler(model, tokenizer, settings, batch_size=batch_size)
    return run_evaluation([sums(count)], sampler, settings, model={"name": "tiny"})


def test_a_sample_does_not_depend_on_its_batch(model, tokenizer):
    # Prompts differ in length, so that other batches mean other padding; rows end at different times.
    alone = _texts(_evaluate(model, tokenizer, 1))
    assert alone == _texts(_evaluate(model, tokenizer, 3)) == _texts(_evaluate(model, tokenizer, 64))
    assert {finish for _, _, finish in alone.values()} == {"stop", "length"}, "the test needs both endings"
    assert len({text for text, _, _ in alone.values()}) > 10, "the samples should differ"


def test_greedy_equals_generate(model, tokenizer):
    settings = EvaluationSettings(samples=1, max_tokens=20, temperature=0.0, top_p=1.0)
    problem = sums(3).problems[2]
    sampler = LocalSampler(model, tokenizer, settings, batch_size=4)
    requests = [SampleRequest(SampleKey("sums", p.id, 0), p.prompt, 0) for p in sums(3).problems]
    ours = sampler.complete(requests)[2]
    inputs = tokenizer(problem.prompt, return_tensors="pt")
    with torch.no_grad():
        theirs = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=20, do_sample=False
        )
    response = theirs[0, inputs["input_ids"].shape[1] :]
    assert ours.text == tokenizer.decode(response, skip_special_tokens=True)


def test_sampled_tokens_follow_the_model(model, tokenizer):
    # The first token of 4000 samples of one prompt against the model's own distribution.
    settings = EvaluationSettings(samples=4000, max_tokens=1, temperature=1.0, top_p=1.0)
    result = _evaluate(model, tokenizer, 500, settings, count=1)
    ids = torch.tensor([encode_prompt(tokenizer, sums(1).problems[0].prompt)])
    with torch.no_grad():
        expected = torch.softmax(model(ids).logits[0, -1].double(), dim=-1)
    seen = torch.zeros_like(expected)
    for sample in result.document["samples"]:
        token = (
            1
            if sample["finish"] == "stop"
            else tokenizer(sample["completion"])["input_ids"][0]
            if sample["completion"]
            else 0
        )
        seen[token] += 1 / 4000
    # Special tokens decode to nothing, so that only characters can be compared one by one.
    assert (seen[3:] - expected[3:]).abs().max() < 4 * (0.25 / 4000) ** 0.5


def test_stop_text_is_cut_off(model, tokenizer):
    free = next(t for t, _, finish in _texts(_evaluate(model, tokenizer, 8)).values() if len(t) > 8)
    stop = free[3:5]
    settings = EvaluationSettings(**SETTINGS.as_dict() | {"stop": (stop,)})
    for text, _, finish in _texts(_evaluate(model, tokenizer, 8, settings)).values():
        assert stop not in text
        assert finish in ("stop", "length")
    stopped = _texts(_evaluate(model, tokenizer, 8, settings))
    assert free[: free.find(stop)] in {text for text, _, _ in stopped.values()}


def test_the_model_keeps_its_mode(model, tokenizer):
    model.train()
    try:
        _evaluate(model, tokenizer, 8, count=1)
        assert model.training
    finally:
        model.eval()


def test_too_long_for_the_context(model, tokenizer):
    settings = EvaluationSettings(samples=1, max_tokens=250)
    with pytest.raises(EvaluationError, match=r"context of 256; lower max_tokens to 2\d\d or less"):
        _evaluate(model, tokenizer, 1, settings, count=1)


def test_chat_needs_a_template(tokenizer):
    with pytest.raises(ValueError, match="no chat template"):
        encode_prompt(tokenizer, [{"role": "user", "content": "1+1=?"}])
    templated = tiny_tokenizer()
    templated.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}=="
    ids = encode_prompt(templated, [{"role": "user", "content": "1+1"}])
    assert tokenizer.decode(ids) == "1+1=="


def test_weights_digest_sees_training(model):
    before = weights_digest(model)
    assert before == weights_digest(tiny_model())
    changed = tiny_model()
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.mul_(1.0001)
    assert weights_digest(changed) != before
