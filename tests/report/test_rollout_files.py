"""Rollouts as each engine writes them: verl's file by its own code, TRL's table as `GRPOTrainer.log` builds it, prime-rl's and slime's
records in their schemas (verifiers' `Episode.to_record`, trace version 1; slime's `Sample.to_dict`)."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import nullcontext

import pyarrow
import pyarrow.parquet
import pytest
import torch

from delta_rlvr.cli import main
from delta_rlvr.models.load import load_policy
from delta_rlvr.models.token_texts import token_texts
from delta_rlvr.report.explain import advantages_and_groups
from delta_rlvr.report.explain import explain as explain_rollouts
from delta_rlvr.report.rollout_files import RolloutFileError, read_rollouts
from delta_rlvr.runs import RunDescription, RunWriter
from report_pages import opened, responses_of, unpacked
from rows import write_rows

PROMPT = "Add 90 and 13.\n"
RIGHT, WRONG = "90 and 13 come to 103.", "From 90 up by 13 is 113."


def explain(model, rollouts, page, **settings):
    return explain_rollouts(model, rollouts, **settings).write_page(page)


@pytest.fixture(scope="module")
def tokenizer():
    return load_policy("builtin")[1]


def encoded(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def own_run(folder, tokenizer, decisive=True):
    """One step of a run folder: the right response once in the tokenizer's own tokens, once letter by letter."""
    lines = []
    for index, (text, reward) in enumerate(((RIGHT, 1.0), (WRONG, 0.0))):
        ids = encoded(tokenizer, text)
        if index == 0:  # other tokens than the tokenizer's own, as sampling may give
            ids = [token for letter in text for token in encoded(tokenizer, letter)]
        line = {"group": 7, "index": index, "prompt": PROMPT, "reward": reward, "advantage": 2.0 * reward - 1}
        line |= {"tokens": token_texts(tokenizer, ids), "ids": ids}
        if decisive:
            line["decisive"] = [int(place % 5 == 0) for place in range(len(ids))]
        lines.append(line)
    with RunWriter.create(folder, RunDescription("trl", "delta", 0, "builtin", "sums")) as writer:
        return writer.write_rollouts(1, lines)


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        (
            {"question": "1+1?", "answer": 2, "limit": 5},
            "line 1 has no prompt and no response and no reward (it has question, answer, limit); each rollout needs a prompt, a "
            "response (what the model wrote) and a reward (a number): `prompt_key`, `response_key` and `reward_key` name them",
        ),
        ({"prompt": PROMPT, "response": RIGHT, "limit": 5}, "(it has prompt, response, limit); each rollout needs"),
        (
            {"question": PROMPT, "completion": RIGHT, "label": 1},
            "; give prompt_key='question'; give response_key='completion'; give reward_key='label'",
        ),
    ],
)
def test_a_key_is_advised_only_where_its_name_is_near(row, advice, tmp_path):
    """A file of problems was to have its answers called responses, and the only number in it taken for the reward."""
    path = write_rows(tmp_path / "lines.jsonl", [row])
    with pytest.raises(RolloutFileError, match=re.escape(advice)):
        read_rollouts(path)


@pytest.mark.parametrize("steps", [(7, 7), (7, 8), (None, None)])
def test_the_page_of_rollouts_has_their_step_and_no_seed_or_end(browser, tmp_path, steps):
    """It said "seed 0, finished" and "step 1", whatever the rollouts were of."""
    rows = [
        {"prompt": PROMPT, "response": text, "reward": reward} | ({"step": step} if step else {})
        for text, reward, step in zip((RIGHT, WRONG), (1.0, 0.0), steps, strict=True)
    ]
    path = write_rows(tmp_path / "lines.jsonl", rows)
    with opened(browser, explain("builtin", path, tmp_path / "x.html", methods=["delta"])) as page:
        assert page.text_content("#facts") == "builtin · lines.jsonl · explaindelta"
        output = page.locator("#tokens .step-output")
        assert output.is_visible() == (steps == (7, 7))
        if steps == (7, 7):
            assert output.text_content() == "step 7"


def test_a_reward_under_another_name(tmp_path):
    rows = [{"prompt": PROMPT, "response": RIGHT, "score": 0.5}, {"prompt": PROMPT, "response": WRONG, "score": 0.25}]
    lines, table = write_rows(tmp_path / "lines.jsonl", rows), tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    for path in (lines, table):
        assert [one.reward for one in read_rollouts(path, "score")] == [0.5, 0.25]
        with pytest.raises(
            RolloutFileError, match=r"has no reward \(it has prompt, response, score\); give reward_key='score'"
        ):
            read_rollouts(path)
    dump = tmp_path / "verl.jsonl"
    dump.write_text(json.dumps({"input": PROMPT, "output": RIGHT, "score": 1.0, "acc": 0.0}) + "\n")
    assert [read_rollouts(dump, key)[0].reward for key in (None, "acc")] == [1.0, 0.0]
    with pytest.raises(RolloutFileError, match="has no other"):
        read_rollouts(dump, "other")


def test_a_runs_own_rollouts(tokenizer, tmp_path):
    path = own_run(tmp_path / "run", tokenizer)
    rollouts = read_rollouts(path)
    assert [rollout.response for rollout in rollouts] == [RIGHT, WRONG]
    # The engine's advantages, not (reward - mean) / deviation, which would be 0.707.
    assert advantages_and_groups(rollouts) == ([1.0, -1.0], [0, 0])
    page = explain("builtin", path, tmp_path / "x.html", methods=["oracle", "delta"])
    shown = {response["advantage"]: response for response in responses_of(page)}
    assert shown[1.0]["tokens"] == token_texts(tokenizer, list(rollouts[0].ids))  # the sampled tokens
    assert len(shown[1.0]["tokens"]) > len(encoded(tokenizer, RIGHT))
    for rollout, response in zip(rollouts, (shown[1.0], shown[-1.0]), strict=True):
        assert response["decisive"] == list(map(int, rollout.decisive))
        decided, other = (
            [w for w, label in zip(response["weight"], response["decisive"], strict=True) if label == wanted]
            for wanted in (1, 0)
        )
        assert min(decided) > max(other)


def rows_of(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def test_weights_of_a_runs_own_rollouts_are_not_those_of_its_page(tokenizer, tmp_path, capsys):
    rows = rows_of(own_run(tmp_path / "run", tokenizer))
    path = write_rows(tmp_path / "kept.jsonl", [row | {"weight": [1.0] * len(row["ids"])} for row in rows])
    page = tmp_path / "x.html"
    assert main(["explain", "--model", "builtin", "--rollouts", str(path), "--output", str(page)]) == 0
    note = "The weights are those that builtin gives to 2 kept responses alone: the run's page has others, of its whole"
    said = capsys.readouterr()
    assert note in said.err
    assert said.out == f"{page}\n"
    assert note in unpacked(page)["page"]["lede"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"advantage": None}, "line 2 has no advantage, but line 1 has one: give all lines one, or none"),
        ({"group": None}, "line 2 has no group, but line 1 has one"),
        ({"tokens": None, "ids": None, "decisive": None}, "line 2 has no ids, but line 1 has one"),
        ({"ids": [0.5]}, r"line 2: ids must be a list of token ids, whole numbers from 0 on, got \[0.5\]"),
        ({"ids": [-1]}, r"line 2: ids must be a list"),
        ({"decisive": [1]}, "line 2: decisive must have one label for each of its"),
    ],
)
def test_a_line_unlike_the_others_is_refused(tokenizer, tmp_path, change, words):
    first, second = rows_of(own_run(tmp_path / "run", tokenizer))
    changed = {key: value for key, value in (second | change).items() if value is not None}
    with pytest.raises(RolloutFileError, match=words):
        read_rollouts(write_rows(tmp_path / "x.jsonl", [first, changed]))


def test_ids_of_a_plain_file_are_checked(tmp_path):
    line = {"prompt": "p", "response": "r", "reward": 1, "ids": [-5]}
    with pytest.raises(RolloutFileError, match="ids must be a list of token ids"):
        read_rollouts(write_rows(tmp_path / "x.jsonl", [line]))


def test_groups_and_advantages_of_a_plain_file(tmp_path):
    lines = [{"prompt": "p", "response": "r", "reward": 1, "group": g, "advantage": a} for g, a in ((0, 2), (1, -3))]
    assert advantages_and_groups(read_rollouts(write_rows(tmp_path / "x.jsonl", lines))) == ([2.0, -3.0], [0, 1])


def test_labels_that_the_file_does_not_have(tokenizer, tmp_path):
    path = own_run(tmp_path / "run", tokenizer, decisive=False)
    with pytest.raises(ValueError, match="oracle needs labels of the decisive tokens, which explain with step_000001"):
        explain("builtin", path, tmp_path / "x.html", methods=["oracle"])


def test_a_torn_gzip_is_refused(tmp_path):
    path = tmp_path / "step_000001.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "p", "response": "r", "reward": 1}\n')[:-9])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        read_rollouts(path)


def test_verl_writes_what_is_read(tmp_path):
    trainer = pytest.importorskip("verl.trainer.ppo.ray_trainer").RayPPOTrainer
    trainer._write_generations(
        [PROMPT, PROMPT], [RIGHT, ""], ["103", "103"], [1.0, 0.0], {"acc": [1, 0]}, str(tmp_path), 12
    )
    rollouts = read_rollouts(tmp_path / "12.jsonl")
    assert [(r.prompt, r.response, r.reward, r.group) for r in rollouts] == [
        (PROMPT, RIGHT, 1.0, PROMPT),
        (PROMPT, "", 0.0, PROMPT),
    ]
    # The empty response has its part in the group's mean, and is not shown.
    page = explain("builtin", tmp_path / "12.jsonl", tmp_path / "x.html")
    (response,) = responses_of(page)
    assert response["advantage"] == pytest.approx(0.5 / (0.5**0.5 + 1e-4))
    assert "(1 more response without a token)" in unpacked(page)["page"]["lede"]


def trl_table(tmp_path, **columns):
    """The table that `GRPOTrainer.log` writes with log_completions=True."""
    pandas = pytest.importorskip("pandas")
    table = {
        "step": [3, 3],
        "prompt": [[{"role": "user", "content": "Add."}]] * 2,
        "completion": [[{"role": "assistant", "content": RIGHT}], [{"role": "assistant", "content": WRONG}]],
        "correct": [1.0, 0.0],
        "overlong_reward": [-0.25, None],
        "correct_reason": ["correct", "wrong answer"],
        "advantage": [0.7, -0.7],
    }
    path = tmp_path / "completions_00003.parquet"
    pandas.DataFrame(table | columns).to_parquet(path)
    return path


def test_trls_chat_completions(tmp_path):
    rollouts = read_rollouts(trl_table(tmp_path))
    assert [(r.response, r.reward, r.advantage) for r in rollouts] == [(RIGHT, 0.75, 0.7), (WRONG, 0.0, -0.7)]
    assert rollouts[0].prompt == [{"role": "user", "content": "Add."}]
    assert rollouts[0].group == rollouts[1].group
    assert read_rollouts(trl_table(tmp_path), "correct")[0].reward == 1.0
    with pytest.raises(RolloutFileError, match=r"no reward 'mine' \(it has correct, overlong_reward\)"):
        read_rollouts(trl_table(tmp_path), "mine")


def test_a_parquet_file_of_another_kind(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"question": ["q"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(RolloutFileError, match="has no column prompt and no completion and no advantage"):
        read_rollouts(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_text("not parquet")
    with pytest.raises(RolloutFileError, match="is not a Parquet file"):
        read_rollouts(tmp_path / "y.parquet")


def episode(prompt_ids, scaffold, completion_ids, reward, advantages=None, **turn):
    """A single-turn episode as prime-rl's file monitor writes it (nulls left out, tensors left out)."""
    user = {"message": {"role": "user", "content": PROMPT}, "sampled": False, "timestamp": 1.0}
    user |= {"token_ids": prompt_ids, "mask": [False] * len(prompt_ids), "is_content": [], "logprobs": []}
    own = {"parent": 0, "message": {"role": "assistant", "content": "as text"}, "sampled": True, "timestamp": 2.0}
    own |= {
        "token_ids": scaffold + completion_ids,
        "mask": [False] * len(scaffold) + [True] * len(completion_ids),
        "is_content": [],
        "logprobs": [-0.5] * len(completion_ids),
    }
    if advantages is not None:
        own["advantages"] = advantages
    trace = {
        "version": 1,
        "id": "t",
        "task": {"type": "Sum", "data": {"question": PROMPT}, "key": "k", "hash": "h"},
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": [user, own | turn],
        "calls": [],
        "rewards": {"correct": {"score": reward, "weight": 2.0}, "style": {"score": 1.0, "weight": 0.5}},
        "metrics": {},
        "ok": True,
    }
    judge = trace | {"agent": {"config": {}, "name": "judge", "trainable": False}}
    return {"id": "e", "env": {"id": "sums"}, "group": {"id": "g1"}, "ok": True, "traces": [trace, judge]}


def test_prime_rls_traces(tokenizer, tmp_path):
    prompt, right, wrong = (encoded(tokenizer, text) for text in (PROMPT, RIGHT, WRONG))
    lines = [
        episode(prompt[:-1], prompt[-1:], right, 1.0, [0.5] * len(right)),
        episode(prompt[:-1], prompt[-1:], wrong, 0.0, [-0.5] * len(wrong)),
    ]
    path = write_rows(tmp_path / "traces.jsonl", lines)
    rollouts = read_rollouts(path)
    assert len(rollouts) == 2  # the judge's traces are not the policy's
    assert [(r.reward, r.advantage, r.group) for r in rollouts] == [(2.5, 0.5, "g1"), (0.5, -0.5, "g1")]
    assert rollouts[0].prompt_ids == tuple(prompt)
    assert rollouts[0].ids == tuple(right)
    page = explain("builtin", path, tmp_path / "x.html")
    assert {"".join(r["tokens"]) for r in responses_of(page)} == {RIGHT, WRONG}


def test_prime_rls_traces_without_tokens(tmp_path):
    line = episode([], [], [], 1.0)
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(line))
    (rollout,) = read_rollouts(path)
    assert (rollout.prompt, rollout.response, rollout.ids) == ([{"role": "user", "content": PROMPT}], "as text", None)
    line["traces"][0]["nodes"][1]["message"]["reasoning_content"] = "hm"
    path.write_text(json.dumps(line))
    with pytest.raises(RolloutFileError, match="line 1: a turn has separate reasoning"):
        read_rollouts(path)
    path.write_text(json.dumps({"traces": [{"nodes": [{"sampled": True}], "rewards": {"r": {"score": 1}}}]}))
    with pytest.raises(RolloutFileError, match="line 1 is not an episode of verifiers' schema 1"):
        read_rollouts(path)


def slime_sample(tokenizer, response, reward, **changes):
    prompt, ids = encoded(tokenizer, PROMPT), encoded(tokenizer, response)
    return {
        "group_index": 4,
        "index": 9,
        "prompt": PROMPT,
        "tokens": prompt + ids,
        "response": response,
        "response_length": len(ids),
        "label": "103",
        "reward": reward,
        "loss_mask": None,
        "rollout_log_probs": [-0.1] * len(ids),
        "status": "completed",
        "metadata": {},
        "spec_info": {"spec_accept_token_num": 0},
    } | changes


def test_slimes_debug_data(tokenizer, tmp_path):
    path = tmp_path / "rollout_3.pt"
    samples = [
        slime_sample(tokenizer, RIGHT, {"score": 1.0, "acc": 1}),
        slime_sample(tokenizer, WRONG, {"score": -1.0, "acc": 0}),
        slime_sample(tokenizer, "", {"score": -1.0, "acc": 0}, status="aborted"),
    ]
    torch.save({"rollout_id": 3, "samples": samples}, path)
    with pytest.raises(RolloutFileError, match="sample 1 has the rewards score, acc: give reward_key='score'"):
        read_rollouts(path)
    rollouts = read_rollouts(path, "score")
    assert [(r.response, r.reward, r.group) for r in rollouts] == [
        (RIGHT, 1.0, "4"),
        (WRONG, -1.0, "4"),
        ("", -1.0, "4"),
    ]
    assert rollouts[0].prompt_ids == tuple(encoded(tokenizer, PROMPT))
    page = explain("builtin", path, tmp_path / "x.html", reward_key="score")
    assert len(responses_of(page)) == 2


def test_a_file_of_rollouts_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"samples": [Evil()]}, tmp_path / "x.pt")
    with pytest.raises(RolloutFileError, match="cannot be read by torch"):
        read_rollouts(tmp_path / "x.pt")


def test_ids_of_another_tokenizer(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    shifted = slime_sample(tokenizer, RIGHT, 1.0)
    for more in (1, 10**6):
        shifted["tokens"] = [token + more for token in shifted["tokens"]]
        torch.save({"samples": [shifted, slime_sample(tokenizer, WRONG, 0.0)]}, path)
        said = pytest.warns(UserWarning, match="does not have its token ids") if more > 1 else nullcontext()
        with said:
            page = explain("builtin", path, tmp_path / "x.html")  # its text is there: it is tokenized anew
        assert {"".join(r["tokens"]) for r in responses_of(page)} == {RIGHT, WRONG}
    line = episode([1], [2], [10**6], 1.0)
    (tmp_path / "t.jsonl").write_text(json.dumps(line))
    monkeypatch.setattr("delta_rlvr.report.explain.load_policy", None)  # nothing is loaded for them
    with pytest.raises(RolloutFileError, match="line 1: its token ids do not fit this model's tokenizer"):
        explain("builtin", tmp_path / "t.jsonl", tmp_path / "x.html")


def test_a_folder_is_refused_with_what_is_in_it(tmp_path):
    (tmp_path / "completions_00001.parquet").touch()
    with pytest.raises(RolloutFileError, match=r"is a folder \(it has completions_00001\.parquet\): name one file"):
        read_rollouts(tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_columns_may_have_names_of_ones_own(tmp_path, kind):
    row = {"question": "1+1?", "completion_text": "2", "score": 1.0}
    file = tmp_path / f"mine.{kind}"
    if kind == "jsonl":
        file.write_text(json.dumps(row) + "\n")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    (read,) = read_rollouts(file, "score", "question", "completion_text")
    assert (read.prompt, read.response, read.reward) == ("1+1?", "2", 1.0)
    with pytest.raises(RolloutFileError, match="1 has no questio; did you mean 'question'"):
        read_rollouts(file, "score", "questio", "completion_text")


def test_a_model_that_did_not_write_the_rollouts_is_asked_about(tmp_path):
    lines = [{"prompt": "1+1?", "response": "zq xv pl wq", "reward": reward} for reward in (0, 1)]
    file = write_rows(tmp_path / "others.jsonl", lines)
    with pytest.warns(UserWarning, match="did builtin sample these rollouts"):
        explain_rollouts("builtin", file, methods=["surprise"])
