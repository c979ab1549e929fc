"""The engines as people run them, on this machine: each case trains, and is compared with the stock engine in the same sitting.

    python recipes/gpu_engines/prove.py OUT                             # every case that this machine can run
    python recipes/gpu_engines/prove.py OUT --cases trl-stock,trl-delta --steps 20
    python recipes/gpu_engines/prove.py OUT --at-once 6                 # shorter; seconds are then those of a shared GPU
    python recipes/gpu_engines/prove.py OUT --cpu                       # tries the script: bundled policy, no vLLM, verl on gloo

A case that passed is kept in OUT/results.json, so the same command goes on after a sitting that ended; OUT/results.md is the table,
with what was not run and why. Where TRL and verl live in environments of their own: --trl-python, --verl-python; TRL in a folder
beside the rest: --trl-path. It needs a checkout (recipes/verl, and with --cpu tests/support).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOLVE_LIMIT = 0.01
"""Seconds that a solve after the third step may take on a GPU."""
KV_CACHE = 4 << 30
"""Bytes that each vLLM keeps: given, it does not look at what other cases take meanwhile."""
PACKAGES = ("torch", "transformers", "trl", "vllm", "verl", "ray", "delta-rlvr")

Result = dict[str, Any]


class NotRun(Exception):
    """A case that this machine cannot run; the message says why."""


@dataclass
class Proof:
    """One sitting."""

    out: Path
    cpu: bool
    steps: int
    limit: float
    model: str
    trl_python: str
    verl_python: str
    trl_path: str
    preparing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": f"sum-{a}-{b}", "question": f"What is {a} + {b}?", "answer": str(a + b)}
            for a in range(2, 26)
            for b in range(2, 26)
        ]
        self.sums = self.out / "sums.jsonl"
        self.sums.write_text("".join(json.dumps(row) + "\n" for row in rows))

    @property
    def task(self) -> str:
        if self.cpu:
            return "phrased-sums"
        return f"{self.sums}?chat=true&template_text={{question}}&extract=last_number&max_tokens=48"

    def execute(self, name: str, command: list[str], **environment: str) -> None:
        """Run a process with all its children, for `limit` seconds at most; refused where it fails."""
        log = self.out / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                cwd=self.out,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end(process)
        if code:
            raise RuntimeError(f"exit code {code}; see {log.name}: {last_line(log)}")
        if code is None:
            raise RuntimeError(f"not done after {self.limit:g} s; see {log.name}: {last_line(log)}")

    # ------------------------------------------------------------------ TRL

    def trl(self, name: str, method: str | None, *, save: bool = False, **own: Any) -> Result:
        """A run of TRL's trainer (`method` None) or ours."""
        given = {
            "method": method,
            "own": own,
            "model": self.model,
            "task": self.task,
            "problems": None if not self.cpu else 8 * self.steps,
            "options": self._trl_options(name, save=save),
            "kv_cache": KV_CACHE,
            "result": str(self.out / f"{name}.json"),
        }
        return self._train_trl(name, given)

    def _train_trl(self, name: str, given: Result) -> Result:
        need(self.trl_python, "trl", *([] if self.cpu else ["vllm"]), path=self.trl_path)
        settings = self.out / f"{name}.settings.json"
        settings.write_text(json.dumps(given, indent=1))
        paths = os.pathsep.join(filter(None, [self.trl_path, os.environ.get("PYTHONPATH")]))
        command = [self.trl_python, "-W", "ignore", str(HERE / "trl_case.py"), str(settings)]
        gpu = {} if self.cpu else {"CUDA_VISIBLE_DEVICES": devices()[0]}
        self.execute(name, command, PYTHONPATH=paths, MASTER_PORT=str(free_port()), **gpu)
        measured: Result = json.loads(Path(given["result"]).read_text())
        return measured

    def _trl_options(self, name: str, *, save: bool) -> Result:
        size: Result = {"per_device_train_batch_size": 64, "num_generations": 8, "max_completion_length": 48}
        size |= {"use_cpu": True, "bf16": False, "learning_rate": 5e-4}
        if not self.cpu:
            size = {"per_device_train_batch_size": 256, "num_generations": 8, "max_completion_length": 48}
            size |= {"bf16": True, "learning_rate": 5e-6, "gradient_checkpointing": False, "use_vllm": True}
            size |= {"vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.1}
            size |= {"vllm_max_model_length": 208}
        return {
            "output_dir": str(self.out / name),
            "max_steps": self.steps,
            "lr_scheduler_type": "constant",
            "seed": 0,
            "beta": 0.0,
            "logging_steps": 1,
            "disable_tqdm": True,
            "report_to": "none",
            "save_strategy": "steps" if save else "no",
            "save_steps": max(1, self.steps // 2),
            **size,
        }

    def trl_resume(self) -> Result:
        """`trl-delta` once more from its checkpoint in the middle."""
        given, half = self._delta_settings(), max(1, self.steps // 2)
        folder = self.out / "trl-resume"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.out / "trl-delta", folder)
        given["options"]["output_dir"] = str(folder)
        given |= {"resume": str(folder / f"checkpoint-{half}"), "result": str(self.out / "trl-resume.json")}
        return self._train_trl("trl-resume", given)

    def _delta_settings(self) -> Result:
        place = self.out / "trl-delta.settings.json"
        if not place.exists():
            raise NotRun("needs trl-delta")
        settings: Result = json.loads(place.read_text())
        return settings

    def trl_server(self) -> Result:
        if self.cpu or len(devices()) < 2:
            raise NotRun("vLLM's server needs a GPU of its own beside the trainer's: two GPUs")
        name, port = "trl-server", free_port()
        need(self.trl_python, "trl", "vllm", path=self.trl_path)
        command = [self.trl_python, "-m", "trl.scripts.vllm_serve", "--model", self.model]
        command += ["--port", str(port)]
        given = self._delta_settings()
        with serving(self.out / "trl-vllm-serve.log", command, f"http://127.0.0.1:{port}/health", devices()[1]):
            more = {"vllm_mode": "server", "vllm_server_base_url": f"http://127.0.0.1:{port}"}
            given["options"] |= {"output_dir": str(self.out / name), **more}
            return self._train_trl(name, given | {"result": str(self.out / f"{name}.json")})

    # ------------------------------------------------------------------ verl

    def verl(self, name: str, method: str | None, *more: str, total: int | None = None) -> Result:
        """A run of `main_ppo` by the project's recipe, or stock verl (`method` None)."""
        need(self.verl_python, "verl", "ray", *([] if self.cpu else ["vllm"]))
        folder, environment, model = self.out / name, dict(os.environ), self.model
        folder.mkdir(exist_ok=True)
        extra = self._verl_here()
        if self.cpu:
            sys.path.insert(0, str(ROOT / "tests" / "support"))
            from verl_environment import CPU
            from verl_environment import environment as on_cpu
            from verl_launch import LAUNCH, policy_for_verl

            model = str(self.out / "policy")
            if not Path(model).exists():
                policy_for_verl(Path(model))
            environment, extra = on_cpu(), [*CPU, *LAUNCH, *extra]
        else:
            paths = [str(HERE), environment.get("PYTHONPATH", "")]
            environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            environment |= {"VERL_USE_EXTERNAL_MODULES": "verl_beside_others", "PROVE_CASE": name}
            environment |= {"RAY_TMPDIR": f"/tmp/prove-{os.getpid()}-{name}"}  # a socket's whole name has 107 bytes
        data = self.out / "train.parquet"
        with self.preparing:  # cases that start side by side share the file
            if not data.exists():
                prepare = [self.verl_python, str(ROOT / "recipes/verl/prepare_data.py"), "--task", self.task]
                limit = ["--limit", "64"] if self.cpu else []
                subprocess.run([*prepare, *limit, "--output", str(data)], check=True, capture_output=True)
        recipe = {"MODEL": model, "STEPS": str(total or self.steps), "TENSOR_PARALLEL": "1", "GPUS": "1"}
        recipe |= {"ROLLOUT": "vllm", "DATA": str(data), "RUNS": str(folder), "DRY_RUN": "1"}
        recipe |= {"CHAT": "0" if self.cpu else "1", "PATH": os.environ["PATH"]}
        script = ["bash", str(ROOT / "recipes/verl/train.sh"), method or "dapo"]
        printed = subprocess.run(script, env=recipe, check=True, capture_output=True, text=True)
        settings = printed.stdout.splitlines()
        if method is None:
            settings = [one for one in settings if not one.startswith("+delta.")]
        if method is None or "trainer.use_v1=False" in more:
            settings = [one for one in settings if not one.startswith("trainer.v1.trainer_mode=")]
            extra += [] if method else ["trainer.v1.trainer_mode=sync"]
        log = folder / "metrics.jsonl"
        log.unlink(missing_ok=True)
        command = [self.verl_python, "-W", "ignore", "-m", "verl.trainer.main_ppo", *settings, *extra, *more]
        environment["VERL_FILE_LOGGER_PATH"] = str(log)
        self.execute(name, [*command, f"hydra.run.dir={folder / 'hydra'}"], **environment)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        held = [data for line in lines for key, data in line["data"].items() if key.endswith("max_memory_allocated_gb")]
        steps = [_verl_step(line["step"], line["data"]) for line in lines]
        return {"steps": steps, "memory_gib": max(held, default=None)}

    def _verl_here(self) -> list[str]:
        """The recipe's sizes made small, and one machine."""
        prompts, group, length = (8, 8, 64) if self.cpu else (32, 8, 48)
        some = [
            f"data.train_batch_size={prompts}",
            f"actor_rollout_ref.rollout.n={group}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",
            f"data.max_prompt_length={32 if self.cpu else 128}",
            f"data.max_response_length={length}",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
            f"actor_rollout_ref.actor.optim.lr={3e-4 if self.cpu else 5e-6}",
            "trainer.save_freq=-1",
            "trainer.resume_mode=disable",
            "trainer.logger=[file]",
        ]
        if self.cpu:
            return some
        return [
            *some,
            "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
            f"actor_rollout_ref.rollout.max_model_len={128 + length + 16}",
            "actor_rollout_ref.rollout.max_num_seqs=512",
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
            "actor_rollout_ref.actor.use_torch_compile=False",
            "actor_rollout_ref.rollout.enforce_eager=True",
            "actor_rollout_ref.rollout.gpu_memory_utilization=0.1",
            f"+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={KV_CACHE}",
            "actor_rollout_ref.rollout.agent.num_workers=4",
            "reward.num_workers=2",
            "data.dataloader_num_workers=0",
            "+ray_kwargs.ray_init.address=local",
            "+ray_kwargs.ray_init.num_gpus=1",
            "ray_kwargs.ray_init.num_cpus=32",
            "+ray_kwargs.ray_init.include_dashboard=False",
            "+ray_kwargs.ray_init.object_store_memory=1500000000",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        ]

    def _checkpoint(self) -> Path:
        """Of the last step of `verl-delta`."""
        found = sorted((self.out / "verl-delta").glob(f"*/verl/global_step_{self.steps}"))
        if not found:
            raise NotRun("needs verl-delta, with its checkpoint")
        return found[0]

    def verl_lora(self) -> Result:
        if self.cpu:
            raise NotRun("the rollout that stands in for vLLM on a CPU takes whole weights, no adapter")
        return self.verl(
            "verl-lora",
            "delta",
            "actor_rollout_ref.model.lora_rank=16",
            "actor_rollout_ref.model.lora_alpha=32",
            "actor_rollout_ref.model.target_modules=all-linear",
            "actor_rollout_ref.rollout.load_format=safetensors",
        )

    def verl_resume(self) -> Result:
        """`verl-delta` two steps longer, from its checkpoint."""
        checkpoint = self._checkpoint()
        more = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}")
        return self.verl("verl-resume", "delta", *more, total=self.steps + 2)

    def serve(self) -> Result:
        """The checkpoint of `verl-delta` merged, served by vLLM, and scored by `evaluate` (on a CPU: read by transformers)."""
        merged, name = self.out / "merged", "served"
        source = self._checkpoint() / "actor"
        command = [self.verl_python, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        shutil.rmtree(merged, ignore_errors=True)
        self.execute(f"{name}-merge", [*command, "--local_dir", str(source), "--target_dir", str(merged)])
        result = self.out / "served-score.json"
        result.unlink(missing_ok=True)
        score = [sys.executable, "-m", "delta_rlvr", "evaluate", "--benchmarks", f"task:{self.task}"]
        score += ["--limit", "32", "-k", "2", "--output", str(result), "--model"]
        if self.cpu:
            self.execute(name, [*score, str(merged)])
        else:
            port = free_port()
            server = [self.verl_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(merged)]
            server += ["--served-model-name", name, "--port", str(port), "--enforce-eager"]
            server += ["--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", str(KV_CACHE)]
            server += ["--max-model-len", "512"]
            with serving(self.out / "vllm-server.log", server, f"http://127.0.0.1:{port}/health"):
                self.execute(name, [*score, name, "--server", f"http://127.0.0.1:{port}/v1"])
        summary = json.loads(result.read_text())
        return {"steps": [], "memory_gib": None, "complete": summary["complete"]}


Case = Callable[[Proof], Result]
CASES: dict[str, Case] = {
    "trl-stock": lambda proof: proof.trl("trl-stock", None),
    "trl-dapo": lambda proof: proof.trl("trl-dapo", "dapo"),
    "trl-delta": lambda proof: proof.trl("trl-delta", "delta", save=True),
    # The lane without a pass: the sampler's log-probs. transformers' generation gives none.
    "trl-delta-scalar": lambda proof: proof.trl(
        "trl-delta-scalar", "delta-scalar", logps_from="policy" if proof.cpu else "sampler"
    ),
    "trl-server": Proof.trl_server,
    "trl-resume": Proof.trl_resume,
    "verl-stock": lambda proof: proof.verl("verl-stock", None),
    "verl-delta": lambda proof: proof.verl("verl-delta", "delta", f"trainer.save_freq={proof.steps}"),
    "verl-delta-scalar": lambda proof: proof.verl("verl-delta-scalar", "delta-scalar"),
    "verl-classic": lambda proof: proof.verl(
        "verl-classic",
        "delta",
        "trainer.use_v1=False",
        "actor_rollout_ref.model.external_lib=delta_rlvr.adapters.verl.plugin",
    ),
    "verl-lora": Proof.verl_lora,
    "verl-resume": Proof.verl_resume,
    "serve": Proof.serve,
}


NEEDS = {"trl-server": "trl-delta", "trl-resume": "trl-delta", "verl-resume": "verl-delta", "serve": "verl-delta"}
"""Whose checkpoint or settings a case begins with."""


def _verl_step(step: int, data: dict[str, float]) -> Result:
    return {
        "step": step,
        "loss": data["actor/pg_loss"],
        "grad_norm": data["actor/grad_norm"],
        "reward": data["critic/score/mean"],
        "seconds": data["timing_s/step"],
        "weight_mean": data.get("credit/weight_mean"),
        "weight_mean_in_loss": data.get("actor/credit_weight_mean"),
        "solve_seconds": data.get("credit/seconds_solve"),
    }


# ---------------------------------------------------------------------- what is asked of a result


def checks(name: str, result: Result, others: dict[str, Result], steps: int, cpu: bool) -> dict[str, bool]:
    """What a case must show, by name."""
    if name == "serve":
        return {"every sample was graded": bool(result["complete"])}
    taken = result["steps"]
    weighed = [step["weight_mean"] for step in taken if step.get("weight_mean") is not None]
    in_loss = [step["weight_mean_in_loss"] for step in taken if step.get("weight_mean_in_loss") is not None]
    first = steps + 1 if name == "verl-resume" else 1
    last = steps + 2 if name == "verl-resume" else steps
    judged = {
        f"steps {first} to {last}": [step["step"] for step in taken] == list(range(first, last + 1)),
        "finite": all(math.isfinite(step[key]) for step in taken for key in ("loss", "grad_norm")),
        "something is learnt": any(step["grad_norm"] != 0 for step in taken),
    }
    if "stock" not in name and name != "trl-dapo":
        judged["weights have mean one"] = bool(weighed) and all(abs(one - 1) < 1e-3 for one in weighed)
    if in_loss:  # a mean over micro-batches
        judged["mean one in the loss"] = all(abs(one - 1) < 0.05 for one in in_loss)
    if solves := late_solves(taken):
        # Beside others a solve waits for their kernels at every look at the device.
        judged[f"solves under {1000 * SOLVE_LIMIT:g} ms"] = cpu or not result["alone"] or max(solves) < SOLVE_LIMIT
    if name == "trl-dapo" and "trl-stock" in others:
        # Both sample with the same seed; where the engine is deterministic, every loss is the same.
        judged["loss of the first step is stock's"] = apart(result, others["trl-stock"])[0] < 1e-4
    if name == "trl-resume" and cpu and "trl-delta" in others:
        judged["losses are the uninterrupted run's"] = max(apart(result, others["trl-delta"])) == 0
    return judged


def late_solves(taken: list[Result]) -> list[float]:
    return [s["solve_seconds"] for s in taken if s["step"] > 3 and s.get("solve_seconds") is not None]


def apart(one: Result, other: Result) -> list[float]:
    """By how much the losses of two runs differ, step by step."""
    theirs = {step["step"]: step["loss"] for step in other["steps"]}
    return [abs(step["loss"] - theirs[step["step"]]) for step in one["steps"]]


def step_seconds(result: Result) -> float | None:
    """The median after the third step."""
    late = [s["seconds"] for s in result["steps"][3:] or result["steps"] if s["seconds"] is not None]
    return statistics.median(late) if late else None


def table(stored: Result) -> str:
    """The results as Markdown."""
    cases, where = stored["cases"], stored["machine"]
    lines = [
        f"{where['device']}, {'CPU mode: transformers generates, verl on gloo' if where['cpu'] else 'vLLM generates'}; "
        f"{', '.join(f'{name} {version}' for name, version in where['versions'].items())}; {where['date']}",
        "",
        "| case | outcome | steps | step, s | to stock | memory, GiB | largest solve after step 3, ms | loss apart from stock |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, case in cases.items():
        result = case.get("result")
        if result is None:
            lines.append(f"| {name} | {case['outcome']} | | | | | | |")
            continue
        stock = (cases.get(f"{name.split('-')[0]}-stock") or {}).get("result")
        own, theirs = step_seconds(result), step_seconds(stock) if stock else None
        memory, solves = result.get("memory_gib"), late_solves(result["steps"])
        cells = (
            f"{own:.2f}" if own else "",
            f"{own / theirs:.2f}" if own and theirs else "",
            f"{memory:.1f}" if memory else "",
            f"{1000 * max(solves):.1f}" if solves else "",
            f"{max(apart(result, stock)):.1e}" if stock and name == "trl-dapo" else "",
        )
        lines.append(f"| {name} | {case['outcome']} | {len(result['steps'])} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Command: `{stored['command']}`", ""])


# ---------------------------------------------------------------------- processes and the machine


def end(process: subprocess.Popen[Any]) -> None:
    """A process with everything that it started in its session (Ray's too)."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            time.sleep(1)
    process.wait()


@contextlib.contextmanager
def serving(log: Path, command: list[str], health: str, gpu: str | None = None) -> Iterator[None]:
    """A server, from when it answers."""
    environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            limit = time.monotonic() + 240
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(health, timeout=2).close()
                    break
                if process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"the server did not start; see {log.name}: {last_line(log)}")
                time.sleep(1)
            yield
        finally:
            end(process)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return ((errors or lines or ["nothing was said"])[-1])[:300]


def need(python: str, *packages: str, path: str = "") -> None:
    """Refuse a case for which a package is missing."""
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n) is None])"
    paths = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **({"PYTHONPATH": paths} if paths else {})}
    asked = [python, "-c", code, *packages]
    missing = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True).stdout.strip()
    if missing != "[]":
        raise NotRun(f"not installed: {missing}")


def devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    given, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    return given.split(",")[:count] if given else [str(one) for one in range(count)]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def machine(cpu: bool, trl_path: str) -> Result:
    import torch

    versions: dict[str, str] = {}
    for name in PACKAGES:
        for found in importlib.metadata.distributions(name=name, path=[*filter(None, [trl_path]), *sys.path]):
            versions.setdefault(name, found.version)
    device = platform.processor() or platform.machine() if cpu else torch.cuda.get_device_name()
    return {"device": device, "cpu": cpu, "versions": versions, "date": time.strftime("%Y-%m-%d")}


def attempts(proof: Proof, names: list[str], at_once: int) -> Iterator[tuple[str, Result]]:
    """What became of each case, as they end: `at_once` of them side by side, one that needs another after it."""
    waiting = list(names)
    running: dict[concurrent.futures.Future[Result], str] = {}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        while waiting or running:
            before = {*waiting, *running.values()}
            ready = [name for name in waiting if NEEDS.get(name) not in before]
            for name in ready[: at_once - len(running)]:
                waiting.remove(name)
                running[pool.submit(attempt, proof, name, at_once == 1)] = name
            for done in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                yield running.pop(done), done.result()


def attempt(proof: Proof, name: str, alone: bool) -> Result:
    began, case = time.perf_counter(), Result()
    try:
        case["result"] = CASES[name](proof) | {"alone": alone}
    except NotRun as error:
        case["outcome"] = f"not run: {error}"
    except (RuntimeError, OSError, KeyError, subprocess.CalledProcessError) as error:
        case["outcome"] = f"**failed**: {type(error).__name__}: {error}"
    case["seconds"] = round(time.perf_counter() - began, 1)
    return case


def judge(cases: dict[str, Result], steps: int, cpu: bool) -> None:
    """The outcome of every case that ran to its end. What it is compared with may have come later."""
    results = {name: case["result"] for name, case in cases.items() if "result" in case}
    for name, result in results.items():
        judged = checks(name, result, results, steps, cpu)
        wrong = [what for what, held in judged.items() if not held]
        outcome = f"**failed**: {'; '.join(wrong)}" if wrong else "passed"
        cases[name] |= {"checks": judged, "outcome": outcome}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", default=",".join(CASES), help="names with commas (default: all)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=1, help="cases that run side by side (default: 1)")
    parser.add_argument("--limit", type=float, default=420, help="seconds that a process may take")
    parser.add_argument("--model", help="a folder or hub id (default: smollm2-135m; with --cpu the bundled policy)")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--trl-python", default=sys.executable)
    parser.add_argument("--verl-python", default=sys.executable)
    parser.add_argument("--trl-path", default="", help="a folder to put before the others on the path of TRL's cases")
    given = parser.parse_args(words)
    if unknown := set(given.cases.split(",")) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))} (there are: {', '.join(CASES)})")
    if not given.cpu and not devices():
        parser.error("there is no GPU here: --cpu tries the script without one")
    from delta_rlvr.models import resolve_model

    model = resolve_model(given.model or ("builtin" if given.cpu else "smollm2-135m"))
    out = given.out.resolve()
    paths = given.trl_python, given.verl_python, given.trl_path
    proof = Proof(out, given.cpu, given.steps, given.limit, model, *paths)
    place = out / "results.json"
    stored = json.loads(place.read_text()) if place.exists() else {"cases": {}}
    same = (given.cpu, given.steps, model)
    if stored["cases"] and tuple(stored["asked"]) != same:
        parser.error(f"{place} is of other settings (cpu, steps, model: {stored['asked']}): give another folder")
    stored |= {
        "machine": machine(given.cpu, given.trl_path),
        "asked": same,
        "command": " ".join([parser.prog, *(words or sys.argv[1:])]),
    }
    wanted = []
    for name in given.cases.split(","):
        if stored["cases"].get(name, {}).get("outcome") == "passed":
            print(f"{name}: passed before, kept", flush=True)
        else:
            wanted.append(name)
    for name, case in attempts(proof, wanted, given.at_once):
        stored["cases"][name] = case
        stored["cases"] = {key: stored["cases"][key] for key in CASES if key in stored["cases"]}
        judge(stored["cases"], given.steps, given.cpu)
        place.write_text(json.dumps(stored, indent=1))
        (out / "results.md").write_text(table(stored))
        print(f"{name}: {case['outcome']} ({case['seconds']} s)", flush=True)
    print((out / "results.md").read_text())
    return 1 if any("failed" in case["outcome"] for case in stored["cases"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
