"""All uses of verl's internals. `tests/adapters/verl/test_canary.py` checks every name that is used here.

One step of verl's trainers: sample, balance, old log-probs, (reference, values), advantages, update. The worker keeps hidden states
while it computes old log-probs. After the advantages the trainer calls it for token weights, which become the field `delta_weights` of
the batch. In the update verl's loss multiplies tokens by them, as its `rollout_is_weights`.

    fields   the fields of a batch, in both layouts of verl's trainers
    engine   the FSDP engine: its ranks, its head, and its hidden states during a pass
    loss     verl's loss with token weights
    worker   verl's actor worker with all of these
    controller  weights without a worker, for rules that need only log-probs, entropies, tokens and groups
    front    the common parts of the trainers below: settings, run folder
    v1       verl's V1 trainer: modes `delta_sync`, `delta_colocate_async`, `delta_separate_async`
    classic  verl's classic trainer: `trainer.use_v1=False`

Importing `v1` or `classic` registers it with verl.
"""

from importlib.metadata import version

from packaging.version import Version

VERL_VERSIONS = ("0.9", "0.10")

if not Version(VERL_VERSIONS[0]) <= Version(version("verl")) < Version(VERL_VERSIONS[1]):
    raise ImportError(
        f"delta-rlvr plugs into verl>={VERL_VERSIONS[0]},<{VERL_VERSIONS[1]}; verl {version('verl')} is installed"
    )
