"""Sample responses of all runs of a stack at once: a static key-value cache, one decoding step at a time.

A token is found by inverting the cumulative distribution at a number drawn beforehand (`evaluate.drawing`), so that a
response depends on its own prompt and numbers, not on what is sampled beside it. On CUDA a step is captured as a graph
and replayed: the launches of a small model take longer than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_evidence.stack.layers import Shape, attention, round_up
from delta_evidence.stack.policy import StackedPolicy, pack
from delta_evidence.stack.ragged import SharedPrompts, shared_prefix
from delta_rlvr.credit.checks import require, require_mask
from delta_rlvr.evaluate.drawing import draw_tokens

# A step attends to as much of the cache as is in use, rounded up to a multiple of this. Each length has its own graph.
_PREFIX = 32
# Tokens that prompts must have in common before it pays to read these once.
_ALIKE = 64
# Steps between two looks at whether all responses have ended. A look waits for the device.
_STEPS_A_LOOK = 16


@dataclass(frozen=True)
class _Size:
    """Of the memory that decoding steps work in."""

    prompts: int
    """Of all runs."""
    copies: int
    """Responses to each prompt."""
    prompt_time: int
    time: int

    @property
    def rows(self) -> int:
        return self.prompts * self.copies

    def holds(self, other: _Size) -> bool:
        return (
            (self.prompts, self.copies) == (other.prompts, other.copies)
            and self.prompt_time >= other.prompt_time
            and self.time >= other.time
        )


@dataclass(frozen=True)
class _Slots:
    """The memory that decoding steps work in; a captured graph holds its addresses."""

    size: _Size
    prompt_cache: Float[Tensor, "two layer prompt kv_head prompt_time head_width"]
    """Keys and values of the prompts, once for all of their copies."""
    cache: Float[Tensor, "two layer row kv_head time head_width"]
    """Those of the responses."""
    prompt_bias: Float[Tensor, "prompt prompt_time"]
    """Added to attention scores: 0 where there is a token, -inf where there is none."""
    bias: Float[Tensor, " time"]
    """The same for the responses, which all have as many tokens."""
    lengths: Int[Tensor, " row"]
    """Tokens of the prompt."""
    uniforms: Float[Tensor, "row time"]
    ids: Int[Tensor, "row time"]
    token: Int[Tensor, " row"]
    """The newest, not yet in the cache."""
    ended: Bool[Tensor, " row"]
    drawn: Int[Tensor, " one"]
    """Tokens drawn, the same number in all rows."""

    @classmethod
    def empty(cls, size: _Size, shape: Shape, dtype: torch.dtype, device: torch.device) -> _Slots:
        def zeros(*sizes: int, of: torch.dtype) -> Tensor:
            return torch.zeros(sizes, dtype=of, device=device)

        # Zeros, not what lay in memory: a masked NaN would still spread.
        def cache(rows: int, time: int) -> Tensor:
            return zeros(2, shape.layers, rows, shape.kv_heads, time, shape.head_width, of=dtype)

        return cls(
            size,
            prompt_cache=cache(size.prompts, size.prompt_time),
            cache=cache(size.rows, size.time),
            prompt_bias=zeros(size.prompts, size.prompt_time, of=torch.float32),
            bias=zeros(size.time, of=torch.float32),
            lengths=zeros(size.rows, of=torch.long),
            uniforms=zeros(size.rows, size.time, of=torch.float64),
            ids=zeros(size.rows, size.time, of=torch.long),
            token=zeros(size.rows, of=torch.long),
            ended=zeros(size.rows, of=torch.bool),
            drawn=zeros(1, of=torch.long),
        )

    def changed_by_a_step(self) -> list[Tensor]:
        """All but the cache, where a step writes to its own slot only and can be repeated."""
        return [self.bias, self.ids, self.token, self.ended, self.drawn]


@dataclass(frozen=True)
class _Step:
    """What of a decoding step is fixed when it is captured."""

    prompt_prefix: int
    """Places of the prompts that are attended to."""
    prefix: int
    """Places of the responses."""
    temperature: float


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs of a process: cuBLAS keeps memory for every stream that it has ever worked on."""
    return torch.cuda.Stream(device)


class StackedSampler:
    """Samples from the policies of a stack as they are at the time of each call.

    Memory for the cache is kept between calls, and grows when a call needs more.
    """

    def __init__(self, policy: StackedPolicy, *, ends: Collection[int], pad: int, cuda_graph: bool = True) -> None:
        """`ends`: the tokens that end a response; `pad`: what stands after them. `cuda_graph=False` launches every
        step on its own on CUDA too, which is slow and simple to debug."""
        self._policy = policy
        self._ends, self._pad = sorted(ends), pad
        self._use_graphs = cuda_graph
        self._weights = policy
        self._addresses: tuple[int, ...] = ()
        self._graphs: dict[_Step, torch.cuda.CUDAGraph] = {}
        self._slots: _Slots | None = None

    def another(self, policy: StackedPolicy | None = None) -> StackedSampler:
        """A sampler with memory of its own, of the same policies if no others are given. Batches of another size then do not cost
        this one its graphs."""
        return StackedSampler(policy or self._policy, ends=self._ends, pad=self._pad, cuda_graph=self._use_graphs)

    @torch.no_grad()
    def sample(
        self,
        prompts: Int[Tensor, "run prompt prompt_time"],
        prompt_mask: Bool[Tensor, "run prompt prompt_time"],
        uniforms: Float[Tensor, "run batch time"],
        temperature: float = 1.0,
        copies: int = 1,
    ) -> tuple[Int[Tensor, "run batch longest"], Bool[Tensor, "run batch longest"]]:
        """Responses, and a mask that is True up to and with the first end token; `pad` stands after it.

        There are `copies` responses to each prompt (batch = prompt x copies, those of one prompt next to each other);
        a prompt is read once for all of them. `uniforms` holds one number in [0, 1) a token, and as many tokens as a
        response may have. The result is as long as the longest response. Temperature 0 takes the likeliest token.
        """
        device = self._policy.device
        prompts, prompt_mask, uniforms = (part.to(device) for part in (prompts, prompt_mask, uniforms.double()))
        self._require_fit(prompts, prompt_mask, uniforms, temperature, copies)
        self._refresh_weights()
        lengths = prompt_mask.sum(dim=-1).flatten()
        longest, time = int(lengths.max()), uniforms.shape[-1]
        prompt_prefix = round_up(longest, _PREFIX)
        slots = self._prepare(_Size(len(lengths), copies, prompt_prefix, round_up(time, _PREFIX)))
        slots.uniforms[:, :time] = uniforms.flatten(0, 1)
        slots.lengths.copy_(lengths.repeat_interleave(copies))
        slots.prompt_bias.masked_fill_(torch.arange(slots.size.prompt_time, device=device) < lengths[:, None], 0.0)
        packed = pack(prompts, prompt_mask)[..., :longest]
        read = self._read_alike if shared_prefix(packed, prompt_mask.sum(-1)) >= _ALIKE else self._read_prompts
        self._draw(read(packed, slots).repeat_interleave(copies, dim=1), slots, temperature)
        drawn = 1
        while drawn < time and not (drawn % _STEPS_A_LOOK == 0 and bool(slots.ended.all())):
            self._advance(_Step(prompt_prefix, round_up(drawn, _PREFIX), temperature), slots)
            drawn += 1
        return self._finished(slots.ids[:, :drawn])

    def _require_fit(
        self, prompts: Tensor, prompt_mask: Tensor, uniforms: Tensor, temperature: float, copies: int
    ) -> None:
        runs = self._policy.runs
        require(
            prompts.dim() == 3 and prompts.shape[0] == runs and prompt_mask.shape == prompts.shape,
            f"prompts: [run prompt prompt_time] with {runs} runs is needed, and a mask of the same shape; "
            f"they are {tuple(prompts.shape)} and {tuple(prompt_mask.shape)}",
        )
        rows = runs, prompts.shape[1] * copies
        require(
            uniforms.dim() == 3 and uniforms.shape[:2] == rows and uniforms.numel() > 0,
            f"uniforms: shape {tuple(uniforms.shape)} does not fit; [run batch time] is needed, with {runs} runs and "
            f"{prompts.shape[1]} prompts x {copies} copies",
        )
        require_mask(prompt_mask)
        require(temperature >= 0, f"temperature: 0 or more is needed, not {temperature}")
        filled = bool(prompt_mask.any(dim=-1).all())
        require(filled, "prompt_mask: a prompt has no tokens; each needs at least one")
        require(bool(((uniforms >= 0) & (uniforms < 1)).all()), "uniforms: numbers in [0, 1) are needed")

    def _refresh_weights(self) -> None:
        """float32 weights are read where they are; for bfloat16 there is a copy, brought up to date in place."""
        addresses = tuple(weight.data_ptr() for weight in self._policy.parameters())
        if addresses == self._addresses:
            self._weights.refresh(self._policy)
            return
        # The first call, or the policy went to another device.
        self._addresses = addresses
        self._graphs.clear()
        self._slots = None
        self._weights = self._policy.compute_copy()
        self._end_ids = torch.tensor(self._ends, dtype=torch.long, device=self._policy.device)

    def _prepare(self, size: _Size) -> _Slots:
        """Memory that is large enough, with nothing in it."""
        slots = self._slots
        if slots is None or not slots.size.holds(size):
            self._graphs.clear()
            self._slots = slots = None  # the old memory is free before the new is asked for
            policy = self._policy
            self._slots = slots = _Slots.empty(size, policy.shape, policy.compute_dtype, policy.device)
        slots.prompt_bias.fill_(-torch.inf)
        slots.bias.fill_(-torch.inf)
        slots.ids.fill_(self._pad)
        slots.ended.fill_(False)
        slots.drawn.zero_()
        return slots

    def _read_prompts(
        self, prompts: Int[Tensor, "run prompt time"], slots: _Slots
    ) -> Float[Tensor, "run prompt width"]:
        """Fill the prompts' cache; the LM head's input at their last tokens."""
        time = prompts.shape[-1]

        def attend_and_keep(cache: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            cache[0, :, :, :time], cache[1, :, :, :time] = key, value
            return attention(query, key, value)

        hidden = self._weights.run_layers(
            prompts,
            torch.arange(time, device=prompts.device),
            [partial(attend_and_keep, cache) for cache in slots.prompt_cache.unbind(1)],
        )
        last = self._by_run(slots.lengths[:: slots.size.copies] - 1)[..., None, None]
        return hidden.gather(2, last.expand(-1, -1, 1, hidden.shape[-1]))[:, :, 0]

    def _read_alike(self, prompts: Int[Tensor, "run prompt time"], slots: _Slots) -> Float[Tensor, "run prompt width"]:
        """The same, with what all prompts of a run begin with read once."""
        lengths = self._by_run(slots.lengths[:: slots.size.copies])
        shared = SharedPrompts.over(prompts, lengths, self._policy.compute_dtype)
        time = shared.prefix + shared.rest

        def attend_and_keep(cache: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = shared.keys(key), shared.keys(value)
            cache[0, :, :, :time], cache[1, :, :, :time] = keys, values
            return shared.attend(query, key, value, keys, values)

        hidden = self._weights.run_layers(
            shared.ids[:, None],
            shared.positions[:, None],
            [partial(attend_and_keep, cache) for cache in slots.prompt_cache.unbind(1)],
        )
        return shared.ends(hidden[:, 0])

    def _advance(self, step: _Step, slots: _Slots) -> None:
        """One more token in every row."""
        if not (self._use_graphs and slots.token.is_cuda):
            self._decode(step, slots)
            return
        if step not in self._graphs:
            self._graphs[step] = self._capture(step, slots)
        self._graphs[step].replay()

    def _capture(self, step: _Step, slots: _Slots) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in slots.changed_by_a_step()]
        aside = _capture_stream(slots.token.device)
        aside.wait_stream(torch.cuda.current_stream())
        # Libraries set themselves up in a first step, which a graph must not contain.
        with torch.cuda.stream(aside):
            self._decode(step, slots)
        torch.cuda.current_stream().wait_stream(aside)
        for tensor, value in zip(slots.changed_by_a_step(), before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        # One pool: graphs never run at the same time, so that they can work in the same memory.
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool, stream=aside):
            self._decode(step, slots)
        return graph

    def _decode(self, step: _Step, slots: _Slots) -> None:
        """Put the newest token into the cache and draw the next. Nothing here may wait for the device."""
        place = slots.drawn - 1
        slots.bias.index_fill_(0, place, 0.0)
        attentions = [
            _Attention(slots, step, place, prompt_cache, cache)
            for prompt_cache, cache in zip(slots.prompt_cache.unbind(1), slots.cache.unbind(1), strict=True)
        ]
        hidden = self._weights.run_layers(
            self._by_run(slots.token)[..., None], self._by_run(slots.lengths + place)[..., None], attentions
        )
        self._draw(hidden[:, :, 0], slots, step.temperature)

    def _draw(self, hidden: Float[Tensor, "run batch width"], slots: _Slots, temperature: float) -> None:
        logits = self._weights.logits(hidden).flatten(0, 1)
        uniforms = slots.uniforms.index_select(1, slots.drawn)[:, 0]
        drawn = draw_tokens(logits, uniforms, temperature=temperature, top_p=1)
        slots.token.copy_(drawn.masked_fill_(slots.ended, self._pad))
        slots.ids.index_copy_(1, slots.drawn, slots.token[:, None])
        slots.ended.logical_or_(self._is_end(slots.token))
        slots.drawn.add_(1)

    def _is_end(self, tokens: Tensor) -> Tensor:
        return (tokens[..., None] == self._end_ids).any(dim=-1)

    def _finished(
        self, ids: Int[Tensor, "row time"]
    ) -> tuple[Int[Tensor, "run batch longest"], Bool[Tensor, "run batch longest"]]:
        ends = self._is_end(ids).long()
        mask = ends.cumsum(dim=-1) - ends == 0  # no end before
        longest = int(mask.sum(dim=-1).max())
        return self._by_run(ids[:, :longest].clone()), self._by_run(mask[:, :longest])

    def _by_run(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self._policy.runs, -1))


@dataclass(frozen=True)
class _Attention:
    """One layer's attention in a decoding step: the newest tokens look at their prompts and at the tokens before them.

    A product for the prompts, which serves all responses and heads that share a key with one read of it, and one for the
    responses; one softmax over both. Reading the cache is what takes the time here, so the prompts are not in it once a
    response. Plain products, because the fused kernels are made for many queries per row: with one, on an H200,
    scaled_dot_product_attention took 2.8 times as long in float32 and 1.3 times as long in bfloat16.

    Axes: row = prompt x copy, head = kv_head x sharing (the heads that share a key). Products are batched over what has a
    key of its own: (prompt kv_head) for the prompts' keys, (row kv_head) for the responses' own.
    """

    slots: _Slots
    step: _Step
    place: Int[Tensor, " one"]
    """Where in the cache the newest tokens go."""
    prompt_cache: Float[Tensor, "two prompt kv_head prompt_time head_width"]
    cache: Float[Tensor, "two row kv_head time head_width"]

    def __call__(
        self,
        query: Float[Tensor, "row head one head_width"],
        key: Float[Tensor, "row kv_head one head_width"],
        value: Float[Tensor, "row kv_head one head_width"],
    ) -> Float[Tensor, "row head one head_width"]:
        step, (_, kv_heads, _, width) = self.step, key.shape
        self.cache[0].index_copy_(2, self.place, key)
        self.cache[1].index_copy_(2, self.place, value)
        prompt_keys, prompt_values = self.prompt_cache[:, :, :, : step.prompt_prefix].flatten(1, 2).unbind()
        own_keys, own_values = self.cache[:, :, :, : step.prefix].flatten(1, 2).unbind()
        # [prompt copy kv_head sharing head_width]
        queries = query.view(-1, self.slots.size.copies, kv_heads, query.shape[1] // kv_heads, width)
        on_prompt = self._by_copy(_product(_by_prompt(queries), prompt_keys.mT), kv_heads)
        on_own = _product(queries.flatten(0, 2), own_keys.mT).view(*queries.shape[:-1], step.prefix)
        prompt_bias = self.slots.prompt_bias[:, None, None, None, : step.prompt_prefix]
        on_prompt = torch.add(prompt_bias, on_prompt, alpha=width**-0.5)
        on_own = torch.add(self.slots.bias[: step.prefix], on_own, alpha=width**-0.5)
        scores = torch.cat([on_prompt, on_own], dim=-1)
        weights = scores.softmax(dim=-1).to(query.dtype)
        on_prompt, on_own = weights.split([step.prompt_prefix, step.prefix], dim=-1)
        mixed = self._by_copy(_product(_by_prompt(on_prompt), prompt_values), kv_heads)
        mixed = mixed + _product(on_own.flatten(0, 2), own_values).view(mixed.shape)
        return mixed.to(query.dtype).reshape(query.shape)

    def _by_copy(
        self, products: Float[Tensor, "prompt_kv_head copy_sharing any"], kv_heads: int
    ) -> Float[Tensor, "prompt copy kv_head sharing any"]:
        by_prompt = products.unflatten(0, (-1, kv_heads)).unflatten(2, (self.slots.size.copies, -1))
        return by_prompt.transpose(1, 2)


def _by_prompt(
    rows: Float[Tensor, "prompt copy kv_head sharing any"],
) -> Float[Tensor, "prompt_kv_head copy_sharing any"]:
    return rows.transpose(1, 2).flatten(2, 3).flatten(0, 1)


def _product(
    rows: Float[Tensor, "group row inner"], columns: Float[Tensor, "group inner column"]
) -> Float[Tensor, "group row column"]:
    """With a float32 result: scores rounded to bfloat16 would no longer be those of the training pass."""
    if rows.dtype == torch.float32:
        return torch.bmm(rows, columns)
    if rows.is_cuda:
        return torch.bmm(rows, columns, out_dtype=torch.float32)
    return torch.bmm(rows.float(), columns.float())
