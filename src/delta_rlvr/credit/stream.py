"""The way in: coefficients of a batch that exists as tensors, and of one that arrives in micro-batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import (
    finite_problem,
    first_bad_row,
    require,
    require_float,
    require_integer,
    require_mask,
    require_shape,
)
from delta_rlvr.credit.config import DeltaConfig
from delta_rlvr.credit.proxies import HeadProxy, RowProxy, row_factor, topk_hidden_rows
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.reduce import Reducer, wide
from delta_rlvr.credit.store import RowStore
from delta_rlvr.credit.weighting import Weighting, weigh


class CreditStream:
    """Collects a rollout batch as the old-log-prob pass produces it, then solves for its token weights.

    `add` takes padded micro-batches (hidden [b, T, d] with a mask [b, T]) or packed ones (hidden [n, d] with the lengths of the
    responses); the responses are numbered in the order in which they come. `solve` may be called once a batch; `clear` starts the next.
    """

    def __init__(
        self,
        config: Weighting = DeltaConfig(),  # noqa: B008 - frozen
        *,
        head: Float[Tensor, "vocab width"] | None = None,
        temperature: float = 1.0,
        store: RowStore | None = None,
        process_group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
    ):
        require(
            isinstance(temperature, (int, float)) and 0 < temperature < float("inf"),
            f"temperature={temperature!r}: give the sampling temperature, a positive number",
        )
        self.config = config
        self._delta = config if isinstance(config, DeltaConfig) else None
        self.temperature = float(temperature)
        self.head = self._checked_head(head)
        self.store = store if store is not None else RowStore()
        self.process_group = process_group
        self._given_device = torch.device(device) if device is not None else None
        self.clear()

    @property
    def needs_hidden(self) -> bool:
        """Whether `add` has to be given hidden states."""
        return self._delta is not None and self._delta.needs_proxies

    def clear(self) -> None:
        """Forget the batch and start the next."""
        self.store.clear()
        self._lengths: list[Tensor] = []
        self._logps: list[Tensor] = []
        self._entropy: list[Tensor] = []
        self._tokens: list[Tensor] = []
        self._row_sums: list[Tensor] = []
        self._device = self._given_device

    def add(
        self,
        hidden: Float[Tensor, "..."] | None,
        logps: Float[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
        tokens: Int[Tensor, "..."] | None = None,
        entropy: Float[Tensor, "..."] | None = None,
        recompute: Callable[[], Float[Tensor, "..."]] | None = None,
    ) -> None:
        """Add responses: padded with `mask`, or packed with `lengths`.

        `logps` and `entropy` may be left out and given to `solve` for the whole batch at once, as they often are known only
        after the pass. `recompute` gives the same `hidden` again; it is asked for only where the store has no room.
        """
        require(
            (mask is None) != (lengths is None),
            "mask, lengths: give a mask [batch, time] with padded tensors, or lengths [batch] with packed ones",
        )
        if mask is not None:
            require_mask(mask)
            require(mask.dim() == 2, f"mask: shape {tuple(mask.shape)} does not fit; [batch, time] is needed")
            lead, pick = tuple(mask.shape), mask
            lengths = mask.sum(1)
        else:
            assert lengths is not None
            require_integer("lengths", lengths)
            require(
                lengths.dim() == 1, f"lengths: shape {tuple(lengths.shape)} does not fit; [batch] is needed"
            )
            require(bool((lengths >= 0).all()), "lengths: a response cannot have fewer than 0 tokens")
            lead, pick = (int(lengths.sum()),), None
        meaning = "[batch, time]" if pick is not None else "[sum of lengths]"
        packed: dict[str, Tensor] = {}
        for name, values in (("logps", logps), ("entropy", entropy), ("tokens", tokens)):
            if values is None:
                continue
            require_shape(name, values, lead, meaning)
            (require_integer if name == "tokens" else require_float)(name, values)
            packed[name] = (values if pick is None else values[pick]).detach()

        if self.needs_hidden:
            if hidden is None:
                raise ValueError("hidden: this method needs the hidden states; pass them")
            rows = self._rows(hidden, lead, pick, packed.get("tokens"), meaning)

            def again() -> Tensor:
                assert recompute is not None
                return self._rows(recompute(), lead, pick, packed.get("tokens"), meaning)

            self.store.add(rows, None if recompute is None else again)
            # A row's sum is finite unless an entry is not: one read, no mask the size of the batch, and no wait for the device.
            self._row_sums.append(rows.sum(-1, dtype=torch.float32))
        self._device = self._device or lengths.device
        self._lengths.append(lengths.to(torch.int64))
        self._logps += [packed["logps"]] if "logps" in packed else []
        self._entropy += [packed["entropy"]] if "entropy" in packed else []
        self._tokens += [packed["tokens"].to(torch.int64)] if "tokens" in packed else []

    @torch.no_grad()
    def solve(
        self,
        advantages: Float[Tensor, " batch"],
        *,
        logps: Float[Tensor, " token"] | None = None,
        entropy: Float[Tensor, " token"] | None = None,
        groups: Int[Tensor, " batch"] | None = None,
        keys: Int[Tensor, " batch"] | None = None,
        round_number: int = 0,
        config: Weighting | None = None,
    ) -> CreditRecord:
        """Token weights of everything added, over all ranks of the process group (each of which must call this).

        `logps` and `entropy` [token] are packed in the order of `add`. `keys` identify the responses for seeded draws (default:
        their number in the batch), `round_number` the batch. `config` asks for another method's weights on the same batch; its
        proxy must be read from the same stored rows.
        """
        weighting = self.config if config is None else config
        device = self._device or advantages.device
        reducer = Reducer(self.process_group, device)
        problem: ValueError | None = None
        batch: TokenBatch | None = None
        try:
            batch = self._batch(
                weighting, advantages, logps, entropy, groups, keys, round_number, reducer, device
            )
        except ValueError as error:
            problem = error
        reducer.agree(problem)
        assert batch is not None
        require(batch.token_count > 0, "mask: it has no valid token, so there is nothing to weigh")
        if keys is None:
            before = sum(reducer.gather_counts(len(batch.lengths))[: reducer.rank])
            batch.keys.add_(before)
        return weigh(batch, weighting)

    def _batch(
        self,
        weighting: Weighting,
        advantages: Tensor,
        logps: Tensor | None,
        entropy: Tensor | None,
        groups: Tensor | None,
        keys: Tensor | None,
        round_number: int,
        reducer: Reducer,
        device: torch.device,
    ) -> TokenBatch:
        """Everything checked and packed. No collective may stand here: it raises on one rank alone."""
        lengths = (
            torch.cat(self._lengths) if self._lengths else torch.zeros(0, dtype=torch.int64, device=device)
        )
        count, token_count = len(lengths), int(lengths.sum())
        row = torch.repeat_interleave(torch.arange(count, device=device), lengths)
        require_shape("advantages", advantages, (count,), "[batch]")
        require_float("advantages", advantages)
        advantages = advantages.detach().to(device=device, dtype=wide(device))
        # A response without a valid token has no say: what its advantage holds is never looked at.
        bad = ~advantages.isfinite() & (lengths > 0)
        if bad.any():
            raise ValueError(
                f"advantages: not finite (NaN or inf) in row {int(bad.nonzero()[0, 0])}. Look at its reward and its group's spread"
            )
        advantages = torch.where(lengths > 0, advantages, 0.0)
        delta = weighting if isinstance(weighting, DeltaConfig) else None
        if weighting != self.config:
            self._check_same_rows(delta)
        logps = self._packed("logps", self._logps, logps, token_count, row, needed=weighting.needs_logps)
        if logps is not None and bool((logps > 1e-2).any()):
            raise ValueError(
                f"logps: a log-prob cannot be positive, as at row {first_bad_row(logps > 1e-2, row)}; pass log p, not p"
            )
        entropy = self._packed(
            "entropy", self._entropy, entropy, token_count, row, needed=weighting.needs_entropy
        )
        tokens = torch.cat(self._tokens) if self._tokens else None
        if self._row_sums:
            suspect = ~torch.cat(self._row_sums).isfinite()
            if suspect.any():
                self._name_bad_hidden(row)
        numbers = torch.arange(count, device=device)
        if (
            self._delta is not None
            and self._delta.scope == "group"
            and self._delta.needs_proxies
            and groups is None
        ):
            raise ValueError(
                "groups: scope='group' needs the prompt id of each response; pass groups [batch]"
            )
        for name, ids in (("groups", groups), ("keys", keys)):
            if ids is not None:
                require_shape(name, ids, (count,), "[batch]")
                require_integer(name, ids)
        logps = None if logps is None else logps.to(wide(device))
        entropy = None if entropy is None else entropy.to(wide(device))
        proxy = delta.proxy if delta is not None and delta.needs_proxies else None
        return TokenBatch(
            lengths=lengths,
            advantages=advantages,
            groups=numbers if groups is None else groups.to(device=device, dtype=torch.int64),
            keys=numbers.clone() if keys is None else keys.to(device=device, dtype=torch.int64),
            round_number=round_number,
            logps=logps,
            entropy=entropy,
            tokens=tokens,
            store=None if proxy is None else self.store,
            proxy=HeadProxy(self.head, self.temperature) if proxy == "head" else RowProxy(),  # type: ignore[arg-type]
            factor=row_factor(proxy, logps, entropy),
            reducer=reducer,
        )

    def _check_same_rows(self, other: DeltaConfig | None) -> None:
        """Another method can be solved for only if what it reads is what was stored."""
        if other is not None and other.needs_proxies:
            stored = self._delta.stored_rows if self.needs_hidden and self._delta is not None else None
            require(
                other.stored_rows == stored and (not other.needs_head or self.head is not None),
                f"config: proxy={other.proxy!r} cannot be read from what this stream stored; make one for it",
            )

    def _packed(
        self,
        name: str,
        added: list[Tensor],
        given: Tensor | None,
        token_count: int,
        row: Tensor,
        *,
        needed: bool,
    ) -> Tensor | None:
        """A token array from `add` or from `solve`, checked."""
        require(not (added and given is not None), f"{name}: give it to `add` or to `solve`, not to both")
        values = torch.cat(added) if added else given
        if values is None:
            require(
                not needed or token_count == 0,
                f"{name}: this method needs it; pass it to `add` or to `solve`",
            )
            return torch.zeros(0, device=row.device) if needed else None
        require_shape(name, values, (token_count,), "one value a valid token, packed,")
        require_float(name, values)
        problem = finite_problem(name, ~values.isfinite(), row)
        if problem is not None:
            raise problem
        return values.detach().to(row.device)

    def _name_bad_hidden(self, row: Tensor) -> None:
        """A row's sum was not finite: find out whether an entry is not (a sum of huge entries may overflow)."""
        bad = torch.zeros(len(row), dtype=torch.bool, device=row.device)
        for place, rows in self.store.chunks([True] * len(self.store.bounds)):
            bad[place] = ~rows.isfinite().all(-1)
        problem = finite_problem("hidden", bad, row)
        if problem is not None:
            raise problem

    def _rows(
        self, hidden: Tensor, lead: tuple[int, ...], pick: Tensor | None, tokens: Tensor | None, meaning: str
    ) -> Float[Tensor, "token width"]:
        """What the store keeps of the valid tokens: a compact copy, so that the padded tensor can be freed."""
        assert self._delta is not None
        require(isinstance(hidden, Tensor), f"hidden: a torch.Tensor is needed, not {type(hidden).__name__}")
        require(
            hidden.dim() == len(lead) + 1 and tuple(hidden.shape[:-1]) == lead,
            f"hidden: shape {tuple(hidden.shape)} does not fit; {meaning[:-1]}, width] means {(*lead, 'width')} here",
        )
        require_float("hidden", hidden)
        width = hidden.shape[-1]
        hidden = hidden.detach()
        rows = hidden.clone() if pick is None else hidden[pick]
        if not self._delta.needs_head:
            return rows
        assert self.head is not None
        require(
            self.head.shape[1] == width,
            f"head: width {self.head.shape[1]} does not fit hidden's {width}; pass the LM head's weight [vocab, width]",
        )
        if tokens is None:
            raise ValueError(f"tokens: proxy={self._delta.proxy!r} needs the sampled ids; pass tokens")
        require(
            not len(tokens) or (int(tokens.min()) >= 0 and int(tokens.max()) < len(self.head)),
            f"tokens: an id lies outside of the head's vocabulary of {len(self.head)}",
        )
        if self._delta.proxy == "topk_hidden":
            return topk_hidden_rows(rows, self.head, tokens, self._delta.top_k, self.temperature)
        return rows

    def _checked_head(self, head: Tensor | None) -> Tensor | None:
        if self._delta is None or not self._delta.needs_head:
            return None  # never held on to where it is not needed
        if head is None:
            raise ValueError(
                f"head: proxy={self._delta.proxy!r} needs the LM head's weight [vocab, width]; "
                "pass head=model.get_output_embeddings().weight"
            )
        require(
            isinstance(head, Tensor) and head.dim() == 2 and head.is_floating_point(),
            "head: pass the LM head's weight, a floating-point matrix [vocab, width]",
        )
        return head.detach()


def credit_record(
    hidden: Float[Tensor, "batch time width"] | None,
    logps: Float[Tensor, "batch time"] | None,
    advantages: Float[Tensor, " batch"],
    mask: Bool[Tensor, "batch time"],
    *,
    config: Weighting = DeltaConfig(),  # noqa: B008 - frozen
    head: Float[Tensor, "vocab width"] | None = None,
    tokens: Int[Tensor, "batch time"] | None = None,
    temperature: float = 1.0,
    groups: Int[Tensor, " batch"] | None = None,
    entropy: Float[Tensor, "batch time"] | None = None,
    keys: Int[Tensor, " batch"] | None = None,
    round_number: int = 0,
    process_group: dist.ProcessGroup | None = None,
) -> CreditRecord:
    """Like `token_coefficients`, but the whole record: weights, alpha, margins, sides, temperatures, masses, centroid gap."""
    stream = CreditStream(config, head=head, temperature=temperature, process_group=process_group)
    stream.add(hidden, logps, mask, tokens=tokens, entropy=entropy)
    return stream.solve(advantages, groups=groups, keys=keys, round_number=round_number)


def token_coefficients(
    hidden: Float[Tensor, "batch time width"] | None,
    logps: Float[Tensor, "batch time"] | None,
    advantages: Float[Tensor, " batch"],
    mask: Bool[Tensor, "batch time"],
    *,
    config: Weighting = DeltaConfig(),  # noqa: B008 - frozen
    head: Float[Tensor, "vocab width"] | None = None,
    tokens: Int[Tensor, "batch time"] | None = None,
    temperature: float = 1.0,
    groups: Int[Tensor, " batch"] | None = None,
    entropy: Float[Tensor, "batch time"] | None = None,
    keys: Int[Tensor, " batch"] | None = None,
    round_number: int = 0,
    process_group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "batch time"]:
    """The token coefficients of a rollout batch: float32 [batch, time], mean one over the mask, 0 outside of it.

    hidden: the LM head's input at the position that predicts token t (the token gradients themselves for proxy="full").
    logps: old log-prob of the sampled token. advantages: one a response. mask: the valid response tokens.
    head, tokens, temperature: the LM head's weight, the sampled ids and the sampling temperature, for the proxies that need them.
    groups: prompt ids, for scope="group". process_group: statistics are summed over its ranks, each of which must call this.
    """
    record = credit_record(
        hidden,
        logps,
        advantages,
        mask,
        config=config,
        head=head,
        tokens=tokens,
        temperature=temperature,
        groups=groups,
        entropy=entropy,
        keys=keys,
        round_number=round_number,
        process_group=process_group,
    )
    return record.padded(record.weights, mask)
