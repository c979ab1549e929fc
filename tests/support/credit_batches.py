"""A ragged batch, the settings that every invariance is checked under, and what one rank of a distributed check does.

Beside the tests and not in one of them, because spawned processes import it by name."""

import torch
import torch.distributed as dist

from delta_rlvr.credit import Delta, credit_record
from delta_rlvr.credit.rules.ablations import Ablation, RandomSelection, RandomWeights, Selection
from delta_rlvr.credit.rules.forking import ForkingTokens
from delta_rlvr.credit.rules.uncertainty import Entropy, Surprise
from delta_rlvr.credit.rules.uniform import ResponseMean

WIDTH, VOCAB = 7, 13
HEAD = torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(99))

RULES = [
    *(Delta(proxy=p, scope=s, top_k=4) for p in ("output_row", "topk_hidden", "head") for s in ("batch", "group")),
    Ablation(proxy="sharpness", contrast="alignment"),
    Ablation(contrast="alignment"),
    Ablation(contrast="within_side", refinements=2),
    Ablation(scope="group", contrast="alignment"),
    Ablation(gamma="initial"),
    Ablation(assignment="hard"),
    RandomWeights(),
    Selection(),
    RandomSelection(),
    Selection(keep="bottom", share=0.3),
    ForkingTokens(),
    ResponseMean(),
    Surprise(),
    Entropy(0.5, 1.5),
]


def make_batch(seed=0, rows=9):
    """A ragged batch as a dict of padded tensors, right-padded, with rows that have no token."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 9, (rows,), generator=g)
    time = int(lengths.max())
    mask = torch.arange(time)[None] < lengths[:, None]
    return {
        "hidden": torch.randn(rows, time, WIDTH, generator=g),
        "logps": -3 * torch.rand(rows, time, generator=g),
        "entropy": torch.rand(rows, time, generator=g),
        "tokens": torch.randint(0, VOCAB, (rows, time), generator=g),
        "mask": mask,
        "advantages": torch.tensor([1.0, -0.5, 0.0, 0.7, -1.1, 0.4, -0.2, 0.0, 0.9])[:rows],
        "groups": torch.tensor([5, 5, 5, 2, 2, 2, 8, 8, 8])[:rows],
        "keys": torch.arange(100, 100 + rows),
    }


def rank_main(folder):
    """What one of two ranks sees, to FOLDER/RANK.pt. Uneven shards: the second one has rows without a single valid token."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batch = make_batch()
    batch["mask"][7:] = False
    rows = slice(0, 7) if rank == 0 else slice(7, 9)
    mine = {name: values[rows] for name, values in batch.items()}
    results = []
    for rule in RULES:
        record = credit_record(**mine, rule=rule, head=HEAD, temperature=0.7, process_group=dist.group.WORLD)
        results.append((record.weights, record.summary()))
    refused = []
    for name, row in (("hidden", 0), ("advantages", 0)):
        broken = {key: values.clone() for key, values in mine.items()}
        if rank == 0:
            broken[name][row] = float("nan")
        try:
            credit_record(**broken, rule=RULES[0], process_group=dist.group.WORLD)
        except ValueError as error:
            refused.append(str(error))
    torch.save((results, refused), folder / f"{rank}.pt")
    dist.destroy_process_group()
