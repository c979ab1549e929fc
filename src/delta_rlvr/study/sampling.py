"""Sample responses of all runs of a stack at once: a static key-value cache, one decoding step at a time.

A token is found by inverting the cumulative distribution at a number drawn beforehand (`evaluate.drawing`), so that a
response depends on its own prompt and numbers, not on what is sampled beside it. On CUDA a step is captured as a graph
and replayed: the launches of a small model take longer than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.evaluate.drawing import draw_tokens
from delta_rlvr.study.stacked import Shape, StackedPolicy, causal_attention

# A step attends to a prefix of the cache whose length is a multiple of this. Each length has a graph of its own. A
# multiple of 8 also keeps the rows of the attention bias aligned, without which CUDA's kernels copy it in every layer.
_PREFIX = 32
# Steps between two looks at whether all responses have ended. A look waits for the device.
_STEPS_A_LOOK = 16


@dataclass(frozen=True)
class _Slots:
    """The memory that decoding steps work in; a captured graph holds its addresses."""

    keys: Float[Tensor, "layer row kv_head slot head_width"]
    values: Float[Tensor, "layer row kv_head slot head_width"]
    bias: Float[Tensor, "row one one slot"]
    """Added to attention scores: 0 where a slot holds a token of the row, -inf elsewhere."""
    uniforms: Float[Tensor, "row step"]
    ids: Int[Tensor, "row step"]
    token: Int[Tensor, " row"]
    """The newest, not yet in the cache."""
    position: Int[Tensor, " row"]
    """Where it stands in its row: tokens before it, padding not counted."""
    ended: Bool[Tensor, " row"]
    slot: Int[Tensor, " one"]
    """The slot that the next token goes to, the same in all rows."""
    step: Int[Tensor, " one"]
    """The number of tokens drawn."""

    @classmethod
    def empty(
        cls, shape: Shape, rows: int, slots: int, steps: int, dtype: torch.dtype, device: torch.device
    ) -> _Slots:
        def whole(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.long, device=device)

        # Zeros, not what lay in memory: a masked NaN would still spread.
        cache = torch.zeros(
            (2, shape.layers, rows, shape.kv_heads, slots, shape.head_width), dtype=dtype, device=device
        )
        return cls(
            keys=cache[0],
            values=cache[1],
            bias=torch.zeros(rows, 1, 1, slots, dtype=dtype, device=device),
            uniforms=torch.zeros(rows, steps, dtype=torch.float64, device=device),
            ids=whole(rows, steps),
            token=whole(rows),
            position=whole(rows),
            ended=torch.zeros(rows, dtype=torch.bool, device=device),
            slot=whole(1),
            step=whole(1),
        )

    def changed_by_a_step(self) -> list[Tensor]:
        """All but the cache, where a step writes to its own slot only and can be repeated."""
        return [self.bias, self.ids, self.token, self.position, self.ended, self.slot, self.step]


class StackedSampler:
    """Samples from the policies of a stack as they are at the time of each call.

    Memory for the cache is kept between calls, and grows when a call needs more.
    """

    def __init__(
        self, policy: StackedPolicy, *, ends: Collection[int], pad: int, cuda_graph: bool = True
    ) -> None:
        """`ends`: the tokens that end a response; `pad`: what stands after them. `cuda_graph=False` launches every
        step on its own on CUDA too, which is slow and simple to debug."""
        self._policy = policy
        self._ends, self._pad = sorted(ends), pad
        self._use_graphs = cuda_graph
        self._weights = policy
        self._slots: _Slots | None = None
        self._graphs: dict[tuple[int, float], torch.cuda.CUDAGraph] = {}
        self._addresses: tuple[int, ...] = ()

    @torch.no_grad()
    def sample(
        self,
        prompts: Int[Tensor, "run prompt prompt_time"],
        prompt_mask: Bool[Tensor, "run prompt prompt_time"],
        uniforms: Float[Tensor, "run batch time"],
        temperature: float = 1.0,
        copies: int = 1,
    ) -> tuple[Int[Tensor, "run batch time"], Bool[Tensor, "run batch time"]]:
        """Responses, and a mask that is True up to and with the first end token; `pad` stands after it.

        There are `copies` responses to each prompt (batch = prompt x copies, those of one prompt next to each other);
        a prompt is read once for all of them. `uniforms` holds one number in [0, 1) a token, and as many tokens as a
        response may have. The result is as long as the longest response. Temperature 0 takes the likeliest token.
        """
        device = self._policy.device
        prompts, prompt_mask, uniforms = (
            part.to(device) for part in (prompts, prompt_mask.bool(), uniforms.double())
        )
        self._require_fit(prompts, prompt_mask, uniforms, temperature, copies)
        self._refresh_weights()
        lengths = prompt_mask.sum(dim=-1)
        longest = int(lengths.max())
        runs, batch, steps = uniforms.shape
        slots = self._prepare(runs * batch, longest + steps, steps)
        slots.uniforms[:, :steps] = uniforms.flatten(0, 1)
        hidden = self._prefill(prompts, prompt_mask, lengths, longest, copies, slots)
        self._draw(hidden, slots, temperature)
        drawn = 1
        while drawn < steps and not (drawn % _STEPS_A_LOOK == 0 and bool(slots.ended.all())):
            self._advance(_round_up(longest + drawn, _PREFIX), slots, temperature)
            drawn += 1
        return self._finished(slots.ids[:, :drawn])

    def _require_fit(
        self, prompts: Tensor, prompt_mask: Tensor, uniforms: Tensor, temperature: float, copies: int
    ) -> None:
        runs = self._policy.runs
        if prompts.dim() != 3 or prompts.shape[0] != runs or prompt_mask.shape != prompts.shape:
            raise ValueError(
                f"prompts: [run prompt prompt_time] with {runs} runs is needed, and a mask of the same shape; "
                f"they are {tuple(prompts.shape)} and {tuple(prompt_mask.shape)}"
            )
        if (
            uniforms.dim() != 3
            or uniforms.shape[:2] != (runs, prompts.shape[1] * copies)
            or not uniforms.shape[2]
        ):
            raise ValueError(
                f"uniforms: shape {tuple(uniforms.shape)} does not fit; [run batch time] is needed, with {runs} runs and "
                f"{prompts.shape[1]} prompts x {copies} copies"
            )
        if temperature < 0:
            raise ValueError(f"temperature: 0 or more is needed, not {temperature}")
        if not bool(prompt_mask.any(dim=-1).all()):
            raise ValueError("prompt_mask: a prompt has no tokens; each needs at least one")
        if not bool(((uniforms >= 0) & (uniforms < 1)).all()):
            raise ValueError("uniforms: numbers in [0, 1) are needed")

    def _refresh_weights(self) -> None:
        """float32 weights are read where they are; for bfloat16 there is a copy, brought up to date in place."""
        policy = self._policy
        addresses = tuple(weight.data_ptr() for weight in policy.parameters())
        if addresses != self._addresses:  # the first call, or the policy went to another device
            self._addresses = addresses
            self._graphs.clear()
            self._slots = None
            self._weights = policy if policy.compute_dtype == torch.float32 else policy.compute_copy()
            self._end_ids = torch.tensor(self._ends, dtype=torch.long, device=policy.device)
        elif self._weights is not policy:
            self._weights.refresh(policy)

    def _prepare(self, rows: int, slots: int, steps: int) -> _Slots:
        held = self._slots
        if (
            held is None
            or held.token.shape[0] != rows
            or held.bias.shape[-1] < slots
            or held.ids.shape[1] < steps
        ):
            self._graphs.clear()
            self._slots = held = None  # free the old memory before the new is asked for
            policy = self._policy
            slots = _round_up(slots, _PREFIX)
            held = _Slots.empty(policy.shape, rows, slots, steps, policy.compute_dtype, policy.device)
            self._slots = held
        held.ids.fill_(self._pad)
        held.bias.fill_(-torch.inf)
        held.ended.fill_(False)
        held.step.zero_()
        return held

    def _prefill(
        self,
        prompts: Tensor,
        prompt_mask: Tensor,
        lengths: Int[Tensor, "run prompt"],
        longest: int,
        copies: int,
        slots: _Slots,
    ) -> Float[Tensor, "run batch width"]:
        """Read the prompts into the first slots; the LM head's input at their last tokens."""
        order = torch.argsort(~prompt_mask, dim=-1, stable=True)[..., :longest]

        def attend_and_keep(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            for cache, new in ((slots.keys, key), (slots.values, value)):
                # [prompt copy ...] = [prompt 1 ...]
                cache[layer, :, :, :longest].unflatten(0, (-1, copies)).copy_(new[:, None])
            return causal_attention(layer, query, key, value)

        places = torch.arange(longest, device=prompts.device)
        hidden = self._weights.run_layers(prompts.gather(-1, order), places, attend_and_keep)
        last = (lengths - 1)[..., None, None].expand(-1, -1, 1, hidden.shape[-1])
        slots.position.copy_(lengths.flatten().repeat_interleave(copies))
        slots.bias[:, 0, 0, :longest].masked_fill_(places < slots.position[:, None], 0.0)
        slots.slot.fill_(longest)
        return hidden.gather(2, last)[:, :, 0].repeat_interleave(copies, dim=1)

    def _advance(self, prefix: int, slots: _Slots, temperature: float) -> None:
        """One more token in every row."""
        if not (self._use_graphs and slots.token.is_cuda):
            self._step(prefix, slots, temperature)
            return
        key = (prefix, temperature)
        if key not in self._graphs:
            self._graphs[key] = self._capture(prefix, slots, temperature)
        self._graphs[key].replay()

    def _capture(self, prefix: int, slots: _Slots, temperature: float) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in slots.changed_by_a_step()]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(
            aside
        ):  # libraries set themselves up in a first step, which a graph must not contain
            self._step(prefix, slots, temperature)
        torch.cuda.current_stream().wait_stream(aside)
        for tensor, value in zip(slots.changed_by_a_step(), before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        # One pool: graphs never run at the same time, so that they can work in the same memory.
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._step(prefix, slots, temperature)
        return graph

    def _step(self, prefix: int, slots: _Slots, temperature: float) -> None:
        """Put the newest token into the cache and draw the next. Nothing here may wait for the device."""
        slots.bias.index_fill_(3, slots.slot, 0.0)
        bias = slots.bias[..., :prefix]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            for cache, new in ((slots.keys, key), (slots.values, value)):
                cache[layer].index_copy_(2, slots.slot, new)
            # Heads that share a key stand where the tokens of a sequence would: the cache is read once for all of them.
            kv_heads = key.shape[1]
            mixed = F.scaled_dot_product_attention(
                query.reshape(query.shape[0], kv_heads, -1, query.shape[-1]),
                slots.keys[layer, :, :, :prefix],
                slots.values[layer, :, :, :prefix],
                attn_mask=bias.expand(-1, kv_heads, query.shape[1] // kv_heads, -1),
            )
            return mixed.reshape(query.shape)

        hidden = self._weights.run_layers(
            self._by_run(slots.token)[..., None], self._by_run(slots.position)[..., None], attend
        )
        slots.position.add_(1)
        slots.slot.add_(1)
        self._draw(hidden[:, :, 0], slots, temperature)

    def _draw(self, hidden: Float[Tensor, "run batch width"], slots: _Slots, temperature: float) -> None:
        logits = self._weights.logits(hidden).flatten(0, 1)
        uniforms = slots.uniforms.index_select(1, slots.step)[:, 0]
        drawn = draw_tokens(logits, uniforms, temperature=temperature, top_p=1)
        slots.token.copy_(drawn.masked_fill_(slots.ended, self._pad))
        slots.ids.index_copy_(1, slots.step, slots.token[:, None])
        slots.ended.logical_or_(self._is_end(slots.token))
        slots.step.add_(1)

    def _is_end(self, tokens: Tensor) -> Tensor:
        return (tokens[..., None] == self._end_ids).any(dim=-1)

    def _finished(
        self, ids: Int[Tensor, "row step"]
    ) -> tuple[Int[Tensor, "run batch time"], Bool[Tensor, "run batch time"]]:
        ends = self._is_end(ids).long()
        mask = ends.cumsum(dim=-1) - ends == 0  # no end before
        longest = int(mask.sum(dim=-1).max())
        return self._by_run(ids[:, :longest].clone()), self._by_run(mask[:, :longest])

    def _by_run(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self._policy.runs, -1))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
