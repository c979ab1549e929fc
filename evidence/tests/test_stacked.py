"""A stack of policies against transformers' own models, one at a time."""

import copy

import pytest
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from delta_evidence.stack import logprobs
from delta_evidence.stack.policy import StackedPolicy, clip_gradients, pack
from delta_evidence.stack.ragged import shared_prefix
from delta_rlvr.models import load_policy
from rounding import MODEL, rounding
from stacks import row_hidden, small_model, stack_of

pytestmark = pytest.mark.numeric

BATCH, TIME = 4, 11


def perturbed(model, seed):
    """Another model of the same shape; norms are moved away from one too, and biases (Qwen2's) away from 0."""
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return other


def three_models(kind):
    torch.manual_seed(0)
    name, _, head = kind.partition(" ")
    bundled = name == "qwen3"
    first = load_policy("builtin")[0] if bundled else small_model(name, tie_word_embeddings=head == "tied")
    return [perturbed(first, seed) for seed in range(3)]


KINDS = pytest.mark.parametrize("kind", ["qwen3", "llama tied", "llama untied", "qwen2 tied", "qwen2 untied"])


def ragged_batch(vocab, runs, seed=0):
    """Sequences with padding on the left, on the right, on both sides and nowhere."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (runs, BATCH, TIME), generator=generator)
    # Llama's padding token in the middle of a text: it is read, and its embedding gets no gradient.
    ids[:, 1, 6] = 2
    mask = torch.ones(runs, BATCH, TIME, dtype=torch.bool)
    mask[:, 0, :4] = False
    mask[:, 2, :2] = False
    mask[:, 2, 8:] = False
    mask[:, 3, 7:] = False
    return ids, mask


def assert_close(ours, theirs):
    """As close as two passes through a model."""
    size = max(1.0, theirs.abs().max().item()) if theirs.numel() else 1.0
    torch.testing.assert_close(ours, theirs, atol=rounding(MODEL, size), rtol=0)


def transformers_hidden(model, ids, mask):
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return model.model(
        input_ids=ids, attention_mask=mask.long(), position_ids=positions, use_cache=False
    ).last_hidden_state


def transformers_logps(model, ids, mask, temperature):
    logits = model.lm_head(transformers_hidden(model, ids, mask)) / temperature
    logps = logits.log_softmax(-1)[:, :-1]
    entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, ids[:, 1:, None])[..., 0], entropy


def predicted(mask):
    """Positions that predict a valid token from a valid one."""
    return mask[..., :-1] & mask[..., 1:]


@KINDS
def test_hidden_states_are_those_of_transformers(kind):
    models = three_models(kind)
    policy = stack_of(models)
    ids, mask = ragged_batch(policy.head.shape[1], 3)
    ours = row_hidden(policy, ids, mask)
    assert ours.isfinite().all()
    for run, model in enumerate(models):
        theirs = transformers_hidden(model, ids[run], mask[run])
        assert_close(ours[run][mask[run]], theirs[mask[run]])


@KINDS
@pytest.mark.parametrize("chunked", ["at once", "in chunks", "in chunks of valid rows"])
def test_logps_gradients_and_a_step_are_those_of_transformers(kind, chunked, monkeypatch):
    """A loss with another weight for each token, clipping, one step of AdamW; with logits made in chunks, and at once."""
    models = three_models(kind)
    policy = stack_of(models)
    vocab = policy.head.shape[1]
    if chunked != "at once":
        # 7 positions of each run at once.
        monkeypatch.setitem(logprobs._LOGIT_BYTES, "cpu", 4 * 3 * vocab * 7)
    ids, mask = ragged_batch(vocab, 3)
    weights = torch.randn(3, BATCH, TIME - 1, generator=torch.Generator().manual_seed(1)) * predicted(mask)
    # A mean, so that rounding is small beside gradients.
    weights = weights / predicted(mask).sum(dim=(1, 2), keepdim=True)
    valid = predicted(mask) if "valid" in chunked else None
    logps, entropy = policy.token_logps(
        row_hidden(policy, ids, mask)[:, :, :-1], ids[..., 1:], 0.8, entropy=True, mask=valid
    )
    if valid is not None:
        assert (logps[~valid] == 0).all()
        assert (entropy[~valid] == 0).all()
    (logps * weights + entropy * weights.roll(1, dims=1) * predicted(mask)).sum().backward()
    # The smallest run is left as it is, the others are clipped.
    singles = []
    for run, model in enumerate(models):
        theirs, their_entropy = transformers_logps(model, ids[run], mask[run], 0.8)
        place = predicted(mask[run])
        assert_close(logps[run][place], theirs[place])
        assert_close(entropy[run][place], their_entropy[place].detach())
        (theirs * weights[run] + their_entropy * weights[run].roll(1, dims=0) * place).sum().backward()
        singles.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]).norm())
    limit = float(min(singles)) * 1.001
    norms = clip_gradients(policy, limit)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.1)
    gradients = stack_of(models)
    with torch.no_grad():
        for parameter, holder in zip(policy.parameters(), gradients.parameters(), strict=True):
            holder.copy_(parameter.grad)
    optimizer.step()
    for run, model in enumerate(models):
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        torch.testing.assert_close(norms[run], norm, atol=0, rtol=rounding(MODEL))
        their_optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
        their_optimizer.step()
        target = copy.deepcopy(model)
        gradients.load_into(run, target)
        for ours, theirs in zip(target.parameters(), model.parameters(), strict=True):
            assert_close(ours, theirs.grad)
        policy.load_into(run, target)
        for ours, theirs in zip(target.parameters(), model.parameters(), strict=True):
            # The first step of Adam is the gradient over its size: where the gradient is rounding alone, so is the step.
            sure = theirs.grad.abs() > 1e-5
            assert_close(ours[sure], theirs[sure])
            assert (ours - theirs).abs().max() < 2.1e-2


@KINDS
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("layout", ["padded", "ragged", "ragged, shared beginning"])
def test_prompts_read_once_give_what_whole_rows_give(kind, copies, layout):
    """Hidden states and gradients; responses end at different places, and prompts have different lengths."""
    policy = stack_of(three_models(kind))
    generator = torch.Generator().manual_seed(2)
    length = 20 if "shared" in layout else 7
    prompts = torch.randint(3, policy.head.shape[1], (3, 2, length), generator=generator)
    prompt_mask = torch.ones_like(prompts, dtype=torch.bool)
    prompt_mask[:, 1, :4] = False
    prompt_mask[:, :, 0] = False
    if "shared" in layout:  # 9, 9 and 15 tokens, of which 8 are read once for both prompts
        for run, alike in enumerate((9, 9, 15)):
            prompts[run, 1, 4 : 4 + alike] = prompts[run, 0, 1 : 1 + alike]
        assert shared_prefix(pack(prompts, prompt_mask), prompt_mask.sum(-1)) == 8
    responses = torch.randint(3, policy.head.shape[1], (3, 2 * copies, 6), generator=generator)
    mask = torch.arange(6) < torch.randint(1, 7, (3, 2 * copies, 1), generator=generator)
    weights = torch.randn(3, 2 * copies, 6, policy.head.shape[2], generator=generator)
    whole_rows = torch.cat([prompts.repeat_interleave(copies, dim=1), responses], dim=-1)
    whole_mask = torch.cat([prompt_mask.repeat_interleave(copies, dim=1), mask], dim=-1)
    results = []
    for hidden in (
        policy.response_hidden(prompts, prompt_mask, responses, copies, mask=None if layout == "padded" else mask),
        row_hidden(policy, whole_rows, whole_mask)[:, :, length - 1 : -1],
    ):
        policy.zero_grad()
        (hidden * weights)[mask].mean().backward()
        gradients = [weight.grad for weight in policy.parameters() if weight.grad is not None]
        results.append([hidden[mask].detach(), *gradients])
    assert len(results[0]) == len(results[1]) > 10
    for one, other in zip(*results, strict=True):
        assert other.abs().sum() > 0
        assert_close(one, other)


def test_bfloat16_products_are_close_and_master_weights_stay_float32():
    model = three_models("qwen3")[0]
    exact, rounded = (
        StackedPolicy.from_model(model, 1, compute_dtype=dtype) for dtype in (torch.float32, torch.bfloat16)
    )
    assert all(weight.dtype == torch.float32 for weight in rounded.parameters())
    ids, mask = ragged_batch(exact.head.shape[1], 1)
    logps = []
    for policy in (exact, rounded):
        value, _ = policy.token_logps(row_hidden(policy, ids, mask)[:, :, :-1], ids[..., 1:])
        value.sum().backward()
        assert value.dtype == torch.float32
        logps.append(value[predicted(mask)])
    difference = (logps[0] - logps[1]).abs()
    assert 0 < difference.max() < 0.3
    gradients = [policy.layers[1].qkv.grad for policy in (exact, rounded)]
    assert F.cosine_similarity(*[gradient.flatten() for gradient in gradients], dim=0) > 0.99


LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
SLIDING = {"head_dim": 4, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("llama", {"attention_bias": True}, "attention_bias"),
        ("llama", {"mlp_bias": True}, "mlp_bias"),
        ("llama", {"attention_dropout": 0.1}, "attention_dropout"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_parameters": LINEAR}, "rope scaling"),
        ("qwen3", SLIDING, "sliding-window"),
    ],
)
def test_what_is_not_supported_is_refused(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        StackedPolicy.from_model(small_model(kind, **settings), 2)


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="not GPT2LMHeadModel"):
        StackedPolicy.from_model(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9)), 2)


def test_input_that_does_not_fit_is_refused():
    policy = StackedPolicy.from_model(small_model("llama"), 2)
    ids, mask = ragged_batch(policy.head.shape[1], 2)
    with pytest.raises(ValueError, match="no gradients"):
        clip_gradients(policy, 1.0)
    with pytest.raises(ValueError, match="mask: shape"):
        policy.response_hidden(ids, mask[:, :1], ids)
    with pytest.raises(ValueError, match="bool is needed"):
        policy.response_hidden(ids, mask.long(), ids)
    with pytest.raises(ValueError, match="2 runs x 4 prompts x 3 copies"):
        policy.response_hidden(ids, mask, ids, copies=3)
    with pytest.raises(ValueError, match="temperature"):
        policy.token_logps(row_hidden(policy, ids, mask), ids, 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["qwen3", "llama untied", "qwen2 tied"])
@pytest.mark.parametrize("ragged", [False, True])
def test_values_and_gradients_on_the_gpu_are_those_on_the_cpu(kind, ragged):
    """float32, with a prompt read once for three responses; its kernels differ from those of the CPU."""
    results = []
    for device in ("cpu", "cuda"):
        policy = stack_of(three_models(kind)).to(device)
        generator = torch.Generator().manual_seed(2)
        prompts = torch.randint(3, policy.head.shape[1], (3, 2, 7), generator=generator).to(device)
        prompt_mask = torch.ones_like(prompts, dtype=torch.bool)
        prompt_mask[:, 1, :4] = False
        responses = torch.randint(3, policy.head.shape[1], (3, 6, 9), generator=generator).to(device)
        mask = (torch.arange(9) < torch.tensor([9, 1, 4, 8, 2, 7])[:, None]).expand(3, -1, -1).to(device)
        hidden = policy.response_hidden(prompts, prompt_mask, responses, 3, mask=mask if ragged else None)
        logps = policy.token_logps(hidden, responses)[0] * mask
        logps.mean().backward()
        gradients = [weight.grad.cpu() for weight in policy.parameters()]
        results.append([logps.detach().cpu(), *gradients])
    for one, other in zip(*results, strict=True):
        # exp and its kin are other functions there.
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
def test_heads_with_very_low_scores_have_gradients_on_the_gpu():
    """As Qwen2.5 has them: cuDNN's kernel gives NaN for the queries (704 places, a mask, bf16), so a stack does without it."""
    StackedPolicy.from_model(small_model("qwen2"), 1, device="cuda")
    torch.manual_seed(0)
    query, key, value = (0.1 * torch.randn(1, 1, 704, 64, device="cuda").bfloat16() for _ in range(3))
    query[..., 0], key[..., 0] = 1.0, -120 * 8.0
    query.requires_grad_()
    bias = torch.zeros(1, 1, 704, 704, device="cuda", dtype=torch.bfloat16)
    F.scaled_dot_product_attention(query, key, value, attn_mask=bias).sum().backward()
    assert query.grad.isfinite().all()
