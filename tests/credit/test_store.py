"""Where rows wait: budgets, words, and the same rows back in the same order."""

import pytest
import torch

from delta_rlvr.credit import RowStore
from delta_rlvr.credit import store as store_module


def read(store):
    return torch.cat([rows for _, _, rows in store.chunks([True] * len(store.bounds))])


def test_rows_come_back_in_order_and_unwanted_chunks_are_not_read():
    store = RowStore()
    parts = [torch.randn(n, 3) for n in (2, 0, 5)]
    for part in parts:
        store.add(part)
    assert len(store) == 7
    assert torch.equal(read(store), torch.cat(parts))
    assert [(start, stop) for start, stop, _ in store.chunks([False, False, True])] == [(2, 7)]
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
    assert str(store) == "6 tokens: 0.0 MB on cpu, 4 tokens recomputed at every pass, for want of room"


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
    """Three bf16 parts of the narrow operand against the same products in float64."""
    from delta_rlvr.credit.linear import inner_products, weighted_sums

    torch.manual_seed(0)
    rows = torch.randn(5000, 512, device="cuda").bfloat16()
    weights = torch.rand(2, 5000, device="cuda", dtype=torch.float64)
    exact = weights @ rows.double()
    assert ((weighted_sums(weights, rows) - exact).norm() / exact.norm()).item() < 1e-6
    vectors = torch.randn(2, 512, device="cuda", dtype=torch.float64)
    exact = rows.double() @ vectors.T
    assert ((inner_products(rows, vectors) - exact).norm() / exact.norm()).item() < 1e-6
