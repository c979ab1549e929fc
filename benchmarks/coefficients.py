"""What DelTA's coefficients cost on top of the old-log-prob pass, against recomputing the hidden states.

One process, one model, three ways, interleaved; medians (of the differences within a round, for what ours adds):

    stock       the old-log-prob pass
    recompute   the same pass and K + 2 more calls of the very same forward (what the authors' code does)
    ours        the same pass with the hidden states kept, then the solve

    python benchmarks/coefficients.py                      a small model on the CPU
    python benchmarks/coefficients.py --shape qwen3-8b     on a GPU: Qwen3-8B's shape, random weights, bf16, 64k tokens
    python benchmarks/coefficients.py --shape qwen3-8b --tokens 524288 --store host --skip-recompute
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from common import wait
from delta_rlvr import CreditStream, Delta, RowStore

SHAPES = {
    "small": {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1536, "num_attention_heads": 8}
    | {"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 8192},
    "qwen3-8b": {"hidden_size": 4096, "num_hidden_layers": 36, "intermediate_size": 12288, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
}


class Bench:
    """A random model of a shape and a batch of random tokens."""

    def __init__(self, options: argparse.Namespace):
        torch.manual_seed(0)
        self.device = torch.device("cuda" if options.shape != "small" else "cpu")
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        rows = options.tokens // options.length
        self.micro = options.micro_rows
        shape: dict[str, Any] = SHAPES[options.shape]
        config = Qwen3Config(**shape, max_position_embeddings=options.length + 1)
        with torch.device(self.device):
            torch.set_default_dtype(self.dtype)
            self.model = Qwen3ForCausalLM(config).eval()
            torch.set_default_dtype(torch.float32)
            self.ids = torch.randint(0, config.vocab_size, (rows, options.length + 1))
            # Some responses are shorter, some have no advantage, as in a real batch.
            lengths = torch.randint(options.length // 2, options.length + 1, (rows,))
            self.mask = torch.arange(options.length)[None] < lengths[:, None]
            self.counts = lengths.tolist()  # an engine knows how long its responses are
            self.advantages = torch.randn(rows)
        self.advantages[:: max(2, rows // 8)] = 0
        self.rule = Delta(proxy=options.proxy, refinements=options.refinements)
        budget = {"device_bytes": 0} if options.store == "host" else {"device_bytes": 1 << 60}
        self.store = RowStore(**budget)

    @torch.no_grad()
    def forward(self, start: int) -> tuple[Tensor, Tensor]:
        """Hidden states and log-probs of one micro-batch: what an engine's old-log-prob pass does."""
        ids = self.ids[start : start + self.micro]
        hidden = self.model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        targets = ids[:, 1:]
        logps = torch.empty(targets.shape, dtype=torch.float32, device=self.device)
        step = max(1, (1 << 27) // (len(ids) * self.model.config.vocab_size))
        for piece in range(0, targets.shape[1], step):
            logits = self.model.lm_head(hidden[:, piece : piece + step]).float()
            picked = logits.gather(-1, targets[:, piece : piece + step, None])[..., 0]
            logps[:, piece : piece + step] = picked - logits.logsumexp(-1)
        return hidden, logps

    def stock(self) -> None:
        for start in range(0, len(self.ids), self.micro):
            self.forward(start)

    def recompute(self) -> None:
        for _ in range(1 + self.rule.refinements + 2):
            self.stock()

    def capture(self) -> CreditStream:
        stream = CreditStream(self.rule, head=self.model.lm_head.weight, store=self.store, device=self.device)
        stream.clear()
        for start in range(0, len(self.ids), self.micro):
            hidden, logps = self.forward(start)
            rows = slice(start, start + self.micro)
            tokens = self.ids[rows, 1:] if "tokens" in self.rule.needs else None
            stream.add(hidden, logps, self.mask[rows], token_count=sum(self.counts[rows]), tokens=tokens)
            del hidden, logps  # an engine's hook does not hold on to them through the next forward either
        return stream

    def ours(self) -> None:
        self.capture().solve(self.advantages)
        self.store.clear()

    def seconds(self, way: Callable[[], Any]) -> float:
        wait(self.device)
        start = time.perf_counter()
        way()
        wait(self.device)
        return time.perf_counter() - start

    def peak(self, way: Callable[[], Any]) -> int | None:
        """Peak bytes of the device above what the model and the batch take."""
        if self.device.type != "cuda":
            return None
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        way()
        return torch.cuda.max_memory_allocated() - before

    def bandwidth(self) -> float:
        """Bytes a second of a large device-to-device copy, read and written."""
        source = torch.empty(1 << (30 if self.device.type == "cuda" else 26), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.numel() / statistics.median(self.seconds(lambda: target.copy_(source)) for _ in range(9))


def run(options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(options)
    ways = {"stock": bench.stock, "ours": bench.ours}
    if not options.skip_recompute:
        ways["recompute"] = bench.recompute
    for way in ways.values():  # warm-up; pinned memory is allocated here, as in a run's first step
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds):
        # Every second round backwards: what a way finds (clocks, caches) depends on the one before it.
        for name in [*ways][:: -1 if number % 2 else 1]:
            times[name].append(bench.seconds(ways[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}

    stream = bench.capture()
    valid = int(bench.mask.sum())
    held = bench.store.bytes_on_device + bench.store.bytes_on_host
    placement = str(bench.store)
    solve = statistics.median(bench.seconds(lambda: stream.solve(bench.advantages)) for _ in range(9))
    bench.store.clear()
    extra = statistics.median(ours - stock for ours, stock in zip(times["ours"], times["stock"], strict=True))
    reads = 2 + 2 * bench.rule.refinements
    floor = reads * held / bench.bandwidth()
    peaks = {name: bench.peak(ways[name]) for name in ("stock", "ours")}
    result: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if bench.device.type == "cuda" else platform.processor() or "CPU",
        "shape": options.shape,
        "proxy": options.proxy,
        "dtype": str(bench.dtype).removeprefix("torch."),
        "tokens": options.tokens,
        "valid_tokens": valid,
        "rounds": options.rounds,
        "seconds": {name: {"median": medians[name], "all": values} for name, values in times.items()},
        "extra_seconds": extra,
        "extra_over_stock": extra / medians["stock"],
        "solve_seconds": solve,
        "solve_floor_seconds": floor,
        "store": placement,
        "store_bytes": held,
        "peak_extra_bytes": None if peaks["ours"] is None else peaks["ours"] - (peaks["stock"] or 0),
    }
    if not options.skip_recompute:
        result["extra_over_recompute_extra"] = extra / (medians["recompute"] - medians["stock"])
        result["recompute_over_stock"] = medians["recompute"] / medians["stock"]
    return result


def show(result: dict[str, Any]) -> None:
    print(f"{result['machine']}, {result['shape']} ({result['dtype']}), {result['valid_tokens']:,} valid tokens")
    for name, values in result["seconds"].items():
        print(f"  {name:10} {values['median']:9.4f} s   (median of {result['rounds']}, min {min(values['all']):.4f})")
    print(f"  ours adds  {result['extra_seconds'] * 1e3:9.2f} ms = {result['extra_over_stock']:.2%} of the pass")
    if "extra_over_recompute_extra" in result:
        print(f"             {result['extra_over_recompute_extra']:.2%} of what recomputing adds")
    print(f"  solve      {result['solve_seconds'] * 1e3:9.2f} ms (reading the store at full bandwidth: "
          f"{result['solve_floor_seconds'] * 1e3:.2f} ms)")  # fmt: skip
    print(f"  store      {result['store']}")
    if result["peak_extra_bytes"] is not None:
        share = result["peak_extra_bytes"] / max(1, result["store_bytes"])
        print(f"  peak       {result['peak_extra_bytes'] / 1e6:,.1f} MB more than stock = {share:.3f} of the store")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--tokens", type=int, help="tokens of the batch (default: 4096 on the CPU, 65536 on a GPU)")
    parser.add_argument("--length", type=int, help="tokens of a response (default: 256, 2048)")
    parser.add_argument("--micro-rows", type=int, default=4, help="responses a forward")
    parser.add_argument("--proxy", default="output_row", choices=["output_row", "topk_hidden", "head", "centred_row"])
    parser.add_argument("--refinements", type=int, default=1)
    parser.add_argument("--store", choices=["device", "host"], default="device")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-recompute", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    options.tokens = options.tokens or (4096 if options.shape == "small" else 65536)
    options.length = options.length or (256 if options.shape == "small" else 2048)
    result = run(options)
    print(json.dumps(result)) if options.json else show(result)


if __name__ == "__main__":
    main()
