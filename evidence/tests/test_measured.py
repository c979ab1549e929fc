"""Measured credit and the true gradient on a policy small enough to enumerate; intervals; resume; refusals."""

import itertools
import json
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from delta_evidence.judging import Judge
from delta_evidence.learning.protocol import Run, TrainingSettings
from delta_evidence.learning.training import StackedTraining
from delta_evidence.measured.agreement import Labels, choose, planted_agreement, top
from delta_evidence.measured.bench import MeasuredBench, check_verifiable
from delta_evidence.measured.continuations import COPIES, Response, StackContinuations, checked_reward, responses_of
from delta_evidence.measured.estimate import MeasuredCredit, estimate
from delta_evidence.measured.fidelity import (
    PARTS,
    batch_gradient,
    fidelity,
    gradient_batches,
    gradient_facts,
    inner_products,
    leave_one_out,
)
from delta_evidence.measured.measure import measure
from delta_evidence.measured.nodes import cut, importance, pilot_next, share_out
from delta_evidence.measured.served import ServedContinuations
from delta_evidence.measured.settings import MeasuredSettings
from delta_evidence.measured.table import measured_result, sentences
from delta_evidence.planted.updates import update_vectors
from delta_evidence.rollouts import Batch, make_collector
from delta_rlvr.cli import main
from delta_rlvr.evaluate.errors import EvaluationFailed
from delta_rlvr.evaluate.server_sampler import ServerSettings
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.tasks import Problem, get_task
from killed import killed
from rounding import MODEL, rounding
from stacks import bundled_collector, row_hidden, small_model
from stub_server import stub_server, text_answer

# The same stack is held to its shapes in test_against_train.py and test_sampling.py.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")

END, LIMIT, VOCAB = 0, 3, 5
PROMPT = [4, 3]


class DigitTokenizer:
    """Token n is the digit n."""

    pad_token_id = END
    eos_token_id = END
    all_special_ids = (END,)

    def __len__(self):
        return VOCAB

    def __call__(self, text, **_):
        return {"input_ids": [int(digit) for digit in text]}

    def batch_decode(self, rows, **_):
        return ["".join(map(str, row)) for row in rows]


class SumIsOdd:
    """Right if the digits have an odd sum."""

    name, max_tokens, one_line = "sum-is-odd", LIMIT, False

    def problems(self, split, count, seed=0, start=0):
        return [Problem(str(number), "43", None, self.name) for number in range(count)]

    def grade(self, problem, completion):
        return SimpleNamespace(score=float(sum(map(int, completion)) % 2))

    def grade_batch(self, problems, completions):
        return [self.grade(*pair) for pair in zip(problems, completions, strict=True)]

    def decisive(self, problem, completion):
        return None


def toy_model():
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "initializer_range": 0.6}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    tokens = {"vocab_size": VOCAB, "eos_token_id": END, "bos_token_id": None, "pad_token_id": None}
    return small_model("llama", **sizes, **heads, **tokens)


def toy_collector(runs=1):
    tokenizer = DigitTokenizer()
    return make_collector(toy_model(), tokenizer, runs=runs, one_line=False, judge=Judge(tokenizer))


@pytest.fixture(scope="module")
def toy():
    torch.manual_seed(3)
    return toy_collector(), SumIsOdd()


def sequences():
    """Every response: ended by the end token, or cut at the limit."""
    for length in range(1, LIMIT + 1):
        for digits in itertools.product(range(1, VOCAB), repeat=length - 1):
            yield (*digits, END)
    yield from itertools.product(range(1, VOCAB), repeat=LIMIT)


def enumerated(collector, task):
    """log-prob (with its graph) and reward of every response, by a plain forward pass over each."""
    found = {}
    for response in sequences():
        ids = torch.tensor([[PROMPT + list(response)]])
        hidden = row_hidden(collector.policy, ids, torch.ones_like(ids, dtype=torch.bool))
        logits = collector.policy.logits(hidden[:, 0])[0].log_softmax(-1)
        steps = logits[range(len(PROMPT) - 1, ids.shape[-1] - 1), list(response)]
        text = "".join(str(token) for token in response if token != END)
        found[response] = steps, task.grade(None, text).score
    return found


def value(found, prefix):
    """P(reward | the response begins with `prefix`)."""
    here = {
        response: (steps[len(prefix) :].sum().exp().item(), reward)
        for response, (steps, reward) in found.items()
        if response[: len(prefix)] == prefix
    }
    total = sum(share for share, _ in here.values())
    assert total == pytest.approx(1, abs=rounding(MODEL, size=1.0))
    return sum(share * reward for share, reward in here.values())


def as_response(found, response):
    steps, reward = found[response]
    surprise = -np.expm1(steps.detach().double().numpy())
    problem = Problem("0", "43", None, "sum-is-odd")
    return Response(problem, PROMPT, list(response), surprise, reward, LIMIT)


def truth(found, response):
    values = [value(found, response[:place]) for place in range(len(response) + 1)]
    return np.diff(values)


def test_measured_credit_equals_the_enumerated_one(toy):
    found = enumerated(*toy)
    chosen = [(1, 2, 3), (2, 2, END), (4, END), (3, 3, 4), (END,), (2, 1, 2)]
    responses = [as_response(found, one) for one in chosen]
    sampler = StackContinuations(*toy, {0: responses}, seed=5)
    credits = measure({0: responses}, sampler, budget=2048, tolerance=0.0)[0]
    for response, credit in zip(chosen, credits, strict=True):
        exact = truth(found, response)
        assert (np.abs(exact) <= credit.bound + 1e-6).all()
        assert (np.abs(credit.credit) <= credit.bound).all()
        assert (credit.error > 0).all()
        assert (np.abs(credit.credit - exact) <= 3 * credit.error).all()
        assert credit.value[-1] == found[response][1]


def served_by(found):
    """A server of the toy: it goes on from the tokens that it is sent, by the enumerated probabilities."""

    def answer(path, body, tries):
        assert path == "/v1/completions"
        before = tuple(body["prompt"][len(PROMPT) :])
        assert body["prompt"][: len(PROMPT)] == PROMPT
        assert body["max_tokens"] == LIMIT - len(before)
        assert (body["temperature"], body["top_p"], body["model"]) == (1.0, 1.0, "tiny")
        if body["seed"] % 5 == 0 and not tries:
            return 503, {"error": {"message": "busy"}}
        rest, shares = following(before)
        drawn = rest[np.random.default_rng(body["seed"]).choice(len(rest), p=shares)]
        return 200, text_answer("".join(str(token) for token in drawn if token != END))

    @cache
    def following(before):
        rest = [response for response in found if response[: len(before)] == before]
        shares = np.array([found[response][0][len(before) :].sum().exp().item() for response in rest])
        return [response[len(before) :] for response in rest], shares / shares.sum()

    return answer


def test_a_server_with_the_same_model_measures_the_same_credit(toy):
    collector, task = toy
    found = {response: (steps.detach(), reward) for response, (steps, reward) in enumerated(*toy).items()}
    chosen = [(1, 2, 3), (2, 2, END)]
    responses = {2: [as_response(found, one) for one in chosen]}
    with stub_server(served_by(found)) as stub:
        server = ServerSettings(stub.url, "tiny", api="completions", backoff=0.001, concurrency=8)
        sampler = ServedContinuations(server, collector.tokenizer, task, responses, seed=5)
        credits = measure(responses, sampler, budget=96, tolerance=0.0)[2]
        assert list(sampler([])) == []
    for response, credit in zip(chosen, credits, strict=True):
        assert (np.abs(credit.credit - truth(found, response)) <= 3 * credit.error).all()


def test_a_server_that_refuses_ends_the_measuring_in_words(toy):
    collector, task = toy
    responses = {0: [as_response(enumerated(*toy), (1, 2, 3))]}
    with stub_server(lambda path, body, tries: (400, {"error": {"message": "ids are not taken"}})) as stub:
        server = ServerSettings(stub.url, "tiny", api="completions", backoff=0.001)
        sampler = ServedContinuations(server, collector.tokenizer, task, responses, seed=5)
        with pytest.raises(EvaluationFailed, match=r"ids are not taken.*goes on from what was judged"):
            measure(responses, sampler, budget=16, tolerance=0.0)
    with pytest.raises(ValueError, match="completions"):
        ServedContinuations(ServerSettings(stub.url, "tiny"), collector.tokenizer, task, responses, seed=5)


def test_a_tolerance_changes_a_credit_by_no_more_than_it_says(toy):
    found = enumerated(*toy)
    response = as_response(found, (1, 2, 3))
    tolerance = float(response.surprise.min())  # one token then needs no samples
    sampler = StackContinuations(*toy, {0: [response]}, seed=6)
    (credit,) = measure({0: [response]}, sampler, budget=4096, tolerance=tolerance)[0]
    exact = truth(found, (1, 2, 3))
    unsampled = credit.samples == 0
    assert unsampled.any()
    assert (np.abs(exact[unsampled]) <= credit.bound[unsampled]).all()
    assert ((credit.low <= exact) & (exact <= credit.high)).all()


def test_intervals_cover_what_they_say():
    # 200 repetitions on a response of six tokens whose values are known; the samples are exact draws from them.
    values = np.array([0.45, 0.55, 0.3, 0.6, 0.5, 0.7, 1.0])
    exact = np.diff(values)
    response = Response(Problem("0", "", None, ""), [1], [1] * 6, np.full(6, 0.9), 1.0, 6)
    inside = []
    for repetition in range(200):
        draw = np.random.default_rng(repetition)

        def continuations(chunks, draw=draw):
            yield chunks, [float(draw.binomial(COPIES, values[chunk.position])) for chunk in chunks]

        (credit,) = measure({0: [response]}, continuations, budget=768, tolerance=0.0)[0]
        inside.append((credit.low <= exact) & (exact <= credit.high))
        assert (np.abs(credit.credit) <= credit.bound).all()
    assert 0.93 <= np.mean(inside) <= 0.97


def test_the_gradient_of_the_expected_reward_equals_the_enumerated_one(toy):
    collector, task = toy
    found = enumerated(collector, task)
    expected = sum(steps.sum().exp() * reward for steps, reward in found.values())
    parameters = list(collector.policy.parameters())
    exact = torch.cat([one.flatten() for one in torch.autograd.grad(expected, parameters)])
    numbers, group = gradient_batches(2048)
    parts = torch.zeros(PARTS, len(exact))
    batch = Batch(task, task.problems("train", 2), 7, LIMIT)
    accuracy = []
    for number in range(numbers):
        (rollouts,) = collector.collect([batch], group=group, number=number, ragged=True)
        gradient = batch_gradient(collector.policy, rollouts, group=group, pass_rows=512)
        parts[number % PARTS] += gradient * (PARTS / (numbers * len(rollouts.mask)))
        accuracy.append(rollouts.correct.mean().item())
    # 2 prompts (which are the same) x 2048 rollouts: the standard deviation of the accuracy is at most 0.5 / 64
    assert np.mean(accuracy) == pytest.approx(expected.item(), abs=3 * 0.5 / 64)
    mean = parts.mean(0)
    # Of the mean along the gradient, from its parts; the t of four parts has wide tails, so that 3 of them would be too few.
    along = parts @ exact / (exact @ exact)
    assert along.mean().item() == pytest.approx(1, abs=4 * along.std().item() / math.sqrt(PARTS))
    assert torch.cosine_similarity(mean, exact, dim=0).item() > 0.97
    facts = gradient_facts(inner_products(parts, parts).numpy())
    # Over seeds the length along the gradient has a standard deviation of about 0.03, its square twice that: four of these.
    assert facts["square"] == pytest.approx((exact @ exact).item(), rel=0.25)
    assert facts["halves_cosine"] > 0.9


def test_shared_prompts_give_the_same_update(toy):
    collector, task = toy
    rollouts = collector.collect([Batch(task, task.problems("train", 3), 1, LIMIT)], group=4)[0]
    weights = [torch.rand(rollouts.mask.shape, generator=torch.Generator().manual_seed(0))]
    plain = update_vectors(collector.policy, rollouts, weights)
    shared = update_vectors(collector.policy, rollouts, weights, copies=4, rows_at_once=8)
    torch.testing.assert_close(shared, plain, rtol=1e-4, atol=1e-5)  # sums in another order


def test_leave_one_out_by_hand():
    # rewards 1, 0, 0, 1: the others' means are 1/3, 2/3, 2/3, 1/3
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    torch.testing.assert_close(leave_one_out(rewards, 4), torch.tensor([2 / 3, -2 / 3, -2 / 3, 2 / 3]))


def test_fidelity_by_hand():
    # The gradient is (2, 0) without noise. Updates (3, 4) and (3, -4): cosine 0.6 each; the mean update (3, 0) has the right
    # direction; <u1, u2> = 9 - 16 < 0 would say that nothing is shared, so a third (3, 0) makes the mean pair product
    # (-7 + 9 + 9) / 3 = 11/3, against a mean square of (25 + 25 + 9) / 3.
    gradient = np.full((2, 2), 4.0)
    updates = np.array([[3, 4], [3, -4], [3, 0.0]])
    products = {"updates": (updates @ updates.T).tolist(), "gradient": (updates @ [[2, 2], [0, 0]]).tolist()}
    plain = {"updates": np.ones((3, 3)).tolist(), "gradient": np.full((3, 2), 2.0).tolist()}
    one = fidelity(products, plain, gradient)
    assert one["gain"] == pytest.approx((0.6 + 0.6 + 1) / 3)
    assert one["over"] == pytest.approx((0.6 + 0.6 + 1) / 3 - 1)
    assert one["aim"] == pytest.approx(3 / math.sqrt(11 / 3))
    assert one["noise"] == pytest.approx(1 - 11 / 59)
    none = gradient_facts(np.zeros((4, 4)))  # no rollout was right
    assert none["square"] == 0
    assert math.isnan(none["reliability"])
    assert math.isnan(fidelity(products, plain, np.zeros((2, 2)))["gain"])
    lost = np.array([[1.0, -0.1], [-0.1, 1.0]])
    assert math.isnan(fidelity(products, plain, lost)["gain"])


def test_nodes_by_hand():
    # From the end: 0.01 and 0.02 fit into 0.05, 0.5 does not; then 0.04 fits, 0.03 more does not.
    nodes = cut(np.array([0.03, 0.04, 0.5, 0.02, 0.01]), 0.05)
    assert nodes.of.tolist() == [0, 1, 1, 2, 2, 2]
    assert nodes.at.tolist() == [0, 2, 5]
    assert nodes.drift.tolist() == pytest.approx([0, 0.04, 0.03])
    assert nodes.splits.tolist() == [True, False, True, False, False]
    certain = cut(np.zeros(3), 0.0)
    assert certain.unknown == 0  # the reward is the value everywhere
    credit = estimate(certain, np.zeros(3), 1.0, np.zeros((0, 2)), np.zeros((0, 2), int))
    assert credit.credit.tolist() == credit.error.tolist() == [0, 0, 0]


def test_the_pilot_looks_where_the_value_moves():
    nodes = cut(np.full(20, 0.5), 0.0)
    assert pilot_next({0: 0.5, 8: 0.52, 16: 0.9, 20: 1.0}) == [12]
    assert pilot_next({8: 0.5, 9: 0.9}) == []
    shares = importance(nodes, np.full(20, 0.5), {0: 0.5, 8: 0.5, 9: 0.9, 20: 0.9})
    assert shares.argmax() == 8  # beside the move, and less certain than the node after it
    counts = share_out([shares], 1000)
    assert abs(int(counts[0].sum()) - 1000) <= 20
    assert share_out([np.zeros(2)], 5)[0].tolist() == [1, 1]


def test_the_interval_is_agresti_and_caffos():
    # 10 of 20 before, 30 of 40 after: 31/42 - 11/22, variance 0.738 * 0.262 / 42 + 0.25 / 22
    nodes = cut(np.array([0.9, 0.9]), 0.0)
    credit = estimate(nodes, np.array([0.9, 0.9]), 1.0, np.array([[5.0, 5], [14, 16]]), np.array([[10, 10], [20, 20]]))
    assert credit.credit.tolist() == pytest.approx([0.25, 0.25])
    middle, error = 31 / 42 - 0.5, math.sqrt(31 * 11 / 42**3 + 0.25 / 22)
    assert credit.error[0] == pytest.approx(error)
    # 1.96 has three digits
    assert [credit.low[0], credit.high[0]] == pytest.approx([middle - 1.96 * error, middle + 1.96 * error], abs=1e-4)
    # The end is known: Agresti and Coull for 30 of 40, (30 + 2) / 44
    other = math.sqrt((32 / 44) * (12 / 44) / 44)
    assert credit.high[1] == pytest.approx(1 - 32 / 44 + 1.96 * other, abs=1e-4)  # three digits again
    assert credit.first.tolist() == pytest.approx([0.2, 0.3])
    assert json.loads(json.dumps(credit.as_lists()))["samples"] == [60, 40]


def test_killed_work_goes_on_with_the_same_outcome(toy, tmp_path):
    found = enumerated(*toy)
    responses = {4: [as_response(found, (1, 2, 3))], 6: [as_response(found, (2, 2, END))]}

    def go(folder, fail_after=None, batches=(4, 6)):
        chosen = {number: responses[number] for number in batches}
        sampler = StackContinuations(*toy, chosen, seed=1, rows_at_once=64)
        asked = []

        def done(chunks):
            asked.append(chunks)
            if fail_after is not None and len(asked) > fail_after:
                raise KeyboardInterrupt

        credits = measure(chosen, sampler, budget=256, tolerance=0.0, folder=folder, done=done)
        return {number: [one.as_lists() for one in some] for number, some in credits.items()}, sum(asked)

    whole, chunks = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "torn", fail_after=3)
    (tmp_path / "torn" / ".piece-00099.json.7.draft").write_text("[[0,")  # what a kill leaves of a write
    again, rest = go(tmp_path / "torn")
    assert again == whole
    assert 0 < rest < chunks
    assert go(tmp_path / "torn")[1] == 0
    # A batch is measured the same alone and beside another.
    assert go(None, batches=(6,))[0][6] == whole[6]


def test_agreement_with_planted_labels_by_hand():
    def credit(sizes, values):
        zeros = np.zeros(len(sizes))
        return MeasuredCredit(np.array(sizes), *[zeros] * 6, np.array(values), zeros)

    # Wrong responses: in the first the named slip costs most of the chance; the second was lost before its slip.
    credits = [credit([0.1, -0.8, 0.05], [0.7, 0.8, 0.0, 0.0]), credit([-0.5, 0.0, -0.02], [0.5, 0.02, 0.02, 0.0])]
    decisive = [np.array([False, True, False]), np.array([False, True, False])]
    # Together the slips have the sizes 0.8 and 0; the others 0.1, 0.05, 0.5 and 0.02: 4 + 0 of 8 pairs are in order.
    agreement = planted_agreement(decisive, [0.0, 0.0], credits)
    assert agreement["wrong_planted"] == 0.5
    assert agreement["wrong_open"] == 0.5
    assert agreement["open_planted"] == 1.0
    assert math.isnan(agreement["right_planted"])


@pytest.mark.parametrize(
    ("weights", "sign"),
    [
        # Mean 2 over the first two rows. Two tokens have it (a half each); 1 pushes its token down on the right side, 3 on the wrong.
        ([[2, 1], [3, 2]], 0.75),
        ([[20, 10], [30, 20]], 0.75),
        ([[1, 1], [1, 1]], 0.5),
        ([[1.01, 1.01], [1.01, 1.01]], 0.5),  # it was 0.750
        ([[0.99, 0.99], [0.99, 0.99]], 0.5),  # it was 0.250
        ([[0, 0], [0, 0]], math.nan),
    ],
)
def test_signs_by_hand(weights, sign):
    """The scale of a weight is no credit: a constant one pushes each token as DAPO does."""
    credits = [[0.5, -0.2], [-0.3, 0.2]]
    rollouts = SimpleNamespace(
        mask=torch.ones(3, 2, dtype=torch.bool),
        correct=torch.tensor([1.0, 0.0, 1.0]),
        advantages=torch.tensor([1.0, -1.0, 0.0]),
    )
    kept = [MeasuredCredit(*[np.array(one)] * 9) for one in credits]
    found = Labels(rollouts, [0, 1], kept).agreement(torch.tensor([*weights, [100, 100]], dtype=torch.float32))
    assert found["sign"] == pytest.approx(sign, nan_ok=True)
    assert found["weight_signal_mean"] == pytest.approx(np.mean(weights))


def test_weights_without_effect_are_told():
    settings = MeasuredSettings(policies=("builtin",), tasks=("phrased-sums",))
    spreads = {"surprise": (0.1, 0.1), "delta": (1.0, 0.0), "grpo": (1.0, 0.2)}
    records = [
        {"method": name, "condition": "clean", "sign": None, "weight_signal_mean": mean, "weight_signal_std": std}
        for name, (mean, std) in spreads.items()
    ]
    document = {"policy": "builtin", "task": "phrased-sums", "facts": {}, "records": records}
    said = sentences(measured_result([document], [], settings))
    # A plain score is no rule.
    assert said[0] == "delta: the weights hardly differ from each other: in effect, this is DAPO."
    assert not [one for one in said if one.startswith(("grpo", "surprise"))]


def test_the_top_tenth_has_some_credit():
    assert top(torch.tensor([0.0, 0.3, 0.1, *[0.0] * 17])).tolist() == [False, True, True, *[False] * 17]
    assert not top(torch.zeros(30)).any()


def test_no_workers_are_refused_before_the_work_begins(tmp_path):
    with pytest.raises(ValueError, match="workers=0"):
        MeasuredBench(MeasuredSettings(), tmp_path, workers=0)


def test_rewards_beyond_the_bound_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        checked_reward(-0.5)
    assert checked_reward(0.5) == 0.5


def test_a_policy_of_a_stack_alone_follows_it(toy):
    collector = toy_collector(runs=2)
    second = collector.alone(1)
    ids, mask = torch.tensor([[PROMPT]]), torch.ones(1, 1, 2, dtype=torch.bool)
    with torch.no_grad():
        collector.policy.embedding[1] += 0.5  # as an optimizer does
        collector.policy.layers[0].qkv[1] *= 2
        both = row_hidden(collector.policy, ids.expand(2, 1, 2), mask.expand(2, 1, 2))
        torch.testing.assert_close(row_hidden(second.policy, ids, mask), both[1:])
        assert not torch.allclose(both[0], both[1])


def test_a_study_arm_weighs_by_measured_credit():
    """One batch of the bundled policy beside a plain arm: the credit is there, and the other arm does not notice."""
    settings = TrainingSettings(steps=1, prompts=2, group=4, updates=1, continuations=16)
    task = "phrased-sums"

    def train(*arms):
        collector, _, _ = bundled_collector(len(arms), rows_at_once=64)
        training = StackedTraining(collector, [Run(task, arm, 3) for arm in arms], settings)
        seen = []
        weigh = training.weigh

        def watched(rollouts, number):
            seen.append((rollouts, weigh(rollouts, number)))
            return seen[-1][1]

        training.weigh = watched
        training.train()
        rollouts, (weights, _) = seen[0]
        return training, rollouts, weights

    training, rollouts, weights = train("dapo", "measured")
    assert rollouts[0].measured is None
    credit = rollouts[1].measured
    live = rollouts[1].advantages != 0
    assert live.any()
    assert credit[live].abs().sum() > 0
    assert (credit[~live] == 0).all()
    surprise = -torch.expm1(rollouts[1].logps)
    assert (credit.abs() <= surprise + 1e-6).all()
    pushed = rollouts[1].advantages.sign()[:, None] * credit > 0
    assert (weights[1][rollouts[1].mask & ~pushed] == 0).all()
    count = int(rollouts[1].mask.sum())
    assert weights[1][rollouts[1].mask].mean().item() == pytest.approx(1, abs=rounding(count, size=1.0))
    plain, _, alone = train("dapo")
    torch.testing.assert_close(alone[0], weights[0])
    # Sums in another order, behind one step of Adam
    torch.testing.assert_close(plain.policy.embedding[0], training.policy.embedding[0], rtol=1e-4, atol=1e-6)


TINY = ["--model", "builtin", "--device", "cpu", "--group", "4", "--prompts", "4"]
TINY += ["--responses", "2", "--batches", "1", "--budget", "16", "--rows-at-once", "64"]
TINY += ["--task", "phrased-sums", "--methods", "delta,oracle-only", "--update-batches", "2"]
TINY += ["--gradient-rollouts", "32", "--output"]


@pytest.mark.slow
def test_the_command_goes_on_and_gives_the_same_tables(tmp_path, capsys):
    whole, torn = str(tmp_path / "whole"), str(tmp_path / "torn")
    given = ["measured-credit", *TINY]
    assert main([*given, whole]) == 0
    told = capsys.readouterr().out
    assert "gain" in told
    assert "seconds: " in told
    assert main([*given, torn, "--seconds", "0.001"]) == 3
    assert "stopped before all was measured" in capsys.readouterr().out
    # Killed while the third piece of the continuations is written, then between the updates of two batches.
    killed("delta_evidence.measured.measure:write_json", 2, [*given, torn])
    assert len(list((tmp_path / "torn").rglob("piece-*.json"))) == 2
    killed("delta_evidence.measured.fidelity:update_vectors", 5, [*given, torn])  # 4 for the gradient
    assert list((tmp_path / "torn").rglob("*.gradient"))
    assert main([*given, torn]) == 0
    assert not list((tmp_path / "torn").rglob("*.gradient"))
    for name in ("measured_credit.json", "measured_credit.md", "measured_credit.svg"):
        assert (tmp_path / "torn" / name).read_text() == (tmp_path / "whole" / name).read_text()
    result = json.loads((tmp_path / "whole" / "measured_credit.json").read_text())
    rows = {row["method"]: row for row in result["rows"] if row["slice"] == "all"}
    assert list(rows) == ["labels", "dapo", "surprise", "entropy", "delta", "oracle-only"]
    assert rows["dapo"]["sign"]["mean"] in (0.5, None)
    assert rows["dapo"]["over"]["mean"] == 0
    assert rows["delta"]["gain"]["mean"] < 1.5
    assert main([*given, whole, "--budget", "64"]) == ExitCode.BAD_INPUT
    assert "other settings (budget was 16 and is now 64)" in capsys.readouterr().err


def test_refusals_in_words(tmp_path, capsys):
    for given, words in (
        (["--concurrency", "2"], "belongs to --server"),
        (["--server", "http://h/v1", "--model", "builtin,sharp"], "holds one model"),
        (["--methods", "measured"], "needs continuations of whole rollout batches"),
        (["--budget", "4"], "at least 16 continuations"),
        (["--update-batches", "1"], "bias from variance"),
    ):
        assert main(["measured-credit", *given, "--output", str(tmp_path / "none")]) == ExitCode.BAD_INPUT
        assert words in capsys.readouterr().err


def test_a_task_without_a_verdict_is_refused():
    class Unjudged(SumIsOdd):
        def grade(self, problem, completion):
            raise NotImplementedError("nobody knows")

    with pytest.raises(ValueError, match="no verifiable reward"):
        check_verifiable(Unjudged())


def test_measured_credit_singles_out_the_planted_tokens():
    """On wrong responses of the bundled policy, among those that could still have been right: a slip in a response whose problem the
    policy never solves decides nothing, whatever the planted label says."""
    task = get_task("phrased-sums")
    collector, _, _ = bundled_collector(1)
    batch = Batch(task, task.problems("train", 16), 0, task.max_tokens, decisive=True)
    rollouts = collector.collect([batch], group=8)[0]
    wrong = [row for row in choose(rollouts, 8) if rollouts.correct[row] == 0]
    responses = {0: responses_of(rollouts, wrong, task.max_tokens)}
    continuations = StackContinuations(collector, task, responses, seed=0)
    credits = measure(responses, continuations, budget=256, tolerance=0.005)[0]
    planted = [rollouts.decisive[row][rollouts.mask[row]].numpy() for row in wrong]
    agreement = planted_agreement(planted, [0.0] * len(wrong), credits)
    assert agreement["wrong_open"] * len(wrong) >= 3
    assert agreement["open_planted"] >= 0.95
