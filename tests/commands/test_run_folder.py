"""What a run leaves in its folder, against the rollout batches that it was made from."""

import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from byte_tokens import bytes_alone
from command_line import run_info
from delta_rlvr.evaluate.results import EvaluationResult
from delta_rlvr.models import load_policy
from delta_rlvr.models.token_texts import token_texts, vocabulary_texts
from delta_rlvr.runs import read_run
from delta_rlvr.tasks import get_task
from report_pages import unpacked
from rounding import FIVE_DIGITS, rounding

SCHEMA = Path(__file__).parents[2] / "docs" / "run_schema.md"


def rollouts(folder):
    run = read_run(folder)
    return [run.rollouts(step) for step in run.rollout_steps]


@pytest.fixture
def lines(finished):
    return read_run(finished[0]).metrics


# ---------------------------------------------------------------- rollouts


def test_rollouts_are_the_batches_token_by_token(finished):
    folder, batches = finished
    dumps = rollouts(folder)
    assert [dump[0]["step"] for dump in dumps] == [batch.step for batch in batches] == [1, 3]
    for dump, batch in zip(dumps, batches, strict=True):
        assert len(dump) == len(batch.rows) == 16
        start = 0
        for row, line in enumerate(dump):
            length = int(batch.record.lengths[row])
            packed = slice(start, start + length)
            start += length
            assert (line["group"], line["index"]) == (row // 4, row % 4)
            assert line["ids"] == batch.completion_ids[row][batch.mask[row]].tolist()
            assert "".join(line["tokens"]) == line["response"]
            assert line["reward"] == batch.rewards[row].item()
            assert line["advantage"] == pytest.approx(batch.advantages[row].item(), rel=FIVE_DIGITS)
            assert line["logps"] == pytest.approx(batch.logps[row][batch.mask[row]].tolist(), rel=FIVE_DIGITS)
            assert line["weight"] == pytest.approx(batch.record.weights[packed].tolist(), rel=FIVE_DIGITS)
            assert line["alpha"] == pytest.approx(batch.record.alpha[packed].tolist(), rel=FIVE_DIGITS)
            assert line["margin"] == pytest.approx(batch.record.margin[packed].tolist(), rel=FIVE_DIGITS)
            for name in (
                *("tokens", "ids", "logps", "entropy", "weight", "alpha"),
                *("margin", "margin_initial", "decisive"),
            ):
                assert len(line[name]) == length, name
            assert set(line["other_weights"]) == {"delta-group", "delta-within-side", "dapo-ft"}
            assert line["prompt_id"] == batch.rows[row]["id"]
            assert line["prompt"] == batch.rows[row]["prompt"]
        assert start == len(batch.record.weights)


def test_graders_words_and_decisive_tokens(finished):
    """Both from the text alone: what the task says of the response, and the characters that its flags cover."""
    folder, _ = finished
    task = get_task()
    problems = {problem.id: problem for problem in task.problems("train", 8, 42)}
    flagged = 0
    for line in (line for dump in rollouts(folder) for line in dump):
        problem = problems[line["prompt_id"]]
        verdict = task.grade(problem, line["response"])
        assert (line["reward"], line["reason"]) == (verdict.score, verdict.reason)
        assert line["answer"] == problem.answer
        decisive = {place for start, end in task.decisive(problem, line["response"]) for place in range(start, end)}
        end = 0
        for token, flag in zip(line["tokens"], line["decisive"], strict=True):
            characters = set(range(end, end + len(token)))
            end += len(token)
            assert flag == bool(characters & decisive)
        flagged += sum(line["decisive"])
    assert flagged > 0


# ---------------------------------------------------------------- token sums


def test_token_sums_add_up_what_the_rollouts_have(finished):
    """Every response is in the dumps of this run, so the sums can be counted again from them."""
    folder, _ = finished
    count, total = {}, {}
    for line in (line for dump in rollouts(folder) for line in dump):
        if side := np.sign(line["advantage"]):
            for number, weight in zip(line["ids"], line["weight"], strict=True):
                count[number, side] = count.get((number, side), 0) + 1
                total[number, side] = total.get((number, side), 0.0) + weight
    with np.load(folder / "tokens.npz") as stored:
        for name, side in (("positive", 1), ("negative", -1)):
            for number, found, weights in zip(
                stored["ids"], stored[f"count_{name}"], stored[f"sum_{name}"], strict=True
            ):
                assert found == count.pop((int(number), side), 0)
                assert weights == pytest.approx(total.get((int(number), side), 0.0), rel=FIVE_DIGITS)
        tokenizer = load_policy()[1]
        assert list(stored["text"]) == [tokenizer.decode([number]) for number in stored["ids"]]
    assert not count


# ---------------------------------------------------------------- metrics


def documented_keys():
    section = SCHEMA.read_text(encoding="utf-8").split("## metrics.jsonl")[1].split("\n## ")[0]
    names = set()
    for row in re.findall(r"^\|([^|]+)\|", section, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", row):
            stem, _, choices = name.partition("{")
            if choices == "...}":
                continue  # "the same for the other side", below
            names.update(stem + choice for choice in choices.rstrip("}").split(",")) if choices else names.add(name)
    names.update(name.replace("positive", "negative") for name in set(names))
    return names


def test_every_metric_is_documented(lines):
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    known = documented_keys()
    for key in {key for line in lines for key in line}:
        assert re.sub(r"rewards/[^/]+/", "rewards/NAME/", key) in known, key
    # Only where there is a reference model, or something to say; the last is 1 less the positive side's, and not written.
    always = {"kl", "note", "update_share_negative", "eval_accuracy"}
    always |= {"eval_reward", "eval_rewards/NAME/mean"}  # TRL's own evaluation, of scripts
    assert known - always <= {re.sub(r"rewards/[^/]+/", "rewards/NAME/", key) for key in lines[0]}


def test_metrics_mean_what_the_schema_says(finished, lines):
    for line, batch in zip(lines[::2], finished[1], strict=True):
        rewards = batch.rewards.double()
        groups = rewards.view(4, 4)
        assert line["reward"] == pytest.approx(rewards.mean().item())
        assert line["reward_std"] == pytest.approx(rewards.std().item(), rel=rounding(16))
        assert line["rewards/correct/mean"] == line["reward"]
        assert line["signal_groups"] == pytest.approx((groups.std(dim=1) > 0).double().mean().item())
        assert line["length"] == pytest.approx(batch.record.lengths.double().mean().item())
        weights = batch.record.weights.double()
        assert line["weight_mean"] == pytest.approx(1, abs=rounding(100))
        assert line["weight_std"] == pytest.approx(weights.std(correction=0).item(), rel=rounding(100))
        assert (line["weight_min"], line["weight_max"]) == (weights.min().item(), weights.max().item())
        zero = (batch.advantages == 0).repeat_interleave(batch.record.lengths)
        assert line["zero_advantage"] == pytest.approx(zero.double().mean().item())
        # Of the tokens that something is learnt from; one and no spread where there are none.
        learnt = weights[~zero] if len(weights[~zero]) else weights.new_ones(1)
        assert line["weight_signal_mean"] == pytest.approx(learnt.mean().item(), rel=rounding(100))
        assert line["weight_signal_std"] == pytest.approx(
            learnt.std(correction=0).item(), rel=rounding(100), abs=rounding(100)
        )
    for line in lines[1::2]:
        assert "reward" not in line  # a step on the rollouts of the one before


def test_seconds(lines):
    for line in lines:
        parts = [line[f"seconds_{phase}"] for phase in ("generate", "logps", "reward", "credit", "update")]
        assert sum(parts) == pytest.approx(line["seconds_step"])
        assert line["seconds_update"] > 0
        assert (line["seconds_generate"] > 0) == ("reward" in line)
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    # Steps 1 and 2 with nothing saved in between: what the clock says is what the steps took, and a little around them.
    assert lines[1]["time"] - lines[0]["time"] >= lines[1]["seconds_step"]


# ---------------------------------------------------------------- the rest of the folder


def test_run_json_and_scores(finished):
    folder, _ = finished
    info = run_info(folder)
    assert (info["schema"], info["engine"], info["method"], info["seed"]) == (1, "trl", "delta", 42)
    assert (info["status"], info["steps"], info["steps_planned"]) == ("finished", 4, 4)
    assert info["rule"]["lambda_max"] == 1.2
    assert info["settings"]["num_generations"] == 4
    # They stand in max_steps, output_dir and task.
    assert info["settings"].keys().isdisjoint({"steps", "output", "template", "template_text", "extract"})
    assert {"python", "torch", "trl", "delta_rlvr"} <= info["versions"].keys()
    for when in ("before", "after"):
        stored = EvaluationResult.load(folder / "evaluations" / f"heldout_{when}.json").summary()
        assert info["final"][when] == stored
        assert stored["problems"] == 4
    log = (folder / "log.txt").read_text()
    assert [int(step) for step in re.findall(r"^ +(\d+) ", log, re.MULTILINE)] == [1, 2, 3, 4]
    assert f"{100 * info['final']['after']['accuracy']:.1f} %" in log
    # Four problems are few: what `evaluate` says of such an interval, the run says too.
    assert "Only 4 questions: the interval itself is rough." in log
    assert log.index("A score of 4 problems is rough") < log.index("held-out accuracy after training")
    assert "only 4 questions" in info["final"]["after"]["interval_note"]
    assert "delta-rlvr compare --methods dapo,delta" in log
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")[:2000]


def test_the_page_of_a_run_gives_the_test_of_the_terminal(finished):
    """The page said "+3.8 points" where the terminal had added an interval from -10 to +20."""
    folder, _ = finished
    (change,) = re.findall(
        r"The change is (.* points \(.*, paired by problem; p = .*\))\.", (folder / "log.txt").read_text()
    )
    assert f" on held-out problems: {change}." in unpacked(folder / "report.html")["page"]["lede"]


# ---------------------------------------------------------------- tokens as text

TEXTS = ["plain words", "naïve café €5", "日本語のテキスト", "👩‍👩‍👧 family", "a\ufffdb", "mixed é日👧 end", ""]


def merged_bytes():
    """Merges learnt on the texts: tokens that end or start within a character."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(TEXTS * 3, vocab_size=300, min_frequency=2, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)


def byte_fallback():
    """As in SentencePiece models: characters that are not in the vocabulary as bytes, which the decoder puts together."""
    vocabulary = {f"<0x{number:02X}>": number for number in range(256)} | {"<unk>": 256, "a": 257, "▁b": 258}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", [bytes_alone, merged_bytes, byte_fallback])
def test_joined_tokens_are_the_text(make, text):
    tokenizer = make()
    ids = tokenizer.encode(text, add_special_tokens=False)
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_a_character_stands_at_the_token_that_completes_it():
    tokenizer = bytes_alone()
    # € is three bytes, é is two.
    assert token_texts(tokenizer, tokenizer.encode("a€é")) == ["a", "", "", "€", "", "é"]
    assert token_texts(tokenizer, tokenizer.encode("a€")[:-1]) == ["a", "\ufffd", ""]  # half a character is not one


def test_a_token_alone_keeps_its_leading_space():
    tokenizer = byte_fallback()
    assert vocabulary_texts(tokenizer, [257, 258, 0xE2]) == ["a", " b", "\ufffd"]
    bytes_only = bytes_alone()
    assert vocabulary_texts(bytes_only, bytes_only.encode(" a")) == [" ", "a"]


def test_bytes_that_are_no_characters():
    """What a model that has not learnt yet writes: any bytes. Hand-checked, and at length against the decoder."""
    tokenizer = bytes_alone()
    one = {character: tokenizer.convert_tokens_to_ids(character) for character in "âĤ¬ÿ"}  # E2 82 AC FF
    # E2 82 | E2 82 AC: half a euro sign, then a whole one.
    ids = [one[character] for character in "âĤâĤ¬"]
    assert "".join(token_texts(tokenizer, ids)) == tokenizer.decode(ids) == "\ufffd€"
    assert "".join(token_texts(tokenizer, [one["ÿ"]] * 300)) == "\ufffd" * 300
    draw = np.random.default_rng(0)
    for _ in range(50):
        ids = draw.integers(0, 256, 40).tolist()
        texts = token_texts(tokenizer, ids)
        assert len(texts) == len(ids)
        assert "".join(texts).replace("\ufffd", "") == tokenizer.decode(ids).replace("\ufffd", "")


def test_long_texts_in_windows():
    tokenizer = merged_bytes()
    text = " ".join(TEXTS[:4]) * 60
    ids = tokenizer.encode(text)
    assert len(ids) > 1000
    assert "".join(token_texts(tokenizer, ids)) == text
