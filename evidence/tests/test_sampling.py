"""Samples of a stack against a plain loop over transformers' model with its own cache."""

import pytest
import torch
from scipy.stats import chisquare

from delta_evidence.stack import sampling
from delta_evidence.stack.policy import StackedPolicy
from delta_evidence.stack.sampling import StackedSampler
from delta_rlvr.evaluate.drawing import draw_tokens
from delta_rlvr.models import load_policy
from delta_rlvr.tasks import get_task
from rounding import MODEL, rounding
from stacks import row_hidden, small_model, stack_of

END, PAD = 1, 0
STEPS = 70
"""More than two prefixes of the cache."""


@pytest.fixture(scope="module")
def bundled():
    return load_policy("builtin")


@pytest.fixture(scope="module")
def models(bundled):
    """Two policies that differ: the bundled one, and one that hesitates more."""
    hesitant, _ = load_policy("builtin")
    with torch.no_grad():
        hesitant.model.norm.weight.mul_(0.7)
    return [bundled[0], hesitant]


def left_padded(tokenizer, count, extra=0):
    """Prompts of two tasks and several lengths, the same for both runs."""
    problems = [
        problem
        for name in ("phrased-sums", "distractor-facts")
        for problem in get_task(name).problems("train", count // 2, seed=3)
    ]
    encoded = tokenizer([str(problem.prompt) for problem in problems], return_tensors="pt", padding=True)
    ids, mask = encoded["input_ids"], encoded["attention_mask"].bool()
    ids = torch.nn.functional.pad(ids, (extra, 0), value=PAD)
    mask = torch.nn.functional.pad(mask, (extra, 0), value=False)
    return ids.expand(2, -1, -1), mask.expand(2, -1, -1)


def numbers(runs, batch, steps, seed=0):
    return torch.rand(runs, batch, steps, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def plain_sample(model, prompt, uniforms, temperature):
    """One response, one token at a time."""
    ids, cache, response = prompt[None], None, []
    for uniform in uniforms:
        output = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        token = draw_tokens(output.logits[:, -1], uniform[None], temperature=temperature, top_p=1)
        response.append(int(token))
        if response[-1] == END:
            break
        ids = token[:, None]
    return response


def plain_responses(models, prompts, prompt_mask, uniforms, temperature=1.0, copies=1):
    """By run and row."""
    return [
        [
            plain_sample(model, prompts[run, row][prompt_mask[run, row]], numbers, temperature)
            for row, numbers in zip(torch.arange(len(of_run)) // copies, of_run, strict=True)
        ]
        for run, (model, of_run) in enumerate(zip(models, uniforms, strict=True))
    ]


def responses(ids, mask):
    return [[row[valid].tolist() for row, valid in zip(*run, strict=True)] for run in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_token_for_token_a_plain_loop(bundled, models, temperature):
    prompts, prompt_mask = left_padded(bundled[1], 4)
    uniforms = numbers(2, 4, STEPS)
    sampler = StackedSampler(stack_of(models), ends={END}, pad=PAD)
    ids, mask = sampler.sample(prompts, prompt_mask, uniforms, temperature)
    expected = plain_responses(models, prompts, prompt_mask, uniforms, temperature)
    assert responses(ids, mask) == expected
    lengths = [len(response) for of_run in expected for response in of_run]
    assert len(set(lengths)) > 2
    assert ids.shape == mask.shape == (2, 4, max(lengths))
    assert (ids[~mask] == PAD).all()


def small_llama():
    torch.manual_seed(0)
    return small_model("llama", vocab_size=40, pad_token_id=PAD)


def prompts_for_the_llama():
    prompts = torch.randint(2, 40, (2, 3, 8), generator=torch.Generator().manual_seed(1))
    return prompts, torch.arange(8) >= torch.tensor([0, 3, 5])[:, None].expand(2, 3, 1)


def test_several_key_heads_and_several_copies():
    model = small_llama()
    prompts, prompt_mask = prompts_for_the_llama()
    uniforms = numbers(2, 9, 40)
    sampler = StackedSampler(StackedPolicy.from_model(model, 2), ends={END}, pad=PAD)
    found = responses(*sampler.sample(prompts, prompt_mask, uniforms, copies=3))
    assert found == plain_responses([model] * 2, prompts, prompt_mask, uniforms, copies=3)


@pytest.mark.parametrize("length", [70, 89])
def test_prompts_that_begin_alike_are_read_once(length, monkeypatch):
    """The last prompt has one token of its own, and the first three times as many as the second."""
    model = small_llama()
    prompts = torch.randint(2, 40, (2, 3, length + 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([length + 9, length + 3, length + 1])
    mask = torch.arange(length + 9) >= length + 9 - lengths[:, None]
    for row, start in enumerate((~mask).sum(1).tolist()):
        prompts[:, row, start : start + length] = prompts[:, 0, :length]
    mask = mask.expand(2, 3, -1)
    calls = []
    alike = StackedSampler._read_alike
    monkeypatch.setattr(StackedSampler, "_read_alike", lambda *given: calls.append(0) or alike(*given))
    uniforms = numbers(2, 6, 40)
    sampler = StackedSampler(StackedPolicy.from_model(model, 2), ends={END}, pad=PAD)
    found = responses(*sampler.sample(prompts, mask, uniforms, copies=2))
    assert calls
    assert found == plain_responses([model] * 2, prompts, mask, uniforms, copies=2)


def test_log_probs_while_sampling_are_those_of_the_training_pass(bundled, models, monkeypatch):
    prompts, prompt_mask = left_padded(bundled[1], 6)
    seen = []

    def draw_and_note(logits, uniforms, **settings):
        tokens = draw_tokens(logits, uniforms, **settings)
        seen.append((logits / settings["temperature"]).log_softmax(-1).gather(-1, tokens[:, None])[:, 0])
        return tokens

    monkeypatch.setattr(sampling, "draw_tokens", draw_and_note)
    policy = stack_of(models)
    ids, mask = StackedSampler(policy, ends={END}, pad=PAD).sample(prompts, prompt_mask, numbers(2, 6, STEPS), 0.9)
    while_sampling = torch.stack(seen, dim=1)[:, : ids.shape[-1]].view(ids.shape)
    hidden = row_hidden(policy, torch.cat([prompts, ids], -1), torch.cat([prompt_mask, mask], -1))
    first = prompts.shape[-1] - 1
    logps, _ = policy.token_logps(hidden[:, :, first:-1], ids, 0.9)
    torch.testing.assert_close(while_sampling[mask], logps[mask], atol=rounding(MODEL, size=10.0), rtol=0)


def test_padding_copies_and_neighbours_do_not_change_a_sample(bundled, models):
    policy = stack_of(models)
    sampler = StackedSampler(policy, ends={END}, pad=PAD)
    prompts, prompt_mask = left_padded(bundled[1], 6)
    uniforms = numbers(2, 18, STEPS)
    together = responses(*sampler.sample(prompts, prompt_mask, uniforms, copies=3))
    padded = left_padded(bundled[1], 6, extra=9)
    assert responses(*sampler.sample(*padded, uniforms, copies=3)) == together
    written_out = [part.repeat_interleave(3, dim=1) for part in (prompts, prompt_mask)]
    assert responses(*sampler.sample(*written_out, uniforms)) == together
    alone = StackedSampler(stack_of(models[1:]), ends={END}, pad=PAD)
    for row in (0, 16):
        prompt = (prompts[1:, row // 3 : row // 3 + 1], prompt_mask[1:, row // 3 : row // 3 + 1])
        assert responses(*alone.sample(*prompt, uniforms[1:, row : row + 1])) == [[together[1][row]]]


def test_stops_soon_after_the_last_response_has_ended(bundled, models, monkeypatch):
    """Numbers that always pick the likeliest token make short sums; 500 tokens are allowed."""
    prompts, prompt_mask = left_padded(bundled[1], 4)
    drawn = []
    monkeypatch.setattr(sampling, "draw_tokens", lambda logits, *_, **__: drawn.append(0) or logits.argmax(dim=-1))
    sampler = StackedSampler(stack_of(models), ends={END}, pad=PAD)
    _, mask = sampler.sample(prompts, prompt_mask, numbers(2, 4, 400))
    longest = int(mask.sum(-1).max())
    assert mask.shape[-1] == longest < 400
    assert longest <= len(drawn) < longest + 16


def test_updates_of_the_policy_are_seen(bundled, models):
    """In float32 and in bfloat16, whose matrices are copies; the sampler's memory is that of an earlier, longer call."""
    prompts, prompt_mask = left_padded(bundled[1], 4)
    for dtype in (torch.float32, torch.bfloat16):
        policy = stack_of(models, compute_dtype=dtype)
        sampler = StackedSampler(policy, ends={END}, pad=PAD)
        first = responses(*sampler.sample(prompts, prompt_mask, numbers(2, 4, STEPS)))
        with torch.no_grad():
            for weight in policy.layers.parameters():
                weight.mul_(1.2)
        fresh = StackedSampler(policy, ends={END}, pad=PAD)
        expected = responses(*fresh.sample(prompts, prompt_mask, numbers(2, 4, 30)))
        assert responses(*sampler.sample(prompts, prompt_mask, numbers(2, 4, 30))) == expected
        assert expected != first


def test_first_tokens_are_as_frequent_as_their_probability(bundled, models):
    """Of the run that hesitates; rare tokens are counted together."""
    prompts, prompt_mask = left_padded(bundled[1], 4)
    policy = stack_of(models)
    draws = 4000
    ids, _ = StackedSampler(policy, ends={END}, pad=PAD).sample(
        prompts[:, 2:3], prompt_mask[:, 2:3], numbers(2, draws, 1, seed=5), 1.3, copies=draws
    )
    prompt = prompts[1, 2][prompt_mask[1, 2]]
    with torch.no_grad():
        expected = (models[1](prompt[None]).logits[0, -1].double() / 1.3).softmax(-1) * draws
    counts = torch.bincount(ids[1, :, 0], minlength=len(expected))
    common = expected >= 5
    assert common.sum() >= 3
    observed = [*counts[common].tolist(), int(counts[~common].sum())]
    assert chisquare(observed, [*expected[common].tolist(), float(expected[~common].sum())]).pvalue > 0.01


def test_bad_input_is_refused(bundled, models):
    sampler = StackedSampler(stack_of(models), ends={END}, pad=PAD)
    prompts, prompt_mask = left_padded(bundled[1], 4)
    for arguments, words in [
        ((prompts[:1], prompt_mask[:1], numbers(1, 4, 3)), "with 2 runs"),
        ((prompts, prompt_mask, numbers(2, 5, 3)), "4 prompts x 1 copies"),
        ((prompts, prompt_mask, numbers(2, 4, 3) + 0.5), r"\[0, 1\)"),
        ((prompts, torch.zeros_like(prompt_mask), numbers(2, 4, 3)), "no tokens"),
        ((prompts, prompt_mask, numbers(2, 4, 3), -1.0), "temperature"),
    ]:
        with pytest.raises(ValueError, match=words):
            sampler.sample(*arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["bundled", "llama"])
def test_replayed_graphs_give_what_single_launches_give(bundled, models, kind, dtype):
    """Over several calls of other lengths and temperatures, with updates of the policy between them."""
    if kind == "llama":
        models, (prompts, prompt_mask) = [small_llama()] * 2, prompts_for_the_llama()
    else:
        prompts, prompt_mask = left_padded(bundled[1], 6)
    policy = stack_of(models, compute_dtype=dtype).cuda()
    replayed, launched = (StackedSampler(policy, ends={END}, pad=PAD, cuda_graph=graph) for graph in (True, False))
    for call, (steps, temperature) in enumerate([(STEPS, 1.0), (20, 1.0), (STEPS, 0.7), (100, 1.0)]):
        uniforms = numbers(2, 4 * prompts.shape[1], steps, seed=call)
        one, other = (
            responses(*sampler.sample(prompts, prompt_mask, uniforms, temperature, copies=4))
            for sampler in (replayed, launched)
        )
        assert one == other
        with torch.no_grad():
            for weight in policy.layers.parameters():
                weight.mul_(1.02)


@pytest.mark.gpu
def test_samples_on_the_gpu_are_those_on_the_cpu(bundled, models):
    policy = stack_of(models)
    sampler = StackedSampler(policy, ends={END}, pad=PAD)
    prompts, prompt_mask = left_padded(bundled[1], 6)
    on_cpu = responses(*sampler.sample(prompts, prompt_mask, numbers(2, 6, STEPS)))
    policy.cuda()
    assert responses(*sampler.sample(prompts, prompt_mask, numbers(2, 6, STEPS))) == on_cpu
