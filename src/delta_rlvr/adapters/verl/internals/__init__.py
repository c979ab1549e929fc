"""Everything of verl that the plug-in touches. `tests/adapters/verl/test_canary.py` looks up every name that is used here.

One step of verl's trainers: sample, balance, old log-probs, (reference, values), advantages, update. The worker keeps hidden states
while it computes old log-probs; once advantages are there the trainer asks it for token weights, which are stored beside the batch
as `delta_weights`; in the update the stock loss gets them through `rollout_is_weights`, which every stock loss multiplies tokens by.

    fields   the fields of a batch, in both of the layouts that verl's trainers use
    engine   what is asked of the FSDP engine: its ranks, its head, its hidden states while a pass runs
    loss     verl's own loss with token weights
    worker   verl's actor worker with all of these
    controller  weights without a worker, for rules that need no more than log-probs, entropies, tokens and groups
    front    what the trainers below share: settings, run folder
    v1       a front for verl's V1 trainer: modes `delta_sync`, `delta_colocate_async`, `delta_separate_async`
    classic  a front for verl's classic trainer: `trainer.use_v1=False`

The first four know no trainer; each front knows one, and importing it makes verl know it.
"""

from importlib.metadata import version

from packaging.version import Version

VERL_VERSIONS = ("0.9", "0.10")

if not Version(VERL_VERSIONS[0]) <= Version(version("verl")) < Version(VERL_VERSIONS[1]):
    raise ImportError(
        f"delta-rlvr plugs into verl>={VERL_VERSIONS[0]},<{VERL_VERSIONS[1]}; verl {version('verl')} is installed"
    )
