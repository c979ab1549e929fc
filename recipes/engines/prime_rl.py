"""Token credit on prime-rl (read at commit 559b4477), as its custom loss:

    [trainer.loss]
    type = "custom"
    import_path = "recipes.engines.prime_rl.token_credit_loss"
    kwargs = { method = "delta-scalar", memory = 512 }

prime-rl shows a custom loss one sequence at a time, so that the centroids run along (`memory`: how many sequences count, about a
batch). Log-probs are those of the inference engine, the policy that sampled. Around the weights the loss is prime-rl's own default,
whose settings may stand in `kwargs` too.
"""

from dataclasses import replace

from prime_rl.configs.trainer import DefaultLossConfig
from prime_rl.trainer.rl.loss import LossInputs, LossOutputs, default_loss_fn

from delta_rlvr.adapters.engines import PRIME_RL, check_engine
from delta_rlvr.adapters.running import RunningCentroids, running_weights
from delta_rlvr.objectives import get_method

_state = None


def token_credit_loss(inputs: LossInputs, method: str = "delta-scalar", memory: float = 512, **settings) -> LossOutputs:
    global _state
    if _state is None:
        check_engine(get_method(method), PRIME_RL)
        _state = RunningCentroids(memory)
    weights, _state = running_weights(
        _state, inputs.inference_logprobs, inputs.advantages, inputs.loss_mask, method=method
    )
    outputs = default_loss_fn(replace(inputs, advantages=inputs.advantages * weights), DefaultLossConfig(**settings))
    inside = weights[inputs.loss_mask]
    spread = inside.std(correction=0) if len(inside) else weights.sum()
    return replace(outputs, metrics={**outputs.metrics, "credit_weight_std": spread})
