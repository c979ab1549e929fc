"""What the tests of token rules share: batches and weights as plain lists, one per response, for loops in float64."""

from types import SimpleNamespace

import torch

from delta_rlvr import CreditStream
from delta_rlvr.testing import VOCABULARY, WIDTH, random_batch

HEAD = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(99))
TEMPERATURE = 0.7
_ARRAYS = ("hidden", "logps", "entropy", "tokens")


def weights_of(rule, advantages, *, groups=None, head=HEAD, temperature=TEMPERATURE, **arrays):
    """The rule's weights. `arrays`: what it needs of each token, as lists (float32, as an engine gives it)."""
    lengths = torch.tensor([len(row) for row in next(iter(arrays.values()))])
    packed = {name: torch.tensor([value for row in rows for value in row]) for name, rows in arrays.items()}
    stream = CreditStream(rule, head=head, temperature=temperature)
    stream.add(packed.pop("hidden", None), lengths=lengths, **packed)
    record = stream.solve(
        torch.tensor(advantages, dtype=torch.float64), groups=None if groups is None else torch.tensor(groups)
    )
    return [row.tolist() for row in record.weights.split(record.lengths.tolist())]


def random_lists(seed):
    """`delta_rlvr.testing.random_batch` as lists: two groups with both sides, one without a signal, a response without a token."""
    batch = random_batch(seed)
    rows = {
        name: [row[mask].tolist() for row, mask in zip(batch[name], batch["mask"], strict=True)] for name in _ARRAYS
    }
    return SimpleNamespace(advantages=batch["advantages"].tolist(), groups=batch["groups"].tolist(), **rows)


def weights_on(rule, batch):
    """The rule's weights on such a batch: it is given what it needs and nothing else."""
    needed = {name: getattr(batch, name) for name in _ARRAYS if name in rule.needs}
    return weights_of(rule, batch.advantages, groups=batch.groups, **needed)


def assert_weights(ours, expected, tolerance=1e-6):
    """Equal to a few of float32's last digits, relative to the larger of one and the weight."""
    assert [len(row) for row in ours] == [len(row) for row in expected]
    for row, (mine, theirs) in enumerate(zip(ours, expected, strict=True)):
        for token, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            assert abs(one - other) <= tolerance * max(1, abs(other)), (row, token, one, other)
