"""Credit inspection without training: one forward pass over rollouts from anywhere, then the token view."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from delta_rlvr.report.page import write_report
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError, read_rollouts
from delta_rlvr.runs import RunDescription, RunWriter
from delta_rlvr.tasks.token_texts import token_texts

if TYPE_CHECKING:
    from torch import Tensor

    from delta_rlvr.credit import CreditRecord
    from delta_rlvr.objectives import Method

# Added to a group's standard deviation, as TRL and verl do; the deviation is the unbiased one, as theirs.
ADVANTAGE_EPSILON = 1e-4


METHODS = ("delta", "dapo-ft", "grpo")
"""Whose weights are shown when none are named."""

GIVEN = ("hidden", "head", "groups", "logps", "entropy", "tokens")
"""What a rule may need here: one forward pass over texts gives it. Labels of decisive tokens come from the file, where it has them."""


_OTHER_TOKENIZER = "its token ids are not of this model's tokenizer: give the model that sampled them"


@dataclass(frozen=True)
class Forward:
    """What one forward pass gives for the tokens of one response."""

    prompt_ids: list[int]
    ids: Tensor
    texts: list[str]
    logps: Tensor
    entropy: Tensor
    hidden: Tensor
    decisive: Tensor | None


class Measure(Protocol):
    """Measures the credit of tokens (`commands.explain` has one that does so by continuations)."""

    def __call__(
        self, policy: Any, tokenizer: Any, rollouts: Sequence[Rollout], passes: Sequence[Forward]
    ) -> list[tuple[Sequence[float], Sequence[float]]]:
        """Credit and standard error of each token of each response."""
        ...


def explain(
    model: str,
    rollouts_file: str | Path,
    output: str | Path,
    *,
    methods: Sequence[str] = METHODS,
    temperature: float = 1.0,
    chat: bool = False,
    title: str | None = None,
    megabytes: float = 20.0,
    reward_key: str | None = None,
    measure: Measure | None = None,
) -> Path:
    """Write the page of the token weights that a policy's next update would give these rollouts.

    `methods`: whose weights; the first one's are shown first. `rollouts_file`: any format that `rollout_files` reads. `chat` puts a
    prompt that is text into the tokenizer's chat template as the user's turn. `temperature` is the one the rollouts were sampled with.
    `reward_key` names the reward where a file has several. With `measure` the view shows measured credit beside the weights.
    """
    import torch

    from delta_rlvr.credit.rule import check_needs
    from delta_rlvr.credit.stream import streams_for
    from delta_rlvr.objectives import get_method
    from delta_rlvr.tasks.models import load_policy

    chosen = {name: get_method(name) for name in methods}
    if not chosen:
        raise ValueError("methods: name at least one")
    every = read_rollouts(rollouts_file, reward_key)
    advantages, groups = group_advantages(every)
    # A response without a token has a part in its group's mean and none in the view.
    kept = [place for place, rollout in enumerate(every) if rollout.response or rollout.ids]
    rollouts = [every[place] for place in kept]
    advantages, groups = [advantages[place] for place in kept], [groups[place] for place in kept]
    given = (*GIVEN, *(("decisive",) if all(rollout.decisive is not None for rollout in rollouts) else ()))
    for name, method in chosen.items():
        check_needs(method.rho, given, f"explain with {Path(rollouts_file).name}", name)
    policy, tokenizer = load_policy(model)
    policy.eval().to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    head = policy.get_output_embeddings().weight
    rules = {name: method.rho for name, method in chosen.items()}
    streams = streams_for(rules.values(), head=head, temperature=temperature)
    passes = []
    labelled = any("decisive" in rule.needs for rule in rules.values())
    for rollout in rollouts:
        found = _forward(policy, tokenizer, rollout, temperature, chat)
        lengths = torch.tensor([len(found.ids)], device=found.ids.device)
        labels: dict[str, Any] = {}
        if labelled:
            if found.decisive is None:
                raise RolloutFileError(f"{rollout.where}: {_OTHER_TOKENIZER}")
            labels["decisive"] = found.decisive
        for stream in streams:
            stream.add(
                found.hidden, found.logps, lengths=lengths, tokens=found.ids, entropy=found.entropy, **labels
            )
        passes.append(found)
    device = head.device
    advantage_tensor = torch.tensor(advantages, dtype=torch.float64, device=device)
    group_tensor = torch.tensor(groups, device=device)
    records = {
        name: next(stream for stream in streams if stream.reads(rule)).solve(
            advantage_tensor, groups=group_tensor, config=rule
        )
        for name, rule in rules.items()
    }
    measured = None if measure is None else measure(policy, tokenizer, rollouts, passes)
    first = next(iter(chosen.values()))
    source = Path(rollouts_file).name
    with tempfile.TemporaryDirectory(prefix="delta-rlvr-explain-") as folder:
        _write_run(
            Path(folder) / "run",
            model,
            source,
            first,
            temperature,
            rollouts,
            passes,
            advantages,
            groups,
            records,
            measured,
        )
        return write_report(
            [Path(folder) / "run"],
            output,
            title=title or f"Credit of {source} under {model}",
            lede=_lede(rollouts, advantages, groups, records[first.name], len(every) - len(rollouts)),
            sections=("tokens", "weights", "clouds", "discriminator"),
            megabytes=megabytes,
        )


def group_advantages(rollouts: Sequence[Rollout]) -> tuple[list[float], list[int]]:
    """Each rollout's advantage, and its group's number in order of appearance. The engine's own advantages, where the file has all of
    them; else relative to the group."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(rollout.group, len(numbers)) for rollout in rollouts]
    known = [rollout.advantage for rollout in rollouts if rollout.advantage is not None]
    if len(known) == len(rollouts):
        return known, groups
    rewards = np.array([rollout.reward for rollout in rollouts])
    advantages = np.zeros(len(rollouts))
    for number in range(len(numbers)):
        members = np.flatnonzero(np.array(groups) == number)
        if np.ptp(rewards[members]) > 0:
            own = rewards[members]
            advantages[members] = (own - own.mean()) / (own.std(ddof=1) + ADVANTAGE_EPSILON)
    return advantages.tolist(), groups


def _forward(policy: Any, tokenizer: Any, rollout: Rollout, temperature: float, chat: bool) -> Forward:
    """Log-probs, entropies and the head's inputs at the positions that predict the response's tokens."""
    import torch

    prompt_ids, ids, texts, exact = _tokens(tokenizer, rollout, chat)
    limit = getattr(policy.config, "max_position_embeddings", None)
    if limit is not None and len(prompt_ids) + len(ids) > limit:
        raise RolloutFileError(
            f"{rollout.where} has {len(prompt_ids) + len(ids)} tokens, the model takes {limit}: shorten it"
        )
    device = policy.get_output_embeddings().weight.device
    inputs = torch.tensor([prompt_ids + ids], device=device)
    seen: list[Any] = []
    # What goes into the head is what the proxies are made of, whatever the architecture calls it.
    hook = policy.get_output_embeddings().register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        with torch.no_grad():
            logits = policy(input_ids=inputs).logits
    finally:
        hook.remove()
    positions = slice(len(prompt_ids) - 1, -1)
    targets = inputs[0, len(prompt_ids) :]
    logps, entropy = _distribution(logits[0, positions], targets, temperature)
    decisive = (
        torch.tensor(rollout.decisive, device=device) if exact and rollout.decisive is not None else None
    )
    return Forward(prompt_ids, targets, texts, logps, entropy, seen[-1][0, positions], decisive)


def _tokens(tokenizer: Any, rollout: Rollout, chat: bool) -> tuple[list[int], list[int], list[str], bool]:
    """Ids of the prompt, ids and texts of the response, and whether they are the sampled ones: those of the file, where they spell the
    response under this tokenizer; else its text is tokenized anew."""
    if rollout.ids is not None and max(rollout.ids) < len(tokenizer):
        ids = list(rollout.ids)
        texts = token_texts(tokenizer, ids)
        bare = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if rollout.response in ("", "".join(texts), bare):
            prompt = list(rollout.prompt_ids or ()) or _prompt_ids(tokenizer, rollout, chat)
            return prompt, ids, texts, True
    if not rollout.response:
        raise RolloutFileError(f"{rollout.where}: {_OTHER_TOKENIZER}")
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} has no offsets: a fast tokenizer is needed")
    encoded = tokenizer(rollout.response, add_special_tokens=False, return_offsets_mapping=True)
    texts = _texts(rollout.response, encoded["offset_mapping"])
    return _prompt_ids(tokenizer, rollout, chat), encoded["input_ids"], texts, False


def _prompt_ids(tokenizer: Any, rollout: Rollout, chat: bool) -> list[int]:
    prompt = rollout.prompt
    if chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if isinstance(prompt, list):
        if not tokenizer.chat_template:
            raise RolloutFileError(
                f"{rollout.where}: its prompt is a conversation, but the tokenizer has no chat template: give text"
            )
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]  # the template has its own
    else:
        ids = tokenizer(prompt)["input_ids"]
        if ids and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]  # some tokenizers end every text; the response goes on here
    if not ids:
        raise RolloutFileError(f"{rollout.where}: its prompt has no token, so nothing predicts the response")
    return list(ids)


def _distribution(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-prob of each target and entropy of each position, a few positions at a time."""
    import torch

    logps, entropy = [], []
    for part, wanted in zip(logits.split(512), targets.split(512), strict=True):
        log_probs = torch.log_softmax(part.float() / temperature, dim=-1)
        logps.append(log_probs.gather(-1, wanted[:, None])[:, 0])
        entropy.append(-(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(-1))
    return torch.cat(logps), torch.cat(entropy)


def _texts(response: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """Each token's part of the response. What a tokenizer drops (spaces) goes to the next token; a character that several
    tokens share goes to the last of them, and the ones before it are U+FFFD."""
    texts: list[str] = []
    start = 0
    for number, (_, end) in enumerate(offsets):
        shared = number + 1 < len(offsets) and offsets[number + 1][1] == end
        texts.append("\ufffd" if shared else response[start:end])
        start = start if shared else max(start, end)
    if texts and start < len(response):
        texts[-1] += response[start:]
    return texts


def _write_run(
    folder: Path,
    model: str,
    source: str,
    method: Method,
    temperature: float,
    rollouts: Sequence[Rollout],
    passes: Sequence[Forward],
    advantages: Sequence[float],
    groups: Sequence[int],
    records: dict[str, CreditRecord],
    measured: Sequence[tuple[Sequence[float], Sequence[float]]] | None,
) -> None:
    """One step of a run folder, which is what the page is made of."""
    lengths = [len(found.ids) for found in passes]
    columns = {name: _split(record.weights, lengths) for name, record in records.items()}
    shown = records[method.name]
    extra = {
        name: _split(values, lengths)
        for name, values in (
            ("alpha", shown.alpha),
            ("margin", shown.margin),
            ("margin_initial", shown.margin_initial),
        )
        if values is not None
    }
    index: dict[int, int] = {}
    lines = []
    text_of: dict[int, str] = {}
    description = RunDescription(
        engine="explain",
        method=method.name,
        seed=0,
        model=model,
        task=source,
        settings={"temperature": temperature},
        rule=None if method.rule.constant else asdict(method.rule),
        steps_planned=1,
    )
    with RunWriter.create(folder, description) as writer:
        for place, (rollout, found) in enumerate(zip(rollouts, passes, strict=True)):
            group = groups[place]
            index[group] = index.get(group, -1) + 1
            ids = found.ids.cpu().numpy()
            text_of.update(zip(ids.tolist(), found.texts, strict=True))
            weight = columns[method.name][place]
            writer.tokens.add(ids, weight, np.sign(advantages[place]))
            lines.append(
                {
                    "group": group,
                    "index": index[group],
                    "prompt": rollout.prompt
                    if isinstance(rollout.prompt, str)
                    else json.dumps(rollout.prompt),
                    "response": "".join(found.texts),
                    "reward": rollout.reward,
                    "advantage": advantages[place],
                    "tokens": found.texts,
                    "ids": ids,
                    "logps": found.logps.cpu().numpy(),
                    "entropy": found.entropy.cpu().numpy(),
                    "weight": weight,
                    **{name: values[place] for name, values in extra.items()},
                    **({"decisive": found.decisive.int().tolist()} if found.decisive is not None else {}),
                    **(
                        dict(zip(("measured", "measured_error"), measured[place], strict=True))
                        if measured is not None
                        else {}
                    ),
                    "other_weights": {name: columns[name][place] for name in columns if name != method.name},
                }
            )
        writer.log(
            {
                "step": 1,
                "reward": float(np.mean([rollout.reward for rollout in rollouts])),
                "length": float(np.mean(lengths)),
                **shown.summary(),
            }
        )
        writer.write_rollouts(1, lines)
        writer.save_tokens(text_of=lambda ids: [text_of[token] for token in ids])


def _split(values: Tensor, lengths: Sequence[int]) -> list[Any]:
    return [part.cpu().numpy() for part in values.float().split(list(lengths))]


def _lede(
    rollouts: Sequence[Rollout],
    advantages: Sequence[float],
    groups: Sequence[int],
    record: CreditRecord,
    without_tokens: int,
) -> str:
    signal = len({group for group, advantage in zip(groups, advantages, strict=True) if advantage})
    said = (
        f"{len(rollouts)} responses to {len(set(groups))} prompts, {signal} of them with rewards that differ"
    )
    if without_tokens:
        said += f" ({without_tokens} more responses have no token)"
    if not signal:
        return f"{said}: no response is better than another of its group, so every coefficient is 1."
    return (
        f"{said}; coefficients from {record.weights.min().item():.3f} to {record.weights.max().item():.3f}."
    )
