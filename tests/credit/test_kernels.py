"""The Triton kernels against float64: in Triton's interpreter where there is one, and on a GPU where there is one."""

import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from delta_rlvr.credit import CreditStream, Delta, kernels
from delta_rlvr.credit.fused import FusedSolver
from delta_rlvr.credit.reduce import Reducer
from delta_rlvr.credit.stream import places
from delta_rlvr.credit.vectors import Rows, RowVectors

KERNELS = ("_side_sum_kernel", "_centroid_kernel", "_margin_kernel", "_assign_kernel", "_project_kernel")
SIZES = ([48, 16], [2, 1], [31, 16, 17], [256, 256], [257, 512, 3, 4], [4096, 1], [333, 1000], [16] * 16)
"""Tokens of the chunks of a batch: odd, even and multiples of 16, in even and odd numbers of chunks."""

COMPARE = """
import torch
from delta_rlvr.credit import kernels
torch.manual_seed(0)
for count, width, dtype, chunks in (
    (300, 150, torch.bfloat16, 3), (5, 64, torch.float32, 1), (1, 7, torch.float16, 1), (0, 8, torch.float32, 1)
):
    rows = torch.randn(count, width, device=DEVICE).to(dtype)
    cut = torch.arange(count).tensor_split(chunks)
    held = [rows[one].clone() for one in cut]
    if chunks == 1 and count:  # rows that begin where 16 bytes cannot be read at once
        held = [rows.new_empty(rows.numel() + 1)[1:].view_as(rows).copy_(rows)]
    parts = kernels.Parts([(int(one[0]) if len(one) else 0, own) for one, own in zip(cut, held)])
    assert all(own.data_ptr() % 16 == 0 for own in parts.rows if len(own))
    weights = torch.rand(count, dtype=torch.float64, device=DEVICE)
    slots = torch.randint(0, 2, (count,), device=DEVICE)
    total = torch.ones(2, width, dtype=torch.float64, device=DEVICE)
    kernels.add_side_sums(total, weights, slots, parts)
    # float32 products, summed in float32 over 256 rows and in float64 beyond: 2^-24 a term, and the terms are near one
    expected = torch.stack([weights * (slots == slot) for slot in (0, 1)]) @ rows.double()
    torch.testing.assert_close(total, 1 + expected, atol=2e-5, rtol=1e-6)
    vectors = torch.randn(2, width, dtype=torch.float64, device=DEVICE)
    products = torch.zeros(count, dtype=torch.float32, device=DEVICE)
    kernels.store_side_products(products, parts, vectors, slots)
    torch.testing.assert_close(products.double(), (rows.double() * vectors[slots]).sum(1), atol=2e-5, rtol=1e-6)
"""

SOLVE = """
import torch
from delta_rlvr.credit import CreditStream, RowStore, kernels
from delta_rlvr.credit.reduce import Reducer
from delta_rlvr.credit.rules.ablations import Ablation
torch.manual_seed(1)
kernels._TOKENS = kernels._BLOCK = 32  # several parts and blocks of a small batch
lengths = torch.tensor([3, 11, 0, 40, 7, 10])
advantages = torch.tensor([0.0, 1.5, 1.0, -0.5, 0.25, -2.0], dtype=torch.float64)
side = advantages.sign().repeat_interleave(lengths)
class NotAlone(Reducer):
    alone = False  # the sums over ranks are made, if of one rank
calls, margins = [], kernels.margins
kernels.margins = lambda *given: calls.append(1) or margins(*given)
for settings, dtype in (
    ({}, torch.bfloat16), ({"refinements": 0}, torch.float32), ({"refinements": 3}, torch.float32),
    ({"gamma": "current"}, torch.float32), ({"gamma": "initial"}, torch.float16), ({"proxy": "full"}, torch.float32),
    ({"contrast": "alignment"}, torch.float32), ({"assignment": "hard"}, torch.float32),
):
    logps = -torch.rand(int(lengths.sum())).double() * 3
    # The sides differ, or margins are near 0 and nothing can be seen.
    hidden = (torch.randn(len(logps), 40) + 0.5 * side[:, None] + 2).to(dtype)
    records = []
    for device, fused in (("cpu", False), (DEVICE, True)):
        kernels.ready = lambda *_, fused=fused: fused
        ranks = NotAlone(device=torch.device(device)) if settings.get("refinements") == 3 else None
        stream = CreditStream(Ablation(**settings), store=RowStore(device_bytes=1 << 40), process_group=ranks)
        for start, stop in ((0, 3), (3, 6)):  # two chunks in the store
            tokens = slice(int(lengths[:start].sum()), int(lengths[:stop].sum()))
            stream.add(hidden[tokens].to(device), logps[tokens].to(device), lengths=lengths[start:stop].to(device))
        records.append(stream.solve(advantages.to(device), diagnose=settings == {}))
    one, other = records
    assert bool(calls) == (not {"contrast", "assignment", "gamma"} & settings.keys()), settings
    calls.clear()
    # Products of a row are float32 in a kernel: 2^-24 of the largest term, over 40 of them.
    for name in ("weights", "alpha", "margin", "margin_initial"):
        wanted = getattr(one, name)
        scale = float(wanted.abs().max())
        torch.testing.assert_close(getattr(other, name).cpu(), wanted, atol=2e-6 * scale, rtol=2e-6, msg=f"{settings} {name}")
    for name in ("masses", "gamma", "centroid_gap", "centroid_gap_initial"):
        given, wanted = getattr(other.discriminator, name).cpu(), getattr(one.discriminator, name)
        torch.testing.assert_close(given, wanted, atol=0, rtol=2e-6, msg=f"{settings} {name}")
    assert one.diagnostics.keys() == other.diagnostics.keys()
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_in_the_interpreter():
    # Rows many at a time, because every operation of a program takes the interpreter as long.
    larger = "from delta_rlvr.credit import kernels\nkernels._SUM_ROWS = 16\n"
    code = larger + (COMPARE + SOLVE).replace("DEVICE", "'cpu'")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.gpu
@pytest.mark.parametrize("code", [COMPARE, SOLVE], ids=["reads", "solve"])
def test_on_a_gpu(code, monkeypatch):
    for name in ("ready", "margins", "_TOKENS", "_BLOCK"):  # what the code sets is undone
        monkeypatch.setattr(kernels, name, getattr(kernels, name))
    exec(code.replace("DEVICE", "'cuda'"), {})


def solved(sizes, width, device):
    """The passes of a solve over chunks of so many rows, as the estimator runs them."""
    count = sum(sizes)
    rows = torch.randn(count, width, device=device).bfloat16()
    mass, side = torch.rand(count, dtype=torch.float64, device=device), torch.ones(count, dtype=torch.int8)
    side[::2] = -1
    held = [(sum(sizes[:place]), part) for place, part in enumerate(rows.split(sizes))]
    vectors = RowVectors(replace(Rows.at_hand(rows), held=held), torch.rand_like(mass))
    batch, masses = SimpleNamespace(reducer=Reducer(), side=side.to(device)), mass.new_ones(2)
    FusedSolver(batch, vectors, Delta(refinements=2), mass, masses).run()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("ranks", [False, True])
def test_a_kernel_has_one_variant_whatever_the_sizes(monkeypatch, ranks):
    """Triton's own key of a compiled variant, for an H200 that need not be there: a launch is replaced by the making of its key."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    backend, variants = make_backend(GPUTarget("cuda", 90, 32)), set()

    def launch(kernel, *given, grid, warmup, **options):
        bind = create_function_from_signature(kernel.signature, kernel.params, backend)
        variants.add((kernel.__name__, *map(str, bind(*given, **options)[1:])))

    monkeypatch.setattr(JITFunction, "run", launch)
    monkeypatch.setattr(kernels, "ready", lambda *_: True)
    kernels.warm_up.__wrapped__(64, torch.bfloat16, torch.device("cpu"), ranks=ranks)
    known = set(variants)
    assert {name for name, *_ in known} == set(KERNELS)
    monkeypatch.setattr(Reducer, "alone", not ranks)
    for sizes in SIZES:
        solved(sizes, 64, "cpu")
    assert variants == known


@pytest.mark.gpu
def test_no_solve_compiles_a_kernel(monkeypatch):
    from triton import knobs

    compiled, device = [], torch.device("cuda", 0)
    kernels.warm_up.__wrapped__(896, torch.bfloat16, device, ranks=False)
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **told: compiled.append(told["repr"]))
    stream = CreditStream(device=device)
    for number, sizes in enumerate((SIZES[0], SIZES[0], *SIZES)):  # torch loads its own kernels in the first two
        stream.clear()
        for count in sizes:
            hidden = torch.randn(count, 896, device=device).bfloat16()
            stream.add(hidden, lengths=torch.tensor([count], device=device), token_count=count)
        logps = -torch.rand(sum(sizes), device=device)
        advantages = torch.tensor([1.0, -1.0] * len(sizes), device=device)[: len(sizes)]
        torch.cuda.synchronize()
        began = time.perf_counter()
        stream.solve(advantages, logps=logps)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        assert number < 2 or took < 0.010, f"{sizes}: {1e3 * took:.1f} ms"
    assert compiled == []


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (4, 5)])
def test_places_without_a_wait(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    expected = mask.flatten().nonzero()[:, 0]
    assert torch.equal(places(mask), expected)
    assert torch.equal(places(mask, len(expected)), expected)


@pytest.mark.parametrize("wrong", [9, 11])
def test_a_wrong_count_is_told(wrong):
    stream = CreditStream()
    mask = torch.ones(2, 5, dtype=torch.bool)
    stream.add(torch.randn(2, 5, 3), mask=mask, token_count=wrong)
    with pytest.raises(
        ValueError, match=f"token_count: {wrong} tokens were added, but the masks or lengths have 10 valid ones"
    ):
        stream.solve(torch.tensor([1.0, -1.0]), logps=-torch.rand(10))


def test_packed_rows_of_a_known_count_are_added_without_a_wait():
    """Tensors on the device "meta" have no values: code that reads one, as code that waits for a GPU does, raises."""
    stream = CreditStream(device="meta")
    stream.add(
        torch.empty(5, 3, device="meta"), lengths=torch.empty(2, dtype=torch.int64, device="meta"), token_count=5
    )
    assert len(stream.store) == 5
    wrong = CreditStream()
    wrong.add(torch.randn(5, 3), lengths=torch.tensor([2, 4]), token_count=5)
    with pytest.raises(ValueError, match="token_count: 5 tokens were added, but the masks or lengths have 6"):
        wrong.solve(torch.tensor([1.0, -1.0]), logps=-torch.rand(6))
