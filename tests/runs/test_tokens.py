"""Running sums per vocabulary entry."""

import numpy as np
import pytest

from delta_rlvr.runs import RunFolderError, TokenSums


def test_sums_by_side_worked_by_hand():
    sums = TokenSums()
    sums.add([4, 2, 4], [1.0, 0.5, 1.5], [1, 1, -1])
    sums.add([9, 4], [0.7, 2.0], [0, 1])  # side 0 belongs to neither sum
    # token 4: positive 1.0 + 2.0 in two occurrences, negative 1.5 in one; token 2: 0.5 once; token 9 never.
    assert sums.ids.tolist() == [2, 4]
    assert sums.count_positive[[2, 4]].tolist() == [1, 2]
    assert sums.sum_positive[[2, 4]].tolist() == [0.5, 3.0]
    assert sums.count_negative[[2, 4]].tolist() == [0, 1]
    assert sums.sum_negative[[2, 4]].tolist() == [0.0, 1.5]


def test_sums_agree_with_a_loop_over_tokens():
    draw = np.random.default_rng(0)
    ids, side = draw.integers(0, 50, 4000), draw.choice([-1.3, 0.0, 0.4], 4000)
    weights = draw.uniform(0.8, 1.2, 4000)
    sums = TokenSums()
    for part in np.array_split(np.arange(4000), 7):  # in batches, as training adds them
        sums.add(ids[part], weights[part], side[part])
    expected = np.zeros(50)
    for token, weight, sign in zip(ids, weights, side, strict=True):
        expected[token] += weight if sign < 0 else 0.0
    np.testing.assert_allclose(sums.sum_negative, expected)


def test_saved_sums_continue(tmp_path):
    sums = TokenSums()
    sums.add([3, 1], [1.0, 0.5], -1)
    sums.save(tmp_path / "tokens.npz", lambda ids: [{1: "\0", 3: "\u202ex"}[i] for i in ids])
    again = TokenSums.load(tmp_path / "tokens.npz")
    again.add([3], [2.0], -1)
    assert again.sum_negative[3] == 3.0
    assert again.text([1, 3, 8]) == ["\u2400", "\u202ex", ""]  # NumPy would lose a NUL at the end


def test_bad_input_is_named():
    sums = TokenSums()
    with pytest.raises(ValueError, match="mask padding"):
        sums.add([-100], [1.0], 1)
    with pytest.raises(ValueError, match="not finite at position 1"):
        sums.add([1, 2], [1.0, float("nan")], 1)
    with pytest.raises(ValueError, match=r"weights have shape \(1,\), ids \(2,\)"):
        sums.add([1, 2], [1.0], 1)
    with pytest.raises(ValueError, match="integers"):
        sums.add([1.5], [1.0], 1)


def test_damaged_file_is_named(tmp_path):
    sums = TokenSums()
    sums.add([3, 1], [1.0, 0.5], -1)
    path = tmp_path / "tokens.npz"
    sums.save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RunFolderError, match=r"tokens\.npz cannot be read as token sums"):
        TokenSums.load(path)


def test_sums_counted_elsewhere_agree_with_tokens_added_here():
    draw = np.random.default_rng(1)
    ids, weights, side = draw.integers(0, 20, 500), draw.uniform(0.8, 1.2, 500), draw.choice([-1, 0, 1], 500)
    here, there = TokenSums(), TokenSums()
    here.add(ids, weights, side)
    columns = []
    for sign in (1, -1):
        columns += [
            np.bincount(ids[side == sign], minlength=20),
            np.bincount(ids[side == sign], weights[side == sign], 20),
        ]
    there.add_sums(*columns)
    there.add_sums(*(np.zeros(3) for _ in columns))  # a smaller vocabulary adds to its own entries alone
    np.testing.assert_array_equal(there.count_positive, here.count_positive)
    np.testing.assert_allclose(there.sum_negative, here.sum_negative)
    with pytest.raises(ValueError, match="sum_positive must be a flat array of finite numbers"):
        there.add_sums([1], [float("nan")], [0], [0.0])
