"""`explain`: the coefficients on the page are the core's own, from rollouts in a plain file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from delta_rlvr.cli import main
from delta_rlvr.credit import token_coefficients
from delta_rlvr.exit_codes import ExitCode
from delta_rlvr.models.load import load_policy
from delta_rlvr.report.explain import advantages_and_groups
from delta_rlvr.report.explain import explain as explain_rollouts
from delta_rlvr.report.rollout_files import Rollout, RolloutFileError, read_rollouts
from report_pages import opened, responses_of, unpacked
from rounding import FIVE_DIGITS, MODEL, rounding
from rows import write_rows

PROMPTS = ["Add 90, 13, 10 and 71.\n", "Add 38, 92, 59 and 10.\n"]
RESPONSES = [
    "First, 90 and 13 come to 103. The answer must be 184.",
    "Starting out, from 90 up by 13 is 113. That leaves the answer at 194.",
    "At the start, 38 plus 92 makes 120. The answer is 189.",
    "Starting out, 38 and 92 come to 130. So the answer is 199.",
]


def explain(model, rollouts, page, **settings):
    return explain_rollouts(model, rollouts, **settings).write_page(page)


@pytest.fixture(scope="module")
def rollouts_file(tmp_path_factory):
    lines = [
        {"prompt": PROMPTS[place // 2], "response": response, "reward": float(place in (0, 3))}
        for place, response in enumerate(RESPONSES)
    ]
    return write_rows(tmp_path_factory.mktemp("rollouts") / "rollouts.jsonl", lines)


def by_hand(temperature):
    """One padded batch through the model and the core, instead of one packed response at a time."""
    model, tokenizer = load_policy("builtin")
    sequences, spans = [], []
    for place, response in enumerate(RESPONSES):
        prompt = tokenizer(PROMPTS[place // 2])["input_ids"]
        prompt = prompt[:-1] if prompt[-1] == tokenizer.eos_token_id else prompt
        answer = tokenizer(response, add_special_tokens=False)["input_ids"]
        sequences.append(torch.tensor(prompt + answer))
        spans.append((len(prompt), len(prompt) + len(answer)))
    width = max(map(len, sequences))
    ids = torch.stack([torch.nn.functional.pad(s, (0, width - len(s))) for s in sequences])
    mask = torch.zeros(len(ids), width - 1, dtype=torch.bool)
    for row, (start, end) in enumerate(spans):
        mask[row, start - 1 : end - 1] = True
    attention = torch.stack([torch.arange(width) < len(s) for s in sequences]).long()
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=attention, output_hidden_states=True)
    logps = torch.log_softmax(out.logits[:, :-1] / temperature, -1).gather(-1, ids[:, 1:, None])[..., 0]
    # Two responses a group, rewards 1 and 0: mean 1/2, unbiased deviation sqrt(1/2).
    size = 0.5 / (0.5**0.5 + 1e-4)
    advantages = torch.tensor([size, -size, -size, size], dtype=torch.float64)
    weights = token_coefficients(out.hidden_states[-1][:, :-1], logps, advantages, mask)
    return [(weights[row][mask[row]], logps[row][mask[row]], float(advantages[row])) for row in range(len(ids))]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_coefficients_agree_with_one_padded_batch(rollouts_file, tmp_path, temperature):
    page = explain("builtin", rollouts_file, tmp_path / "explain.html", temperature=temperature)
    texts = {"".join(response["tokens"]): response for response in responses_of(page)}
    assert len(texts) == 4
    for text, (weights, logps, advantage) in zip(RESPONSES, by_hand(temperature), strict=True):
        response = texts[text]  # the joined tokens are the response
        assert response["advantage"] == pytest.approx(advantage)
        # One response at a time and all at once: two passes through the model, kept with five digits.
        passes = rounding(MODEL, size=10.0)
        assert response["weight"] == pytest.approx(weights.tolist(), rel=FIVE_DIGITS, abs=passes)
        assert response["logps"] == pytest.approx(logps.tolist(), rel=FIVE_DIGITS, abs=passes)
        assert set(response["other_weights"]) == {"dapo-ft", "grpo"}


def test_the_page_opens(browser, rollouts_file, tmp_path):
    report = explain("builtin", rollouts_file, tmp_path / "explain.html", methods=["delta-group"])
    with opened(browser, report) as page:
        assert page.text_content("#title") == "Credit of rollouts.jsonl under builtin"
        assert "4 responses to 2 prompts; rewards differ for 2 prompts" in page.text_content("#lede")
        assert page.locator("nav.sections a").all_text_contents() == [
            "Tokens",
            "Weights",
            "Token clouds",
            "Discriminator",
        ]
        assert page.locator(".problems").count() == 0
        assert page.text_content(".side.positive .response-text") == RESPONSES[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON .*; each line is one JSON object"),
        ('{"reward": 1, "reward": 0}', "line 2: .*'reward' comes twice"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "line 2: .* nested more than 100 deep"),
        ("[1]", "line 2 is not an object"),
        ('{"prompt": "p", "reward": 1}', "line 2 has no response"),
        ('{"prompt": 3, "response": "r", "reward": 1}', "line 2: prompt must be a text or a list"),
        ('{"prompt": [{"role": "user"}], "response": "r", "reward": 1}', "line 2: prompt must be"),
        ('{"prompt": "p", "response": null, "reward": 1}', "line 2: response must be a text, got None"),
        ('{"prompt": "p", "response": "r", "reward": "1"}', "line 2: reward must be a finite number"),
        ('{"prompt": "p", "response": "r", "reward": NaN}', "line 2: reward must be a finite number"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = write_rows(tmp_path / "rollouts.jsonl", [{"prompt": "p", "response": "r", "reward": 1}, line])
    with pytest.raises(RolloutFileError, match=words):
        read_rollouts(path)


def test_a_response_without_a_token_counts_in_its_group(tmp_path):
    """It was refused in a plain file and taken in verl's."""
    lines = [
        {"prompt": PROMPTS[0], "response": text, "reward": reward}
        for text, reward in ((RESPONSES[0], 1), (RESPONSES[1], 0), ("", 0))
    ]
    path = write_rows(tmp_path / "rollouts.jsonl", lines)
    shown = responses_of(explain("builtin", path, tmp_path / "x.html"))
    assert {"".join(response["tokens"]) for response in shown} == set(RESPONSES[:2])
    # Rewards 1, 0 and 0: mean 1/3, unbiased deviation sqrt(1/3).
    size = 1 / (3 * (3**-0.5 + 1e-4))
    assert sorted(response["advantage"] for response in shown) == pytest.approx([-size, 2 * size])


def test_a_missing_or_empty_file_is_named(tmp_path):
    with pytest.raises(RolloutFileError, match="there is no such file"):
        read_rollouts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(RolloutFileError, match="is empty"):
        read_rollouts(tmp_path / "empty.jsonl")


def test_a_response_longer_than_the_model_takes_is_named(tmp_path):
    path = write_rows(tmp_path / "long.jsonl", [{"prompt": "Add 1.", "response": "and " * 2000, "reward": 1}])
    with pytest.raises(RolloutFileError, match=r"long\.jsonl line 1 has \d+ tokens, but the model's context is 512"):
        explain("builtin", path, tmp_path / "x.html")


def test_advantages_by_hand():
    def rollout(group, reward):
        return Rollout("line 1", "p", "r", reward, group)

    advantages, groups = advantages_and_groups(
        [rollout("b", 1.0), rollout("a", 5.0), rollout("b", 3.0), rollout("c", 2.0), rollout("c", 2.0)]
    )
    assert groups == [0, 1, 0, 2, 2]
    # Group b: mean 2, unbiased deviation sqrt(2); alone or all equal: 0.
    size = 1 / (2**0.5 + 1e-4)
    assert advantages == pytest.approx([-size, 0, size, 0, 0])


def test_no_signal_is_said(tmp_path):
    same = [{"prompt": PROMPTS[0], "response": response, "reward": 0} for response in RESPONSES[:2]]
    path = write_rows(tmp_path / "same.jsonl", same)
    with pytest.warns(UserWarning, match="no contrast to learn from"):
        page = explain("builtin", path, tmp_path / "x.html")
    assert unpacked(page)["page"]["lede"].endswith("every coefficient is 1.")
    assert {weight for response in responses_of(page) for weight in response["weight"]} == {1.0}


def test_measured_credit_stands_beside_the_weights(tmp_path, capsys):
    lines = [
        {"prompt": PROMPTS[0], "response": response, "reward": float(place == 0), "answer": "184"}
        for place, response in enumerate(RESPONSES[:2])
    ]
    given = write_rows(tmp_path / "rollouts.jsonl", lines)
    command = ["explain", "--model", "builtin", "--rollouts", str(given), "--output", str(tmp_path / "e.html")]
    assert main([*command, "--measured", "16", "--task", "phrased-sums"]) == 0
    shown = responses_of(tmp_path / "e.html")
    assert len(shown) == 2
    for response in shown:
        bound = -np.expm1(np.array(response["logps"]))
        credit = np.array(response["measured"])
        assert len(credit) == len(response["measured_error"]) == len(response["tokens"])
        assert (np.abs(credit) <= bound + 1e-4).all()  # five digits are kept of either
        assert np.abs(credit).max() > 0
    # From the value before the first token, which both share, to the reward: a chance of success, up to noise and the bound.
    right, wrong = sorted((sum(one["measured"]) for one in shown), reverse=True)
    assert right > 0 > wrong
    for more, words in (
        (["--measured", "16"], "belong together"),
        (["--measured", "8", "--task", "phrased-sums"], "at least 16 continuations"),
    ):
        assert main([*command, *more]) == ExitCode.BAD_INPUT
        assert words in capsys.readouterr().err
    given.write_text(given.read_text().replace('"answer": "184"', '"answer": "185"'))
    assert main([*command, "--measured", "16", "--task", "phrased-sums"]) == ExitCode.BAD_INPUT
    assert "line 1: its reward is 1, but phrased-sums gives it 0 for the answer '185'" in capsys.readouterr().err
    given.write_text(given.read_text().replace(', "answer": "185"', ""))
    assert main([*command, "--measured", "16", "--task", "phrased-sums"]) == ExitCode.BAD_INPUT
    assert "line 1 has no answer" in capsys.readouterr().err


def test_commands(rollouts_file, run_folder, tmp_path, capsys):
    page = tmp_path / "r.html"
    assert main(["report", str(run_folder), "--output", str(page), "--title", "A title"]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "A title" in page.read_text()
    page = tmp_path / "e.html"
    methods = "delta?proxy=topk_hidden&scope=group,surprise"
    arguments = ["--model", "builtin", "--rollouts", str(rollouts_file), "--methods", methods]
    assert main(["explain", *arguments, "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert unpacked(page)["page"]["comparison"]["agreeing"]["rule.proxy"] == "topk_hidden"


def test_what_is_no_page_is_not_written_over(rollouts_file, tmp_path, capsys):
    """Before the model is loaded; a page of ours is replaced, which the last line says."""
    kept = rollouts_file.read_bytes()
    arguments = ["explain", "--model", "builtin", "--rollouts", str(rollouts_file), "--methods", "delta"]
    assert main([*arguments, "--output", str(rollouts_file)]) == 2
    assert "already exists and is not a page of explain or report" in capsys.readouterr().err
    assert rollouts_file.read_bytes() == kept
    page = tmp_path / "again.html"
    assert main([*arguments, "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert main([*arguments, "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"{page} (replaces the page that was there)\n"
