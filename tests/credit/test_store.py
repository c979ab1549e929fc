"""Where rows wait: budgets, words, and the same rows back in the same order."""

import pytest
import torch

from delta_rlvr.credit import CreditStream, Delta, RowStore, credit_record
from delta_rlvr.credit import store as store_module
from delta_rlvr.credit.linear import add_weighted_sums, merge, split, store_inner_products
from rounding import rounding


def read(store):
    return torch.cat([rows for _, rows in store.chunks([True] * len(store.bounds))])


def test_rows_come_back_in_order_and_unwanted_chunks_are_not_read():
    store = RowStore()
    parts = [torch.randn(n, 3) for n in (2, 0, 5)]
    for part in parts:
        store.add(part)
    assert len(store) == 7
    assert torch.equal(read(store), torch.cat(parts))
    assert [place for place, _ in store.chunks([False, False, True])] == [slice(2, 7)]
    assert store.bytes_on_device == 7 * 3 * 4
    assert str(store) == "7 tokens: 0.0 MB on cpu"
    store.clear()
    assert len(store) == 0
    assert store.bytes_on_device == 0


def test_budget_then_recompute():
    store = RowStore(device_bytes=3 * 4 * 2)
    first, second = torch.randn(2, 3), torch.randn(4, 3)
    store.add(first, recompute=lambda: pytest.fail("it had room"))
    store.add(second, recompute=lambda: second)
    assert torch.equal(read(store), torch.cat([first, second]))
    assert str(store) == "6 tokens: 0.0 MB on cpu, 4 tokens recomputed in every pass for lack of memory"


def test_the_ranks_of_a_node_share_its_memory(monkeypatch):
    monkeypatch.setattr(store_module.os, "sysconf", {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    device = torch.device("cuda")
    # Half of 4,096,000 bytes, among one rank and among eight.
    assert RowStore()._free_on_host(device) == 2_048_000
    assert RowStore(ranks_on_node=8)._free_on_host(device) == 256_000
    assert RowStore(host_bytes=5, ranks_on_node=8)._free_on_host(device) == 5
    assert RowStore(ranks_on_node=8)._free_on_host(torch.device("cpu")) is None


def test_host_memory_where_it_is_asked_for_on_a_cpu(monkeypatch):
    """Two slabs of 10 rows: a part of 7 rows, then one of 8 that is cut between them, and one that has no room."""
    monkeypatch.setattr(store_module, "SLAB_BYTES", 10 * 3 * 4)
    store = RowStore(device_bytes=0, host_bytes=15 * 3 * 4)
    for _ in range(2):  # the second batch finds the slabs of the first
        store.clear()
        parts = [torch.randn(n, 3) for n in (7, 8)]
        for part in parts:
            store.add(part)
        assert store.bounds == [(0, 7), (7, 10), (10, 15)]
        assert torch.equal(read(store), torch.cat(parts))
        assert (store.bytes_on_device, store.bytes_on_host) == (0, 15 * 3 * 4)
        assert str(store) == "15 tokens: 0.0 MB in host memory"
        with pytest.raises(ValueError, match="no room for 12 more bytes"):
            store.add(torch.randn(1, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_device_host_and_recompute_in_one_batch(dtype, monkeypatch):
    monkeypatch.setattr(store_module, "SLAB_BYTES", 1 << 16)
    store = RowStore(device_bytes=1 << 16, host_bytes=1 << 18)
    for _ in range(2):  # the second batch finds the pinned memory of the first
        store.clear()
        parts = [torch.randn(150, 96, device="cuda", dtype=dtype) for _ in range(12)]
        for part in parts:
            store.add(part, recompute=lambda part=part: part)
        assert torch.equal(read(store), torch.cat(parts))
        assert store.bytes_on_device <= 1 << 16
        assert 0 < store.bytes_on_host <= 1 << 18
        assert "pinned host memory" in str(store)


@pytest.mark.gpu
def test_bf16_on_tensor_cores_is_as_good_as_float64():
    """Three bf16 parts of the small operand, fp32 accumulation, against the same products in float64."""
    torch.manual_seed(0)
    rows = torch.randn(5000, 512, device="cuda").bfloat16()
    weights = torch.rand(2, 5000, device="cuda", dtype=torch.float64)
    total = torch.zeros(6, 512, device="cuda", dtype=torch.float64)
    add_weighted_sums(total, split(weights, rows.dtype), rows)
    exact = weights @ rows.double()
    assert ((merge(total, 2) - exact).norm() / exact.norm()).item() < rounding(5000)
    vectors = torch.randn(2, 512, device="cuda", dtype=torch.float64)
    products = torch.zeros(5000, 6, device="cuda", dtype=torch.float64)
    store_inner_products(products, rows, split(vectors, rows.dtype))
    exact = rows.double() @ vectors.T
    assert ((merge(products.T, 2).T - exact).norm() / exact.norm()).item() < rounding(512)


@pytest.mark.gpu
def test_coefficients_on_the_gpu_equal_those_on_the_cpu():
    """bf16 rows on tensor cores, on the device and from pinned memory, against float64 on the CPU."""
    torch.manual_seed(1)
    hidden, logps = torch.randn(24, 100, 256).bfloat16(), -torch.rand(24, 100)
    advantages, mask = torch.randn(24), torch.rand(24, 100) < 0.8
    for scope in ("batch", "group"):
        rule, groups = Delta(scope=scope), torch.arange(24) // 4
        expected = credit_record(hidden, logps, advantages, mask, rule=rule, groups=groups).weights
        for store in (RowStore(), RowStore(device_bytes=0)):
            stream = CreditStream(rule, store=store)
            for rows in torch.arange(24).split(7):
                stream.add(hidden[rows].cuda(), logps[rows].cuda(), mask[rows].cuda())
            ours = stream.solve(advantages.cuda(), groups=groups.cuda()).weights
            # On tensor cores sums over 2,400 tokens and 256 entries are float32, margins are then divided by their spread.
            torch.testing.assert_close(ours.cpu(), expected, atol=rounding(4000), rtol=0)
