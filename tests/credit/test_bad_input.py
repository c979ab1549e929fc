"""Every refusal names the argument and, where there is one, the first offending row."""

import pytest
import torch

from delta_rlvr import CreditStream, Delta, RowStore, token_coefficients
from delta_rlvr.credit.rules.ablations import Ablation
from delta_rlvr.credit.rules.forking import ForkingTokens
from delta_rlvr.credit.rules.uncertainty import Entropy, Surprise


def good():
    g = torch.Generator().manual_seed(0)
    return {
        "hidden": torch.randn(3, 4, 5, generator=g),
        "logps": -torch.rand(3, 4, generator=g),
        "advantages": torch.tensor([1.0, -1.0, 0.5]),
        "mask": torch.tensor([[True] * 4, [True, True, False, False], [True] * 4]),
    }


def broken(name, change):
    arguments = good()
    arguments[name] = change(arguments[name])
    return arguments


def poke(value, *place):
    def change(tensor):
        tensor = tensor.clone()
        tensor[place] = value
        return tensor

    return change


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("name", "place", "row"), [("hidden", (2, 1, 3), 2), ("logps", (1, 1), 1), ("advantages", (2,), 2)]
)
def test_not_finite_names_tensor_and_row(bad, name, place, row):
    with pytest.raises(ValueError, match=rf"^{name}: not finite .*row {row}\b"):
        token_coefficients(**broken(name, poke(bad, *place)))


def test_what_is_masked_is_never_looked_at():
    arguments = good()
    expected = token_coefficients(**arguments)
    for name in ("hidden", "logps"):
        arguments[name][1, 2:] = float("nan")
    assert torch.equal(token_coefficients(**arguments), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (broken("hidden", lambda x: x[:, :3]), r"^hidden: shape \(3, 3, 5\) does not fit"),
        (broken("hidden", lambda x: x[..., 0]), r"^hidden: shape \(3, 4\)"),
        (broken("hidden", lambda x: x.long()), r"^hidden: floating-point"),
        (broken("hidden", lambda x: None), r"^hidden: this method needs"),
        (broken("logps", lambda x: x[:2]), r"^logps: shape \(2, 4\)"),
        (broken("logps", lambda x: None), r"^logps: this method needs"),
        (broken("logps", lambda x: x.exp()), r"^logps: a log-prob cannot be positive, as at row 0"),
        (broken("advantages", lambda x: x[:2]), r"^advantages: shape \(2,\)"),
        (broken("advantages", lambda x: x.long()), r"^advantages: floating-point values are needed, not torch.int64"),
        (broken("advantages", lambda x: x[:, None].expand(3, 4)), r"^advantages: shape \(3, 4\)"),
        (broken("mask", lambda x: x.long()), r"^mask: bool is needed, not torch.int64"),
        (broken("mask", lambda x: x & False), r"^mask: it has no valid token"),
        (broken("mask", lambda x: x[0]), r"^mask: shape \(4,\)"),
    ],
)
def test_shapes_and_types(arguments, message):
    with pytest.raises(ValueError, match=message):
        token_coefficients(**arguments)


def test_what_a_proxy_needs():
    tokens = torch.zeros(3, 4, dtype=torch.int64)
    for proxy in ("topk_hidden", "head"):
        rule = Delta(proxy=proxy)
        with pytest.raises(ValueError, match=r"^head: this method needs"):
            token_coefficients(**good(), rule=rule, tokens=tokens)
        with pytest.raises(ValueError, match=r"^tokens: this method needs"):
            token_coefficients(**good(), rule=rule, head=torch.randn(9, 5))
        with pytest.raises(ValueError, match=r"^tokens: an id lies outside"):
            token_coefficients(**good(), rule=rule, head=torch.randn(9, 5), tokens=tokens + 9)
        with pytest.raises(ValueError, match=r"^head: width 6 does not fit hidden's 5"):
            token_coefficients(**good(), rule=rule, head=torch.randn(9, 6), tokens=tokens)
    with pytest.raises(ValueError, match=r"^groups: this method needs"):
        token_coefficients(**good(), rule=Delta(scope="group"))
    with pytest.raises(ValueError, match=r"^temperature=0"):
        token_coefficients(**good(), temperature=0)
    for rule in (ForkingTokens(), Entropy(), Delta(proxy="sharpness")):
        with pytest.raises(ValueError, match=r"^entropy: this method needs it"):
            token_coefficients(**good(), rule=rule)
    with pytest.raises(ValueError, match=r"^logps: this method needs it"):
        token_coefficients(**broken("logps", lambda x: None), rule=Surprise())


def test_an_entropy_below_0_is_refused_and_rounding_is_not():
    rule, entropy = ForkingTokens(), torch.rand(3, 4)
    for wrong in (-entropy - 0.1, poke(-0.6, 1, 0)(entropy)):
        with pytest.raises(
            ValueError, match=r"^entropy: an entropy cannot be negative, as at row [01]; pass -sum p log p"
        ):
            token_coefficients(**good(), rule=rule, entropy=wrong)
    token_coefficients(**good(), rule=rule, entropy=poke(-0.1, 1, 0)(entropy))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lambda_min": float("nan")}, "lambda_min=nan"),
        ({"refinements": 1.0}, "refinements=1.0"),
        ({"proxy": "output-row"}, "proxy='output-row': choose one of 'output_row'"),
        ({"scope": "rank"}, "scope='rank'"),
        ({"normalize": 1}, "normalize=1"),
        ({"contrast": "within_side", "assignment": "hard"}, "every token would get 0"),
        ({"contrast": "alignment", "assignment": "hard"}, "never negative"),
        ({"contrast": "alignment", "gamma": "initial"}, "not distances"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Ablation(**settings)


def test_a_full_store_says_what_to_raise():
    stream = CreditStream(store=RowStore(device_bytes=100))
    with pytest.raises(ValueError, match="raise device_bytes or host_bytes"):
        stream.add(torch.randn(2, 8, 16), -torch.rand(2, 8), torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="device_bytes=-1"):
        RowStore(device_bytes=-1)


def test_micro_batches_must_fit_each_other():
    stream = CreditStream()
    mask = torch.ones(1, 2, dtype=torch.bool)
    stream.add(torch.randn(1, 2, 4), -torch.rand(1, 2), mask)
    with pytest.raises(ValueError, match="width 5"):
        stream.add(torch.randn(1, 2, 5), -torch.rand(1, 2), mask)
    with pytest.raises(ValueError, match="give it to `add` or to `solve`"):
        stream.solve(torch.tensor([1.0]), logps=-torch.rand(2))
    with pytest.raises(ValueError, match="give a mask"):
        stream.add(torch.randn(1, 2, 4))


def added(rows_of_each, **changes):
    """A stream with micro-batches of so many rows, of which some arguments are changed."""
    stream, start = CreditStream(), 0
    arguments = good() | changes
    for rows in rows_of_each:
        here = slice(start, start + rows)
        stream.add(arguments["hidden"][here], arguments["logps"][here], arguments["mask"][here])
        start += rows
    return stream


@pytest.mark.parametrize("rows_of_each", [(3,), (2, 1), (1, 1, 1)])
@pytest.mark.parametrize("name", ["hidden", "logps"])
def test_rows_are_those_of_the_whole_batch(rows_of_each, name):
    """Whichever micro-batch has the bad ones: the first row is named, and all of them are counted."""
    changed = poke(float("nan"), 1, 0)(poke(float("inf"), 2, 3)(good()[name]))
    stream = added(rows_of_each, **{name: changed})
    with pytest.raises(ValueError, match=rf"^{name}: not finite .* row 1 \(2 such tokens in all\)"):
        stream.solve(good()["advantages"])


def test_log_probs_of_some_micro_batches_only():
    stream, arguments = added((2,)), good()
    stream.add(arguments["hidden"][2:], mask=arguments["mask"][2:])
    with pytest.raises(ValueError, match=r"^logps: shape \(6,\) does not fit; .* \(10,\)"):
        stream.solve(arguments["advantages"])


def test_a_solve_may_be_asked_for_again_after_a_refusal():
    stream, arguments = added((2, 1)), good()
    with pytest.raises(ValueError, match=r"^advantages: not finite"):
        stream.solve(poke(float("nan"), 0)(arguments["advantages"]))
    expected = token_coefficients(**arguments)[arguments["mask"]]
    torch.testing.assert_close(stream.solve(arguments["advantages"]).weights, expected)
