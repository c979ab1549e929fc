"""The protocol of rules: what they are given, what they may give back, and the check that anyone can run on a rule of his own."""

import math
from dataclasses import dataclass
from itertools import count

import pytest
import torch

from credit_batches import make_batch
from delta_rlvr import CreditStream, Delta, TokenRule, credit_record
from delta_rlvr.credit import CreditRecord, RuleError
from delta_rlvr.credit.pieces import mean_one, range_weights, surprise
from delta_rlvr.credit.rule import NEEDS, check_needs
from delta_rlvr.objectives import all_methods
from delta_rlvr.testing import RuleBroken, check_rule

CALLS = count(1)


def rule(needs=(), **promises):
    """A rule whose `weigh` is the decorated function."""

    def make(function):
        @dataclass(frozen=True)
        class Made(TokenRule):
            def weigh(self, batch):
                return function(batch)

        for name, value in {"needs": needs, **promises}.items():
            setattr(Made, name, value)
        return Made()

    return make


def solve(rule, **changes):
    batch = make_batch() | changes
    arrays = {name: batch[name] for name in ("hidden", "logps", "advantages", "mask")}
    return credit_record(**arrays, rule=rule, tokens=batch["tokens"], entropy=batch["entropy"], groups=batch["groups"])


def test_a_rule_gives_weights_or_a_whole_record():
    @rule()
    def plain(batch):
        return batch.position.float()

    record = solve(plain)
    assert isinstance(record, CreditRecord)
    assert record.weights.dtype == torch.float32
    assert record.weights[: int(record.lengths[0])].tolist() == list(range(int(record.lengths[0])))

    @rule()
    def detailed(batch):
        return CreditRecord.of(batch, batch.ones(), alpha=batch.ones() / 2)

    assert (solve(detailed).alpha == 0.5).all()


def test_sums_by_a_key():
    # rows of lengths 2, 1, 3: the key of a token is its position, so sums run over rows. 1+4+8, 2+16, 32.
    seen = {}

    @rule()
    def summing(batch):
        values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
        seen["sums"] = batch.sums_by(batch.position, values).tolist()
        return batch.ones()

    stream = CreditStream(summing)
    stream.add(None, lengths=torch.tensor([2, 1, 3]))
    stream.solve(torch.tensor([1.0, -1.0, 0.0]))
    assert seen["sums"] == [13.0, 18.0, 13.0, 13.0, 18.0, 32.0]


@pytest.mark.parametrize("need", [name for name in NEEDS if name not in ("hidden", "gradients")])
def test_what_is_not_declared_is_not_there(need):
    @rule()
    def curious(batch):
        return getattr(batch, need)

    with pytest.raises(ValueError, match=f"reads batch.{need} without declaring it: add '{need}'"):
        solve(curious)


def test_the_store_is_there_where_hidden_states_are_declared():
    @rule(needs=("hidden",))
    def norms(batch):
        lengths = [rows.norm(dim=-1) for _, rows in batch.store.chunks([True] * len(batch.store.bounds))]
        return torch.cat(lengths)

    batch = make_batch()
    torch.testing.assert_close(solve(norms).weights, batch["hidden"][batch["mask"]].norm(dim=-1))
    with pytest.raises(ValueError, match="add 'hidden' to its `needs`"):
        solve(rule()(lambda batch: batch.store))


@pytest.mark.parametrize(
    ("weigh", "words"),
    [
        (lambda batch: None, "gave NoneType: give a tensor"),
        (lambda batch: batch.advantages.abs(), r"gave shape \(9,\): give one weight per valid token"),
        (lambda batch: batch.position == 0, "gave torch.bool: give floating-point weights"),
        (lambda batch: batch.ones() - 2 * (batch.row == 3), "gave the weight -1 to token 0 of row 3"),
        (lambda batch: batch.ones() / (batch.row != 4), "gave the weight inf to token 0 of row 4"),
        (lambda batch: batch.ones() * float("nan"), "gave the weight nan to token 0 of row"),
    ],
)
def test_weights_that_cannot_be_used_are_named(weigh, words):
    with pytest.raises(RuleError, match=words):
        solve(rule()(weigh))


def test_solve_checks_the_rule_that_it_is_given():
    """Not the stream's own: groups are asked for by the rule that needs them, and by no other."""
    batch = make_batch()
    plain, grouped = Delta(), Delta(scope="group")
    stream = CreditStream(plain)
    stream.add(batch["hidden"], batch["logps"], batch["mask"])
    with pytest.raises(ValueError, match="groups: this method needs the prompt id"):
        stream.solve(batch["advantages"], rule=grouped)
    right = stream.solve(batch["advantages"], groups=batch["groups"], rule=grouped).weights
    assert right.std() > 0.01
    stream = CreditStream(grouped)
    stream.add(batch["hidden"], batch["logps"], batch["mask"])
    assert stream.solve(batch["advantages"], rule=plain).weights.std() > 0.01  # needs no groups


def test_needs_that_cannot_be_given():
    with pytest.raises(
        RuleError, match="the method needs labels of the decisive tokens, which this engine cannot give"
    ):
        check_needs(all_methods()["oracle"].rule, ("logps",), "this engine", "the method")
    with pytest.raises(RuleError, match="needs 'logprobs', which is unknown; needs are hidden"):
        solve(rule(needs=("logprobs",))(lambda batch: batch.ones()))


# ------------------------------------------------------------------ the check for everybody


@pytest.mark.parametrize("name", all_methods())
def test_every_rule_of_ours_passes(name):
    method = all_methods()[name]
    checked = check_rule(method.rho)
    assert {"padding", "row order", "micro-batch split", "packing", "number of ranks"} <= set(checked)
    assert ("mean one" in checked) == method.rho.mean_one
    assert ("slices of responses" in checked) == method.rho.sees_slices


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (rule(("logps",))(lambda b: b.logps.exp() / b.logps.exp().mean()), "depends on the number of ranks"),
        (rule()(lambda b: b.row.double() + 1), "depends on the row order"),
        # Right on one rank, and on two that both have tokens.
        (
            rule(("logps",))(lambda b: b.ones() + 0 * b.logps.max()),
            "(?s)breaks on random_batch.*on two ranks, one without a token",
        ),
        (
            rule(sees_slices=True)(lambda b: (2 * b.position < b.lengths[b.row]).double()),
            "(?s)depends on the slices of responses.*each with a half of every response.*must use no position, length or row",
        ),
        (rule(mean_one=True)(lambda b: b.ones() * 2), "promises a mean of one .* but it is 2"),
        (rule()(lambda b: b.ones() * (b.side.double().sum() - b.side.double().sum() + 1) / (b.side != 0).any()), "inf"),
        (rule()(lambda b: b.ones() / b.lengths.min()), "inf"),
        (rule()(lambda b: b.ones()[1:]), "gave shape"),
        # What cannot be normalised is not taken for DAPO.
        (
            rule(("logps",))(lambda b: mean_one(b, torch.where(b.logps == b.logps.min(), torch.nan, -b.logps))),
            "weight nan to",
        ),
        (rule(("logps",))(lambda b: mean_one(b, b.logps)), r"weight -\d\S+ to token 0 of row 0"),
        (rule(("logps",))(lambda b: mean_one(b, b.logps - b.total(b.logps) / b.token_count)), "weight -"),
        (rule()(lambda b: b.ones() * next(CALLS)), "depends on the number of calls: .* 1 and then 2"),
        (
            rule()(lambda b: int("no number")),
            r"(?s)breaks on .*weigh failed with ValueError: invalid literal.*\(.*test_rules.py, line \d+\)",
        ),
        (
            rule(("logps",))(lambda b: range_weights(b, -surprise(b.logps), 0.7, 1.3)),
            r"range_weights: the scores run from -0\.\d+ to 0; give scores in \[0, 1\] \(.*test_rules.py, line",
        ),
        (
            rule()(lambda b: b.positions.double()),
            r"has no attribute 'positions' .*; did you mean 'position'\?; a batch has advantages, .*, row, .*, total",
        ),
        (
            rule(("hidden",))(lambda b: b.hidden),
            "hidden states come in chunks: `for place, hidden in batch.store.chunks",
        ),
        (
            rule()(lambda b: b.sums_by(b.row, b.ones())),
            "(?s)depends on the number of ranks.*rows count from 0 on each rank, .* batch.response_means",
        ),
        (
            rule(("logps",))(lambda b: (b.logps < b.logps.median()).double()),  # of this rank alone
            "(?s)depends on the number of ranks.*highest_share; for ranks and quantiles batch.reducer.gather",
        ),
        (rule(("logps",))(lambda b: b.ones().where(b.logps > -9, torch.nan)), "(?s)improbable tokens.*the weight nan"),
        (rule()(lambda b: b.ones().to_sparse()), r"gave the layout torch.sparse_coo: give a dense tensor"),
        (rule()(lambda b: [b.advantages.zero_(), b.ones()][1]), "changes batch.advantages in place"),
        (rule(("logps",))(lambda b: b.logps.neg_()), "changes batch.logps in place"),
        (rule()(lambda b: [b.side.zero_(), b.ones()][1]), "changes batch.side in place"),
        (rule()(lambda b: interrupt()), r"weigh failed with KeyboardInterrupt \(.*test_rules.py, line"),
        (rule()(lambda b: int("a\nb\x1b[1m")), r"int\(\) with base 10: 'a\\nb\\x1b\[1m'"),
    ],
)
def test_a_rule_that_breaks_one_is_told_which_and_on_what(broken, words):
    with pytest.raises(RuleBroken, match=words) as told:
        check_rule(broken)
    assert any(batch in str(told.value) for batch in ("random_batch(seed=", "signal", "improbable"))


def test_the_mean_of_a_response():
    seen = []
    means = rule(("logps",))(lambda b: seen.append(b.response_means(b.logps)) or b.response_means(b.logps).exp()[b.row])
    assert check_rule(means)
    stream = CreditStream(means)
    stream.add(None, torch.tensor([-1.0, -2.0, -6.0]), lengths=torch.tensor([2, 0, 1]))
    weights = stream.solve(torch.tensor([1.0, 0.0, -1.0])).weights
    assert seen[-1].tolist() == [-1.5, 0.0, -6.0]
    assert weights.tolist() == pytest.approx([math.exp(-1.5), math.exp(-1.5), math.exp(-6.0)])


def interrupt():
    raise KeyboardInterrupt


def test_needs_that_are_no_names_are_refused():
    with pytest.raises(RuleError, match=r"needs is None: write the names in brackets, as in needs = \(\)"):
        check_rule(rule(None)(lambda b: b.ones()))


def test_needs_in_one_string_are_refused():
    with pytest.raises(RuleError, match=r"needs is a string: write needs = \('logps',\)"):
        check_rule(rule("logps")(lambda b: b.ones()))


def test_the_rank_that_has_the_problem_is_quoted(monkeypatch):
    """Not one that only heard of it, even where that one was not interrupted while it waited."""
    monkeypatch.setattr("threading.Barrier.abort", lambda barrier: None)
    with pytest.raises(RuleBroken, match="the weight inf"):
        check_rule(rule()(lambda b: b.ones() / (b.reducer.rank == 0)))


def test_ranks_that_do_not_meet_are_told(monkeypatch):
    import threading

    import delta_rlvr.testing as testing

    real = threading.Barrier
    monkeypatch.setattr(testing.threading, "Barrier", lambda ranks, timeout: real(ranks, timeout=0.5))
    lonely = rule()(lambda b: b.total(b.ones()) * b.ones() if b.reducer.rank == 0 else b.ones())
    with pytest.raises(RuleBroken, match="each rank must reduce the same things in the same order"):
        check_rule(lonely)
