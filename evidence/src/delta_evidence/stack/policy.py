"""Many policies of one shape, run side by side: every weight has a leading axis "run".

The runs of a study (seeds, methods) are small models that each leave most of a machine idle. Stacked, a linear layer of
all of them is one batched product. Nothing is shared between runs but the launch: outputs and gradients of run r depend
on `weight[r]` alone, and gradients of run r lie in `grad[r]`.

Weights are float32. Products are taken in `compute_dtype`; the residual stream, norms, rotations and softmax are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from delta_evidence.stack.layers import (
    Attention,
    Shape,
    SharedPromptAttention,
    StackedLayer,
    as_parameter,
    response_bias,
    rms_norm,
    round_up,
)
from delta_evidence.stack.logprobs import head_logits, token_logps
from delta_evidence.stack.model_weights import layer_weights, shape_of, split_layer_weight
from delta_evidence.stack.ragged import Ragged
from delta_rlvr.credit.checks import require_mask, require_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class StackedPolicy(nn.Module):
    """The policies of several runs: Qwen3, Qwen2 or Llama (without biases), with default rotary positions."""

    embedding: nn.Parameter
    untied_head: nn.Parameter | None
    inverse_frequencies: Tensor

    def __init__(
        self,
        shape: Shape,
        compute_dtype: torch.dtype,
        *,
        embedding: Tensor,
        layers: Sequence[dict[str, Tensor]],
        norm: Tensor,
        head: Tensor | None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.compute_dtype = compute_dtype
        self.embedding = as_parameter(embedding)
        self.layers = nn.ModuleList(StackedLayer(shape, weights) for weights in layers)
        self.norm = as_parameter(norm)
        self.register_parameter("untied_head", None if head is None else as_parameter(head))
        self.register_buffer("inverse_frequencies", shape.inverse_frequencies(embedding.device), persistent=False)

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        runs: int,
        *,
        compute_dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> StackedPolicy:
        """`runs` policies, each with the weights of `model`."""
        if runs < 1:
            raise ValueError(f"runs: at least one is needed, not {runs}")
        if compute_dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"compute_dtype: torch.float32 or torch.bfloat16, not {compute_dtype}")
        shape = shape_of(model)
        if torch.device(device).type == "cuda":
            # cuDNN's backward pass of attention with a mask gives NaN for heads whose scores are all very low, as some of Qwen2.5's
            # are (torch 2.11 and later on an H100 or H200, pytorch/pytorch#196678). The other kernels do not.
            torch.backends.cuda.enable_cudnn_sdp(False)

        def repeated(weight: Tensor) -> Tensor:
            # Repeated on the device: the host is slow to copy, and the way there is long.
            return weight.detach().float().to(device).repeat(runs, *[1] * weight.dim())

        return cls(
            shape,
            compute_dtype,
            embedding=repeated(model.model.embed_tokens.weight),
            layers=[
                {name: repeated(weight) for name, weight in layer_weights(model, number).items()}
                for number in range(shape.layers)
            ],
            norm=repeated(model.model.norm.weight),
            head=None if shape.tied else repeated(model.lm_head.weight),
        )

    @property
    def runs(self) -> int:
        return self.embedding.shape[0]

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def head(self) -> Float[Tensor, "run vocab width"]:
        """The LM head's weights; those of the embedding where the two are tied."""
        return self.embedding if self.untied_head is None else self.untied_head

    def response_hidden(
        self,
        prompts: Int[Tensor, "run prompt prompt_time"],
        prompt_mask: Bool[Tensor, "run prompt prompt_time"],
        responses: Int[Tensor, "run batch time"],
        copies: int = 1,
        mask: Bool[Tensor, "run batch time"] | None = None,
    ) -> Float[Tensor, "run batch time width"]:
        """The LM head's input at the positions that predict the tokens of responses, which have padding on the right only.

        There are `copies` responses to each prompt, next to each other (batch = prompt x copies), as the sampler makes
        them. A prompt is read once for all of them: the same numbers and gradients as of prompt and response in one row
        each, for a fraction of the work where prompts are long. With `mask`, the responses' valid tokens, no work is done
        for padding either, nor more than once for what all prompts of a run begin with.
        """
        require_shape("prompt_mask", prompt_mask, tuple(prompts.shape), "that of the tokens")
        require_mask(prompt_mask)
        runs, count, _ = prompts.shape
        require_shape(
            "responses",
            responses,
            (runs, count * copies, responses.shape[-1]),
            f"{runs} runs x {count} prompts x {copies} copies",
        )
        packed, lengths = pack(prompts, prompt_mask), prompt_mask.sum(dim=-1)
        if mask is None:
            return self._padded_hidden(packed, lengths, responses, copies)
        ragged = Ragged.over(packed, lengths, responses, mask, copies, self.compute_dtype)
        hidden = self.run_layers(ragged.ids, ragged.positions, [ragged.attend] * len(self.layers))
        return ragged.predicting(hidden[:, 0])[:, :, : responses.shape[-1]]

    def _padded_hidden(
        self,
        packed: Int[Tensor, "run prompt prompt_time"],
        lengths: Int[Tensor, "run prompt"],
        responses: Int[Tensor, "run batch time"],
        copies: int,
    ) -> Float[Tensor, "run batch time width"]:
        """The same with padding: a prompt and all of its responses are one row."""
        (runs, count, width), time = packed.shape, responses.shape[-1]
        prompt_time = round_up(int(lengths.max()) + time) - time
        # Cut at the end, or filled up there: no valid token stands behind the longest prompt.
        packed = F.pad(packed, (0, prompt_time - width))
        rows = torch.cat([packed, responses.reshape(runs, count, copies * time)], dim=-1)
        places = torch.arange(prompt_time, device=rows.device).expand(runs, count, -1)
        own_places = lengths[..., None] + torch.arange(time, device=rows.device).repeat(copies)
        bias = response_bias(lengths.flatten(), prompt_time, copies, time, self.compute_dtype)
        attention = SharedPromptAttention(prompt_time, copies, bias)
        positions = torch.cat([places, own_places], dim=-1)
        hidden = self.run_layers(rows, positions, [attention] * len(self.layers))
        last = hidden.gather(2, (lengths - 1)[..., None, None].expand(-1, -1, 1, hidden.shape[-1]))
        of_responses = hidden[:, :, prompt_time:].reshape(runs, count * copies, time, -1)
        return torch.cat([last.repeat_interleave(copies, dim=1), of_responses[:, :, :-1]], dim=2)

    def run_layers(
        self, ids: Int[Tensor, "run batch time"], positions: Int[Tensor, "*rows time"], attentions: Sequence[Attention]
    ) -> Float[Tensor, "run batch time width"]:
        """Embedding, layers (each with its attention) and final norm. `positions` is [time], or [run batch time]
        where rows differ."""
        angles = positions[..., None, None].float() * self.inverse_frequencies
        sine = angles.sin()
        # The sign of the half turn stands in the sine, see `_rotate`.
        rotation = torch.cat([angles, angles], dim=-1).cos(), torch.cat([-sine, sine], dim=-1)
        stream = self._embed(ids)
        for layer, attend in zip(self.layers, attentions, strict=True):
            stream = layer(stream, rotation, attend, self.compute_dtype)
        return rms_norm(stream, self.norm, self.shape.norm_eps).to(self.compute_dtype)

    def _embed(self, ids: Int[Tensor, "run batch time"]) -> Float[Tensor, "run batch time width"]:
        runs, vocab, width = self.embedding.shape
        offsets = torch.arange(0, runs * vocab, vocab, device=ids.device)
        embedded = F.embedding(ids + offsets[:, None, None], self.embedding.view(runs * vocab, width))
        if self.shape.padding_id is None or not torch.is_grad_enabled():
            return embedded
        return torch.where((ids == self.shape.padding_id)[..., None], embedded.detach(), embedded)

    def logits(self, hidden: Float[Tensor, "run row width"]) -> Float[Tensor, "run row vocab"]:
        """In float32, of a product in the compute dtype."""
        return head_logits(hidden, self.head)

    def token_logps(
        self,
        hidden: Float[Tensor, "run batch time width"],
        tokens: Int[Tensor, "run batch time"],
        temperature: float = 1.0,
        entropy: bool = False,
        mask: Bool[Tensor, "run batch time"] | None = None,
    ) -> tuple[Float[Tensor, "run batch time"], Float[Tensor, "run batch time"] | None]:
        """Log-prob of each token at the position that predicts it and, if asked for, the entropy there.

        The logits of all tokens are never held at once. What stands outside of `mask` may be left out, and is then 0.
        """
        if temperature <= 0:
            raise ValueError(f"temperature: above 0 is needed, not {temperature}")
        require_shape("tokens", tokens, tuple(hidden.shape[:3]), "[run batch time] of hidden")
        logps, entropies = token_logps(
            hidden.flatten(1, 2),
            self.head,
            tokens.flatten(1, 2),
            temperature,
            mask=None if mask is None else mask.flatten(1, 2),
            entropy=entropy,
        )
        return logps.view(tokens.shape), None if entropies is None else entropies.view(tokens.shape)

    def alone(self, run: int) -> StackedPolicy:
        """One of the policies as a stack of its own, for passes without a gradient. Its weights are those of this stack, and follow
        them as long as they are changed in place."""

        def one(weight: Tensor) -> Tensor:
            return weight.detach()[run : run + 1]

        head = None if self.untied_head is None else one(self.untied_head)
        return self._made_of(one, self.shape, embedding=one(self.embedding), norm=one(self.norm), head=head)

    @torch.no_grad()
    def compute_copy(self) -> StackedPolicy:
        """The same policies with their matrices cast to the compute dtype once, for many forward passes without a
        gradient. What needs no cast is this policy's own; `refresh` brings the rest up to date."""
        shape, head = replace(self.shape, tied=False), self._cast(self.head)
        return self._made_of(self._cast, shape, embedding=self.embedding, norm=self.norm, head=head)

    def _made_of(self, part: Callable[[Tensor], Tensor], shape: Shape, **others: Tensor | None) -> StackedPolicy:
        """A stack whose layers have a part of the weights of these."""
        layers = [{name: part(weight) for name, weight in one.named_parameters()} for one in self.layers]
        return StackedPolicy(shape, self.compute_dtype, layers=layers, **others)  # type: ignore[arg-type]

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.to(self.compute_dtype) if weight.dim() == 3 else weight

    @torch.no_grad()
    def refresh(self, source: StackedPolicy) -> None:
        """Bring a `compute_copy` up to date with the policy it was made from, in place."""
        pairs = [(self.head, source.head)]
        for layer, of_source in zip(self.layers, source.layers, strict=True):
            pairs += zip(layer.parameters(), of_source.parameters(), strict=True)
        stale = [(copy, weight) for copy, weight in pairs if copy.dtype != weight.dtype]
        if stale:
            torch._foreach_copy_([copy for copy, _ in stale], [weight for _, weight in stale])

    @torch.no_grad()
    def load_into(self, run: int, model: PreTrainedModel) -> None:
        """Copy the weights of one run into a transformers model of the same shape."""
        if shape_of(model) != self.shape or model.model.embed_tokens.weight.shape != self.embedding.shape[1:]:
            raise ValueError("model: another shape than the policies of the stack")
        model.model.embed_tokens.weight.copy_(self.embedding[run])
        model.model.norm.weight.copy_(self.norm[run])
        if self.untied_head is not None:
            model.lm_head.weight.copy_(self.untied_head[run])
        for number, layer in enumerate(self.layers):
            for name, weight in layer.named_parameters():
                for target, part in split_layer_weight(model, number, name, weight[run]):
                    target.copy_(part)


def pack(ids: Int[Tensor, "run batch time"], mask: Bool[Tensor, "run batch time"]) -> Int[Tensor, "run batch time"]:
    """Valid tokens moved to the front of their row, in order."""
    return ids.gather(-1, torch.argsort(~mask, dim=-1, stable=True))


@torch.no_grad()
def clip_gradients(policy: StackedPolicy, max_norm: float) -> Float[Tensor, " run"]:
    """Scale each run's gradient down to `max_norm` as torch.nn.utils.clip_grad_norm_ would do for that run alone;
    the norms before."""
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    if not gradients:
        raise ValueError("policy: no gradients to clip; call backward() first")
    by_parameter = torch.stack([torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients])
    norms = torch.linalg.vector_norm(by_parameter, dim=0)
    scales = (max_norm / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scales.view(-1, *[1] * (gradient.dim() - 1)))
    return norms
