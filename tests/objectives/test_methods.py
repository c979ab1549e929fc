"""Methods by name: one spelling, wherever the rule comes from, and words for what is wrong."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from delta_rlvr import Delta, TokenRule, register
from delta_rlvr.credit.rule import REGISTERED, RuleError
from delta_rlvr.credit.rules.ablations import Ablation, Selection
from delta_rlvr.credit.rules.uniform import ResponseMean, Uniform
from delta_rlvr.objectives import FutureClip, Method, all_methods, get_method, portable
from delta_rlvr.objectives.methods import spelled

OWN = Path(__file__).parent.parent / "own_rule" / "my_rules.py"


@dataclass(frozen=True)
class Nothing(TokenRule):
    """Every token counts as nothing."""

    scale: float = 0.0

    def weigh(self, batch):
        return torch.full((len(batch.row),), self.scale)


def test_settings_are_read_as_the_fields_declare_them():
    method = get_method("delta?lambda_min=0&refinements=2&normalize=false&proxy=head")
    assert method.rule == Ablation(0.0, refinements=2, normalize=False, proxy="head")
    assert isinstance(method.rule.lambda_min, float)
    assert get_method("delta?lambda_min=0.5&lambda_max=1.5").rule == Delta(0.5, 1.5)
    assert method.name == "delta?lambda_min=0&refinements=2&normalize=false&proxy=head"
    assert get_method("fipo?dual=5&drop_overshot=true").surrogate == FutureClip(dual=5.0, drop_overshot=True)


def test_a_rule_in_a_file():
    method = get_method(f"{OWN}:FirstHalf?share=0.3")
    assert type(method.rule).__name__ == "FirstHalf"
    assert method.rule.share == 0.3
    assert method.about == "Only the first tokens of a response count."
    # The same file is loaded once, so that equal spellings are equal rules; and its decorators have given names.
    assert get_method(f"{OWN}:FirstHalf").rule == type(method.rule)()
    assert get_method("early").rule == type(method.rule)(0.25)
    assert portable(f"{OWN.name}:FirstHalf?share=0.3").startswith("/")
    assert portable("delta?lambda_min=0.5") == "delta?lambda_min=0.5"


def test_a_file_that_changed_is_loaded_again(tmp_path):
    path = tmp_path / "changing.py"
    text = OWN.read_text().replace("early", "changing")
    path.write_text(text)
    assert get_method(f"{path}:FirstHalf").rule.share == 0.5
    path.write_text(text.replace("share: float = 0.5", "share: float = 0.125"))
    assert get_method(f"{path}:FirstHalf").rule.share == 0.125


def test_a_rule_in_a_module():
    assert get_method("delta_rlvr.credit.rules.ablations:Selection?keep=bottom").rule == Selection(keep="bottom")


def test_a_rule_object():
    method = get_method(Nothing(0.5))
    assert method.rule == Nothing(0.5)
    assert method.name.endswith(":Nothing?scale=0.5")
    assert get_method(method) is method
    assert get_method(Delta(lambda_min=0.5)).name == "delta?lambda_min=0.5"
    assert get_method(Delta(proxy="scalar")).name == "delta-scalar"
    assert get_method(Ablation(gamma="current")).name == "delta?gamma=current"
    assert get_method("delta-scalar?gamma=current").rule == Ablation(proxy="scalar", gamma="current")


@pytest.mark.parametrize("name", [name for name in all_methods() if name not in ("grpo", "sapo", "fipo", "dapo")])
def test_every_rule_is_spelled_so_that_it_is_found_again(name):
    rule = all_methods()[name].rule
    assert get_method(spelled(rule)).rule == rule


def test_the_decorator_gives_a_name():
    register("nothing-much", about="next to nothing", paper="arXiv 0", scale=0.01)(Nothing)
    try:
        assert get_method("nothing-much").rule == Nothing(0.01)
        assert all_methods()["nothing-much"].paper == "arXiv 0"
        with pytest.raises(RuleError, match="Delta cannot have this name, Nothing has it already"):
            register("nothing-much")(Delta)
    finally:
        del REGISTERED["nothing-much"]
    with pytest.raises(RuleError, match="a name is a text with no space"):
        register("nothing much")


def test_other_packages_bring_rules_by_entry_points(tmp_path):
    """A distribution with entry points, as pip installs it; a broken one is named, and the others still work."""
    (tmp_path / "good_rules.py").write_text(OWN.read_text())
    (tmp_path / "broken_rules.py").write_text("raise RuntimeError('not today')")
    info = tmp_path / "good_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: good-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[delta_rlvr.methods]\nfirst-half = good_rules:FirstHalf\nwhole = good_rules\nlost = broken_rules:Rule\n"
    )
    code = """
        from delta_rlvr.objectives import get_method
        assert get_method("first-half?share=0.3").rule.share == 0.3
        assert get_method("early").rule.share == 0.25
        try:
            get_method("lost")
        except ValueError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "unknown method 'lost'" in done.stdout
    assert "the plug-in lost did not load (RuntimeError: not today)" in done.stdout


def test_a_mean_over_responses_is_a_token_weight():
    assert get_method("grpo").rho == ResponseMean(Uniform())
    assert get_method("dapo").rho == Uniform()
    assert Method("x", rule=Delta(), aggregation="sequence_mean").rho == ResponseMean(Delta())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dleta", "did you mean 'delta'"),
        ("surprise?proxy=head", "'surprise' has no setting 'proxy'"),
        ("dapo?refinements=2", "'dapo' has no setting 'refinements'"),
        ("delta?lamda_min=1", "has no setting 'lamda_min'; did you mean 'lambda_min'"),
        ("delta?lambda_min=much", "lambda_min=much: give a number"),
        ("delta?normalize=1", "normalize=1: give true or false"),
        ("delta?contrast=sideways", "contrast=sideways: choose one of both_sides, within_side, alignment"),
        ("delta?contrast=alignment&assignment=hard", "contrast='alignment' does not go with assignment='hard'"),
        ("delta?refinements=1.5", r"refinements=1\.5: give a whole number"),
        ("fipo?hihg=2", "it has: dual, decay"),
        ("delta?lambda_min=0.5&lambda_min=0.6", "comes twice"),
        ("delta?lambda_min", "key=value"),
        ("delta?lambda_min=1.3", r"lambda_min=1\.3 is above lambda_max=1\.2"),
        ("nowhere.py:Rule", "there is no such file"),
        ("no_such_module.rules:Rule", "there is no such module"),
        (f"{OWN}:Firsthalf", "there is no 'Firsthalf' .*did you mean 'FirstHalf'.*it has FirstHalf"),
        (str(OWN), "name the rule in the file, too: .*my_rules.py:FirstHalf"),
        ("json:dumps", "json:dumps is not a token rule"),
        ("delta_rlvr.credit.rule:TokenRule", "has no `weigh"),
        (f"{OWN}:FirstHalf?shaer=1", "has no setting 'shaer'; did you mean 'share'"),
    ],
)
def test_what_cannot_be_is_told(spec, words):
    with pytest.raises(ValueError, match=words):
        get_method(spec)


def test_a_file_with_an_error_says_which(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import no_such_thing\n")
    with pytest.raises(
        RuleError, match=r"cannot be loaded: ModuleNotFoundError: No module named 'no_such_thing' \(line 1\)"
    ):
        get_method(f"{path}:Rule")


def test_classes_that_are_no_rules(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom delta_rlvr import TokenRule\n"
        "class Plain(TokenRule):\n    def weigh(self, batch): return None\n"
        "@dataclass(frozen=True)\nclass Mute(TokenRule):\n    x: int = 1\n"
        "@dataclass(frozen=True)\nclass Bare(TokenRule):\n    x: int\n    def weigh(self, batch): return None\n"
    )
    for name, words in (
        ("Plain", "not a frozen dataclass: write @dataclass"),
        ("Mute", "has no `weigh"),
        ("Bare", "give the setting 'x' a default value"),
    ):
        with pytest.raises(RuleError, match=words):
            get_method(f"{path}:{name}")
