"""What one rank does when `test_two_ranks` starts two of them. Each writes what it saw to FOLDER/NAME.RANK.pt."""

import os

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch

from by_hand import seen_by
from replayed_training import build, rollout
from support_methods import ONE_OF_A_KIND

SHAPES = ("one micro-batch", "accumulation 4", "several updates")
EVERY_SHAPE = ("dapo", "dapo-ft", "sapo", "fipo", "delta", "delta-group", "delta-top50")
"""The methods that are tried in all of them; the others in the first."""
METHODS = tuple(dict.fromkeys([*EVERY_SHAPE, *ONE_OF_A_KIND]))
"""On one rank every method is tried; and that no rule depends on ranks is held by `delta_rlvr.testing`."""


def replayed(method, shape, **options):
    trainer = build(method, shape, ranks=2, **options)
    trainer.train()
    return seen_by(trainer)


def without_tokens_on_one_rank():
    """Every response of the second rank was cut and is masked: it still takes part in every collective."""
    generate = rollout()

    def uneven(prompts, trainer):
        output = generate(prompts, trainer)
        last = 1 if trainer.accelerator.process_index == 0 else 5
        for tokens in output["completion_ids"]:
            tokens[-1] = last
        return output

    return replayed("delta", "accumulation 4", rollout_func=uneven, mask_truncated_completions=True)


def refused(where):
    """An infinite reward on one rank: every rank must stop, none may wait for ever."""

    def reward(completion_ids, **_):
        scores = [1.0] * len(completion_ids)
        if torch.distributed.get_rank() == where:
            scores[2] = float("inf")
        return scores

    try:
        replayed("delta", "one micro-batch", reward=reward)
    except ValueError as error:
        return str(error)
    return None


def rewarded_alike():
    """All responses get 0.3; the middle group has half of its responses on each rank."""
    trainer = build(
        "delta", "one micro-batch", ranks=2, max_steps=1, reward=lambda completion_ids, **_: [0.3] * len(completion_ids)
    )
    trainer.train()
    (batch,) = trainer.batches
    return {
        "advantages": batch.advantages.tolist(),
        "signal": [line["credit/signal_groups"] for line in trainer.state.log_history],
    }


def sharded_head():
    """The head of an FSDP2 model is a DTensor with a part of its rows on each rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    trainer = build("delta-topk", "one micro-batch", ranks=2)
    head = trainer.model.get_output_embeddings()
    whole = head.weight.detach().clone()
    fully_shard(head, mesh=init_device_mesh("cpu", (2,)))
    local = head.weight.to_local().shape[0]
    return {"local_rows": local, "same": torch.equal(trainer._head(), whole)}


def seen_order():
    """Which prompts each rank got, in its order."""
    trainer = build("delta", "one micro-batch", ranks=2, max_steps=1)
    trainer.train()
    prompts = [row["prompt"] for row in trainer.generations[0]["rows"]]
    return {
        "prompts": prompts,
        "groups": trainer.batches[0].groups.tolist(),
        "ranks_on_node": trainer._weigher.store.ranks_on_node,
    }


def main(folder):
    rank = os.environ["RANK"]
    jobs = {}
    for method in METHODS:
        for shape in SHAPES if method in EVERY_SHAPE else SHAPES[:1]:
            jobs[f"{method}, {shape}"] = lambda m=method, s=shape: replayed(m, s)
    jobs["uneven"] = without_tokens_on_one_rank
    jobs["order"] = seen_order
    jobs["alike"] = rewarded_alike
    jobs["sharded head"] = sharded_head
    jobs["refused"] = lambda: refused(1)
    for name, job in jobs.items():
        torch.save(job(), folder / f"{name}.{rank}.pt")
    torch.distributed.destroy_process_group()
