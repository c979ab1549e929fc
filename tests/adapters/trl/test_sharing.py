"""What trackers and the hub get of a run."""

import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import huggingface_hub
import pytest
import trl.extras.profiling

from delta_rlvr.adapters.trl.sharing import push_page
from delta_rlvr.runs.tokens_html import tokens_html
from real_generation import build_real


class Html:
    """What wandb's and trackio's have in common."""

    def __init__(self, data, inject=True):
        assert not inject
        self.data = data


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_get_the_token_view_of_every_kept_step(name, tmp_path, monkeypatch):
    logged = []
    trainer = build_real(output_dir=str(tmp_path), run_folder=True, rollouts_every=2, max_steps=4)

    def log(values, step=None):  # TRL's profiler logs seconds, with a step
        if "credit/tokens" in values:
            logged.append(values)

    tracker = SimpleNamespace(Html=Html, log=log, __spec__=ModuleSpec(name, None))
    monkeypatch.setitem(sys.modules, name, tracker)
    monkeypatch.setattr(trl.extras.profiling, name, tracker, raising=False)
    trainer.log_completions = False
    trainer.args.report_to = [name]  # its own callback would want the real one
    trainer.train()
    assert [one["train/global_step"] for one in logged] == [1, 2, 4]
    assert [list(one) for one in logged] == 3 * [["credit/tokens", "train/global_step"]]
    for one in logged:
        assert one["credit/tokens"].data.count("<pre>") == 8
        assert (
            "rgba(240,138,36,0.84)" in one["credit/tokens"].data or "rgba(69,146,224,0.84)" in one["credit/tokens"].data
        )


def test_no_text_becomes_markup():
    line = {"prompt": "<b>", "reward": 1.0, "advantage": 0.5, "tokens": ["<script>", "&"], "weight": [1.5, 0.75]}
    page = tokens_html(3, [line])
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
    # 0.5 is the furthest from one; 0.25 below has half of the strongest shade.
    assert 'background:rgba(240,138,36,0.84)">&lt;script&gt;<' in page
    assert 'background:rgba(69,146,224,0.42)">&amp;<' in page


def test_the_hub_gets_the_finished_card_and_the_page(tmp_path, monkeypatch):
    sent = []

    class Api:
        def __init__(self, token):
            self.token = token

        def upload_file(self, **given):
            sent.append((given["path_in_repo"], given["path_or_fileobj"].read_text(), given["repo_id"], self.token))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text("card")
    (tmp_path / "report.html").write_text("page")
    trainer = SimpleNamespace(hub_model_id="me/it", args=SimpleNamespace(hub_token="t", hub_revision=None))
    push_page(trainer, tmp_path)
    assert sent == [("README.md", "card", "me/it", "t"), ("report.html", "page", "me/it", "t")]


def test_the_card_of_a_script_without_a_run_folder_names_method_and_model(tmp_path):
    """It said "trained with GRPO", and the model was None."""
    trainer = build_real("dapo-ft", output_dir=str(tmp_path), max_steps=2, save_strategy="steps", save_steps=2)
    trainer.train()
    card = (tmp_path / "README.md").read_text()
    assert f"# {trainer.model_name}, trained with dapo-ft" in card
    assert "2 steps of `dapo-ft`" in card
    assert "arxiv.org/abs/2605.21467" in card
    assert "None" not in card
