"""The entry points of `credit`: weights of a batch that is given as tensors, or that arrives in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from delta_rlvr.bounds import typed
from delta_rlvr.credit import kernels
from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import (
    Findings,
    finite,
    first_bad_row,
    not_finite,
    require,
    require_float,
    require_integer,
    require_mask,
    require_shape,
)
from delta_rlvr.credit.diagnostics import diagnose as diagnostics
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.reduce import Reducer, wide
from delta_rlvr.credit.rule import NEEDS, TokenRule, check_needs, check_rule_class, weigh
from delta_rlvr.credit.rules.delta import Delta
from delta_rlvr.credit.store import RowStore

TOKEN_ARRAYS = ("logps", "entropy", "tokens", "decisive", "measured")
"""The needs of a rule that have one value per token: arguments of `add` and `solve`."""


class CreditStream:
    """Collects a rollout batch during the old-log-prob pass, then solves for its token weights.

    `add` takes padded micro-batches (hidden [b, T, d] with a mask [b, T]) or packed ones (hidden [n, d] with the lengths of the
    responses), in the order of the responses. `solve` may be called for several rules; `clear` starts the next batch.
    """

    @typed
    def __init__(
        self,
        rule: TokenRule = Delta(),  # noqa: B008 - frozen
        *,
        head: Float[Tensor, "vocab width"] | None = None,
        temperature: float = 1.0,
        store: RowStore | None = None,
        process_group: dist.ProcessGroup | Reducer | None = None,
        device: torch.device | str | None = None,
    ):
        """`process_group`: the ranks that share the batch, or your own `Reducer`. `head`: the LM head's weight, if needed."""
        require(
            0 < temperature < float("inf"),
            f"temperature={temperature!r}: give the sampling temperature, a positive number",
        )
        check_rule_class(type(rule))
        check_needs(rule, NEEDS, "nothing", type(rule).__name__)
        self.rule = rule
        self.temperature = float(temperature)
        self.head = _checked_head(head)
        self._require_head(rule)
        self.store = store if store is not None else RowStore()
        self.process_group = process_group
        self._given_device = torch.device(device) if device is not None else None
        self.clear()

    @property
    def needs_hidden(self) -> bool:
        """Whether `add` needs hidden states."""
        return self.rule.stores is not None

    def reads(self, rule: TokenRule) -> bool:
        """Return whether this stream stores what another rule needs."""
        if "head" in rule.needs and self.head is None:
            return False
        return rule.stores is None or rule.stores == self.rule.stores

    def clear(self) -> None:
        """Forget the batch and start the next."""
        self.store.clear()
        self._lengths: list[Tensor] = []
        self._row: list[Tensor] = []
        self._responses = 0
        self._added: dict[str, list[Tensor]] = {}
        self._findings = Findings()
        self._device = self._given_device

    def add(
        self,
        hidden: Float[Tensor, "..."] | None,
        logps: Float[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
        token_count: int | None = None,
        recompute: Callable[[], Float[Tensor, "..."]] | None = None,
        **arrays: Any,
    ) -> None:
        """Add responses: padded with `mask`, or packed with `lengths`.

        `arrays` are the `TOKEN_ARRAYS` that the rule needs. They, and `logps`, may instead be passed to `solve` for the whole batch,
        since they are often known only after the pass. With `token_count`, the number of valid tokens, nothing waits for the device.
        `recompute` computes `hidden` again; it is used only where the store has no room.
        """
        require(
            (mask is None) != (lengths is None),
            "mask, lengths: give a mask [batch, time] with padded tensors, or lengths [batch] with packed ones",
        )
        if mask is not None:
            require_mask(mask)
            require(mask.dim() == 2, f"mask: shape {tuple(mask.shape)} does not fit; [batch, time] is needed")
            lead, meaning = tuple(mask.shape), "[batch, time]"
            pick = places(mask, token_count)
            row = pick // max(1, mask.shape[1])
            lengths = mask.sum(1)
        else:
            assert lengths is not None
            require_integer("lengths", lengths)
            require(lengths.dim() == 1, f"lengths: shape {tuple(lengths.shape)} does not fit; [batch] is needed")
            if token_count is None:
                require(bool((lengths >= 0).all()), "lengths: a response cannot have fewer than 0 tokens")
                token_count = int(lengths.sum())
            lead, pick, meaning = (token_count,), None, "[sum of lengths]"
            number = torch.arange(token_count, device=lengths.device)
            row = torch.searchsorted(lengths.cumsum(0), number, right=True)
        # The device still works on the pass: only checks that do not wait for it run here, the others in `solve`.
        asked = {"token_count": lengths.sum() - row.shape[0]}
        packed: dict[str, Tensor] = {}
        for name, values in _named(logps, arrays).items():
            require_shape(name, values, lead, meaning)
            _require_kind(name, values)
            packed[name] = _widened(values if pick is None else values.flatten()[pick], lengths.device)
            if packed[name].is_floating_point():
                asked[name] = packed[name]

        if self.needs_hidden:
            if hidden is None:
                raise ValueError("hidden: this method needs the hidden states; pass them")
            rows = self._rows(hidden, lead, pick, packed.get("tokens"), meaning)

            def again() -> Tensor:
                assert recompute is not None
                return self._rows(recompute(), lead, pick, packed.get("tokens"), meaning)

            if rows.is_cuda:  # the caller may not have called `warm_up`
                kernels.warm_up(rows.shape[1], rows.dtype, rows.device, ranks=not self._reducer(rows.device).alone)
            self.store.add(rows, None if recompute is None else again)
            # The sum of a row is not finite if an entry is not: one read, without a mask of the batch's size.
            asked["hidden"] = rows.sum(-1, dtype=torch.float32)
        self._device = self._device or lengths.device
        self._findings.ask(**asked)
        self._lengths.append(lengths.to(torch.int64))
        self._row.append(row + self._responses if self._responses else row)
        self._responses += lengths.shape[0]
        for name, values in packed.items():
            self._added.setdefault(name, []).append(values)

    @torch.no_grad()
    def solve(
        self,
        advantages: Float[Tensor, " batch"],
        *,
        logps: Float[Tensor, " token"] | None = None,
        groups: Int[Tensor, " batch"] | None = None,
        keys: Int[Tensor, " batch"] | None = None,
        round_number: int = 0,
        rule: TokenRule | None = None,
        diagnose: bool = False,
        **arrays: Any,
    ) -> CreditRecord:
        """Return the token weights of the batch, over all ranks of the process group (each of which must call this).

        `logps` and `arrays` [token] are packed in the order of `add`. For seeded draws `keys` identify the responses (default: their
        index in the batch) and `round_number` the batch. `rule` is another rule for the same batch, with what this stream stores.
        `diagnose` adds the metrics of `credit.diagnostics` (for DelTA they take two more solves).
        """
        rule = self.rule if rule is None else rule
        device = self._device or advantages.device
        reducer = self._reducer(device)
        problem: ValueError | None = None
        batch: TokenBatch | None = None
        try:
            # No collective in here: an error may occur on one rank alone.
            lengths, row = (_joined(parts, torch.int64, device) for parts in (self._lengths, self._row))
            findings = self._findings.copy()
            known = self._arrays(_named(logps, arrays), row, findings)
            wide_advantages = _checked_advantages(advantages, lengths)
            findings.ask(advantages=wide_advantages)
            needed = self._given(rule, lengths, row, groups, known)
            key = _checked_ids("keys", keys, self._responses, device)
            ends = findings.settle()
            self._judge(ends, row, known | {"advantages": wide_advantages})
            low, high = ends.get("advantages", (0.0, 0.0))
            batch = TokenBatch(
                lengths=lengths,
                row=row,
                advantages=wide_advantages,
                keys=key,
                round_number=round_number,
                reducer=reducer,
                temperature=self.temperature,
                given=needed,
                stored=None if rule.stores is None else self.store,
                two_sided=low < 0 < high,
            )
        except ValueError as error:
            problem = error
            try:  # a wrong token_count may be the cause of a wrong shape
                self._judge_count(self._findings.settle())
            except ValueError as cause:
                problem = cause
        reducer.agree(problem)
        assert batch is not None
        require(batch.token_count > 0, "mask: it has no valid token, so there is nothing to weigh")
        if keys is None:
            before = sum(reducer.gather_counts(len(batch.lengths))[: reducer.rank])
            if before:
                batch.keys.add_(before)
        record = weigh(batch, rule)
        if not diagnose:
            return record
        numbers = diagnostics(record, batch.advantages, known.get("logps")) | rule.diagnose(batch)
        return replace(record, diagnostics=numbers)

    def _reducer(self, device: torch.device) -> Reducer:
        group = self.process_group
        return group if isinstance(group, Reducer) else Reducer(group, device)

    def _arrays(self, given: Mapping[str, Tensor], row: Int[Tensor, " token"], findings: Findings) -> dict[str, Tensor]:
        """Return the token arrays that were passed to `add` or `solve`."""
        whole = {name: torch.cat(added) for name, added in self._added.items()}
        for name in given:
            require(name not in whole, f"{name}: give it to `add` or to `solve`, not to both")
        for name, values in [*whole.items(), *given.items()]:
            require_shape(name, values, (row.shape[0],), "one value per valid token, packed,")
        for name, values in given.items():
            _require_kind(name, values)
            whole[name] = _widened(values, row.device)
            if whole[name].is_floating_point():
                findings.ask(**{name: whole[name]})
        return whole

    def _judge(
        self, ends: Mapping[str, tuple[float, float]], row: Int[Tensor, " token"], values: Mapping[str, Tensor]
    ) -> None:
        """Refuse bad input by the extremes of each array; `values` are the token arrays and the advantages."""
        self._judge_count(ends)
        for name, (low, high) in ends.items():
            if name == "hidden" and not finite(low, high):
                self._name_bad_hidden(row)
            elif name == "advantages" and not finite(low, high):
                bad = int((~values[name].isfinite()).nonzero()[0, 0])
                raise ValueError(
                    f"advantages: not finite (NaN or inf) in row {bad}. Look at its reward and its group's spread"
                )
            elif name in TOKEN_ARRAYS and not finite(low, high):
                raise not_finite(name, ~values[name].isfinite(), row)
            elif name == "logps" and high > 1e-2:
                raise ValueError(
                    f"{name}: a log-prob cannot be positive, as at row {first_bad_row(values[name] > 1e-2, row)}; pass log p, not p"
                )
            # Log-sum-exp less a mean, as engines compute it in bfloat16, may leave a sure token a little below 0.
            elif name == "entropy" and low < (floor := -0.5 if high > 0 else -1e-2):
                raise ValueError(
                    f"{name}: an entropy cannot be negative, as at row {first_bad_row(values[name] < floor, row)}; pass -sum p log p"
                )

    def _judge_count(self, ends: Mapping[str, tuple[float, float]]) -> None:
        if any(ends.get("token_count", ())):
            added = sum(row.shape[0] for row in self._row)
            valid = sum(int(lengths.sum()) for lengths in self._lengths)
            raise ValueError(
                f"token_count: {added} tokens were added, but the masks or lengths have {valid} valid ones"
            )

    def _given(
        self,
        rule: TokenRule,
        lengths: Int[Tensor, " batch"],
        row: Int[Tensor, " token"],
        groups: Tensor | None,
        known: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """Return what the rule needs, checked. A rule gets nothing else, so that it also works in an engine with nothing else."""
        check_needs(rule, NEEDS, "nothing", type(rule).__name__)
        self._require_head(rule)
        require(
            self.reads(rule),
            f"rule: {type(rule).__name__} reads {rule.stores}, which this stream did not store; make a stream for it",
        )
        given: dict[str, Tensor] = {}
        for name in (name for name in TOKEN_ARRAYS if name in rule.needs):
            require(name in known or len(row) == 0, f"{name}: this method needs it; pass it to `add` or to `solve`")
            given[name] = known[name] if name in known else _no_tokens(name, row.device)
        if "head" in rule.needs:
            assert self.head is not None
            given["head"] = self.head
        if groups is not None or "groups" in rule.needs:
            require(groups is not None, "groups: this method needs the prompt id of each response; pass groups [batch]")
            given["groups"] = _checked_ids("groups", groups, len(lengths), lengths.device)
        return {name: value for name, value in given.items() if name in rule.needs}

    def _rows(
        self, hidden: Tensor, lead: tuple[int, ...], pick: Tensor | None, tokens: Tensor | None, meaning: str
    ) -> Float[Tensor, "token width"]:
        """Return what the store keeps of the valid tokens: a copy, so that the padded tensor can be freed."""
        require(isinstance(hidden, Tensor), f"hidden: a torch.Tensor is needed, not {type(hidden).__name__}")
        require(
            hidden.dim() == len(lead) + 1 and tuple(hidden.shape[:-1]) == lead,
            f"hidden: shape {tuple(hidden.shape)} does not fit; {meaning[:-1]}, width] means {(*lead, 'width')} here",
        )
        require_float("hidden", hidden)
        hidden = hidden.detach()
        rows = hidden.clone() if pick is None else hidden.flatten(0, 1)[pick]
        if "head" in self.rule.needs:
            assert self.head is not None
            require(
                self.head.shape[1] == rows.shape[1],
                f"head: width {self.head.shape[1]} does not fit hidden's {rows.shape[1]}; pass the LM head's weight [vocab, width]",
            )
            if tokens is None:
                raise ValueError("tokens: this method needs the sampled ids; pass tokens")
            require(
                not len(tokens) or (int(tokens.min()) >= 0 and int(tokens.max()) < len(self.head)),
                f"tokens: an id lies outside of the head's vocabulary of {len(self.head)}",
            )
        assert self.rule.stores is not None
        return self.rule.stores.rows(rows, tokens, self.head, self.temperature)

    def _name_bad_hidden(self, row: Tensor) -> None:
        """Raise an error if an entry of the stored rows is not finite. (The sum of a row may overflow without one.)"""
        bad = torch.zeros(len(row), dtype=torch.bool, device=row.device)
        for place, rows in self.store.chunks():
            bad[place] = ~rows.isfinite().all(-1)
        if bool(bad.any()):
            raise not_finite("hidden", bad, row)

    def _require_head(self, rule: TokenRule) -> None:
        require(
            "head" not in rule.needs or self.head is not None,
            "head: this method needs the LM head's weight [vocab, width]; pass head=model.get_output_embeddings().weight",
        )


def streams_for(rules: Iterable[TokenRule], **options: Any) -> list[CreditStream]:
    """Return the fewest streams (with these options) that store what the rules need; the first that `reads` a rule solves for it."""
    streams: list[CreditStream] = []
    for rule in sorted(rules, key=lambda rule: rule.stores is None):
        if not any(stream.reads(rule) for stream in streams):
            streams.append(CreditStream(rule, **options))
    return streams


def places(mask: Bool[Tensor, "batch time"], count: int | None = None) -> Int[Tensor, " token"]:
    """Return the places of the valid tokens in the flattened mask. If `count` is given, nothing waits for the device."""
    flat = mask.flatten()
    if count is None:
        return flat.nonzero()[:, 0]
    # Each valid token writes its place at its index among the valid ones; the others write past the end.
    number = torch.where(flat, flat.cumsum(0) - 1, count)
    standing = torch.zeros(count + 1, dtype=torch.int64, device=mask.device)
    return standing.scatter_(0, number.clamp(max=count), torch.arange(len(flat), device=mask.device))[:count]


def _named(logps: Tensor | None, arrays: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return the token arrays that are not None, by name."""
    for name in arrays:
        require(name in TOKEN_ARRAYS, f"{name}: no such array per token (there are: {', '.join(TOKEN_ARRAYS)})")
    return {name: values for name, values in {"logps": logps, **arrays}.items() if values is not None}


def _require_kind(name: str, values: Tensor) -> None:
    if name == "tokens":
        require_integer(name, values)
    elif name == "decisive":
        require(values.dtype == torch.bool, f"decisive: bool is needed, not {values.dtype}; convert it with .bool()")
    else:
        require_float(name, values)


def _widened(values: Tensor, device: torch.device) -> Tensor:
    """Return values on the batch's device, floats in the dtype `wide`."""
    return values.detach().to(device, wide(device) if values.is_floating_point() else values.dtype)


def _no_tokens(name: str, device: torch.device) -> Tensor:
    """Return an empty token array, for a rank without tokens."""
    kinds = {"tokens": torch.int64, "decisive": torch.bool}
    return torch.zeros(0, dtype=kinds.get(name, wide(device)), device=device)


def _checked_advantages(advantages: Float[Tensor, " batch"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    require_shape("advantages", advantages, (lengths.shape[0],), "[batch]")
    require_float("advantages", advantages)
    # The advantage of a response without valid tokens is ignored, even if it is NaN.
    return _widened(advantages, lengths.device).masked_fill(lengths == 0, 0.0)


def _checked_ids(name: str, ids: Tensor | None, count: int, device: torch.device) -> Int[Tensor, " batch"]:
    """Return one whole number per response; by default its index."""
    if ids is None:
        return torch.arange(count, device=device)
    require_shape(name, ids, (count,), "[batch]")
    require_integer(name, ids)
    return ids.to(device=device, dtype=torch.int64)


def _checked_head(head: Tensor | None) -> Tensor | None:
    if head is None:
        return None
    require(
        isinstance(head, Tensor) and head.dim() == 2 and head.is_floating_point(),
        "head: pass the LM head's weight, a floating-point matrix [vocab, width]",
    )
    return head.detach()


def _joined(parts: list[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, dtype=dtype, device=device)


def credit_record(
    hidden: Float[Tensor, "batch time width"] | None,
    logps: Float[Tensor, "batch time"] | None,
    advantages: Float[Tensor, " batch"],
    mask: Bool[Tensor, "batch time"],
    *,
    rule: TokenRule = Delta(),  # noqa: B008 - frozen
    head: Float[Tensor, "vocab width"] | None = None,
    temperature: float = 1.0,
    groups: Int[Tensor, " batch"] | None = None,
    keys: Int[Tensor, " batch"] | None = None,
    round_number: int = 0,
    process_group: dist.ProcessGroup | None = None,
    **arrays: Any,
) -> CreditRecord:
    """Return the whole record of `token_coefficients`: weights, alpha, margins, sides, temperatures, masses, centroid gap."""
    stream = CreditStream(rule, head=head, temperature=temperature, process_group=process_group)
    stream.add(hidden, logps, mask, **arrays)
    return stream.solve(advantages, groups=groups, keys=keys, round_number=round_number)


def token_coefficients(
    hidden: Float[Tensor, "batch time width"] | None,
    logps: Float[Tensor, "batch time"] | None,
    advantages: Float[Tensor, " batch"],
    mask: Bool[Tensor, "batch time"],
    *,
    rule: TokenRule = Delta(),  # noqa: B008 - frozen
    **given: Any,
) -> Float[Tensor, "batch time"]:
    """Return the token weights of a rollout batch: float32 [batch, time], 0 outside of the mask (with DelTA their mean is one).

    Args:
        hidden: the LM head's input at the position that predicts token t (for proxy="full" the token's gradient).
        logps: the old log-prob of the sampled token.
        advantages: one per response.
        mask: the valid response tokens.
        rule: any rule; the default is DelTA as published.
        given: further arguments that some rules need: `head` (the LM head's weight), `temperature` (of sampling), `groups` (prompt ids
            [batch]), `tokens` (sampled ids), `entropy` and the other `TOKEN_ARRAYS` [batch, time]; `keys`, `round_number` (for seeded
            draws); `process_group` (the ranks that share the batch, each of which must call this).
    """
    record = credit_record(hidden, logps, advantages, mask, rule=rule, **given)
    return record.padded(record.weights, mask)
