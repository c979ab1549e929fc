"""Test support, not product: verl on CPU with gloo, and a rollout by transformers' `generate`.

Loaded into every process by VERL_USE_EXTERNAL_MODULES. verl has no CPU platform, so one is registered whose device module answers
the few questions that FSDP training asks of `torch.cuda`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import zlib
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import ray
import torch
from torch.distributed.fsdp import _init_utils as fsdp1
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.utils import distributed, import_utils
from verl.workers.rollout import base as rollout_base


def always(answer: Any = None) -> Any:
    """A function or method that gives this answer, whatever it is asked."""
    return lambda *_, **__: answer


_NOTHING = ("synchronize", "empty_cache", "set_device", "ipc_collect", "reset_peak_memory_stats")
_MEMORY = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
_MODULE = SimpleNamespace(
    **dict.fromkeys(_NOTHING, always()),
    **dict.fromkeys(_MEMORY, always(0)),
    is_available=always(True),
    device_count=always(1),
    current_device=always("cpu"),
    mem_get_info=always((1 << 33, 1 << 34)),
    get_device_name=always("cpu"),
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    current_stream=always(),
    device=lambda *_: nullcontext(),
)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _MODULE
    is_available, device_count, current_device = always(True), always(1), always("cpu")
    set_device = synchronize = empty_cache = set_allocator_settings = always()
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = always((None, None))
    communication_backend_name = always("gloo")
    visible_devices_envvar = always("CUDA_VISIBLE_DEVICES")
    nvtx_range = always(nullcontext())
    profiler_start = profiler_stop = cudart = always()
    ray_resource_name = always("GPU")
    ray_noset_envvars = always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    is_ipc_supported = always(False)


# verl 0.9.1 patches a class of TRL's wherever TRL is installed; TRL 1.16 has it no more. The critic, which needs it, is not used.
import_utils.is_trl_available = lambda: False

# verl asks for "cpu:gloo,{device}:{backend}", which names the CPU twice here.
distributed.initialize_global_process_group_ray = functools.partial(
    distributed.initialize_global_process_group_ray, backend="gloo"
)

# FSDP1 refuses to send rank 0's states to the others from host memory, which NCCL could not; gloo can.
fsdp1._check_module_states_for_sync_module_states = lambda *_: None

# ---------------------------------------------------------------------------------------------------------------- the rollout

_SERVER = "hf_cpu_server_{}"
rollout_base._ROLLOUT_REGISTRY[("hf_cpu", "async")] = "verl_on_cpu.HFRollout"


def _load_replica() -> type:
    from verl.workers.rollout.replica import RolloutReplica

    class HFReplica(RolloutReplica):
        """One server for the replica, in a process of its own."""

        async def launch_servers(self) -> None:
            server = ray.remote(num_cpus=0, max_concurrency=1000)(HFServer).options(
                name=_SERVER.format(self.replica_rank)
            )
            model_path = self.model_config.path
            handle = server.remote(model_path, self.config.response_length, self.config.seed)
            await handle.ready.remote()
            self.servers, self._server_handle, self._server_address = [handle], handle, "none"

    return HFReplica


def register_replica() -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("hf_cpu", _load_replica)


class Noise:
    """Gumbel noise on the logits, so that the likeliest token is a sample."""

    def __init__(self, generators: list[torch.Generator], temperature: float):
        self.generators, self.temperature = generators, temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        uniform = torch.stack([torch.rand(scores.shape[1], generator=one) for one in self.generators])
        return scores / self.temperature - torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))


class HFServer:
    """Collects requests for a moment and samples them together; gives ids and the log-probs they were sampled with."""

    def __init__(self, model_path: str, response_length: int, seed: int):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.seed = seed
        self.asked: dict[tuple[int, ...], int] = {}
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.response_length = response_length
        self.waiting: list[tuple[list[int], float, asyncio.Future]] = []
        self.global_steps = 0

    async def ready(self) -> bool:
        return True

    async def load(self, weights: dict[str, torch.Tensor], global_steps: int) -> None:
        missing, unknown = self.model.load_state_dict(
            {name: value.float() for name, value in weights.items()}, strict=False
        )
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        assert not unknown, unknown
        assert not set(missing) - tied, missing
        self.global_steps = global_steps

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict, **_: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), float(sampling_params.get("temperature", 1.0)), answer))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(0.1, self._sample_all)
        return await answer

    def _sample_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for temperature in {temperature for _, temperature, _ in waiting}:
            batch = [entry for entry in waiting if entry[1] == temperature]
            try:
                for (_, _, answer), output in zip(
                    batch, self._sample([ids for ids, _, _ in batch], temperature), strict=True
                ):
                    answer.set_result(output)
            except Exception as error:  # the callers wait for an answer, whatever it is
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)

    @torch.no_grad()
    def _sample(self, prompts: list[list[int]], temperature: float) -> list[Any]:
        from verl.workers.rollout.replica import TokenOutput

        width = max(map(len, prompts))
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        out = self.model.generate(
            input_ids=torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]),
            max_new_tokens=self.response_length,
            do_sample=False,
            logits_processor=[Noise(self._generators(prompts), temperature)] if temperature else None,
            pad_token_id=pad,
            eos_token_id=end,
            return_dict_in_generate=True,
            output_logits=True,
        )
        sampled = out.sequences[:, width:]
        logits = torch.stack(out.logits, dim=1) / (temperature or 1.0)
        logps = logits.log_softmax(-1).gather(-1, sampled[..., None])[..., 0]
        outputs = []
        for row, chances in zip(sampled.tolist(), logps.tolist(), strict=True):
            length = row.index(end) + 1 if end in row else len(row)
            outputs.append(
                TokenOutput(
                    token_ids=row[:length],
                    log_probs=chances[:length],
                    stop_reason="completed",
                    extra_fields={"global_steps": self.global_steps},
                )
            )
        return outputs

    def _generators(self, prompts: list[list[int]]) -> list[torch.Generator]:
        """A generator for each response, which knows its prompt, its number among that prompt's and the step, and nothing of
        who else is sampled with it: two runs with the same weights sample the same responses."""
        generators = []
        for prompt in prompts:
            key = (self.global_steps, *prompt)
            self.asked[key] = self.asked.get(key, 0) + 1
            number = zlib.crc32(repr((self.seed, self.asked[key], key)).encode())
            generators.append(torch.Generator().manual_seed(number))
        return generators

    async def nothing(self, *_: Any, **__: Any) -> None: ...

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = nothing
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


class HFRollout(rollout_base.BaseRollout):
    """The worker's side: hands the actor's weights to the server, from one rank of each replica."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **kwargs: Any) -> None:
        state = {
            name: value.detach().cpu() for name, value in weights
        }  # gathering is a collective: all ranks take part
        replica, rank = divmod(
            torch.distributed.get_rank(), self.config.tensor_model_parallel_size * self.config.data_parallel_size
        )
        if rank == 0:
            server = ray.get_actor(_SERVER.format(replica))
            await server.load.remote(state, kwargs.get("global_steps") or 0)


if os.environ.get("VERL_PLATFORM") == "cpu":
    register_replica()
