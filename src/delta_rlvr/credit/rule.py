"""Token rules: frozen dataclasses that turn a rollout batch into one weight per token.

    @dataclass(frozen=True)
    class FirstHalf(TokenRule):
        share: float = 0.5

        def weigh(self, batch):
            return (batch.position < self.share * batch.lengths[batch.row]).float()

The fields are the settings. `needs` declares what the rule reads in addition to lengths and advantages; the batch has nothing else.
Weights are scaled so that the method's objective is J = 1/N sum_it weight_it * clipped_it, with N = all valid tokens: DAPO's weight is
one, GRPO's N / (R |o_i|), and that of a selection N / kept for the tokens it keeps (Appendix E's rho).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, strided

from delta_rlvr.credit.batch import TokenBatch
from delta_rlvr.credit.checks import check_intervals, extremes, first_bad_row
from delta_rlvr.credit.record import CreditRecord
from delta_rlvr.credit.reduce import AnotherRankRefused
from delta_rlvr.hints import did_you_mean
from delta_rlvr.user_code import failed_with

NEEDS: dict[str, str] = {
    "hidden": "hidden states",
    "gradients": "each token's gradient over all parameters (passed as `hidden`)",
    "head": "the LM head's weight",
    "groups": "which prompt each response answers",
    "logps": "old log-probs of the sampled tokens",
    "entropy": "entropy of the old policy where each token was sampled",
    "tokens": "sampled token ids",
    "decisive": "labels of the decisive tokens",
    "measured": "measured credit per token, from continuations",
}
"""What a rule may need in addition to lengths and advantages."""

OF_A_PASS = ("hidden", "head", "groups", "logps", "entropy", "tokens")
"""The needs that a rollout batch and one forward pass over it can meet, as in engines and `explain`."""


class RuleError(ValueError):
    """A rule is wrong, cannot be used here or gave wrong weights; the message says what to do."""


@dataclass(frozen=True)
class HiddenStates:
    """What the store keeps of each token: here the hidden state. Rules with equal `stores` share one capture."""

    def rows(
        self,
        hidden: Float[Tensor, "token width"],
        tokens: Int[Tensor, " token"] | None,
        head: Float[Tensor, "vocab width"] | None,
        temperature: float,
    ) -> Float[Tensor, "token stored"]:
        return hidden

    def __str__(self) -> str:
        return "hidden states"


def setting(default: float, interval: str) -> Any:
    """Declare a rule's setting with an interval: `share: float = setting(0.2, "(0, 1]")` accepts 1 and refuses 0."""
    return dataclasses.field(default=default, metadata={"interval": interval})


@dataclass(frozen=True)
class TokenRule:
    """A rule that weighs tokens. Subclass it as a frozen dataclass and write `weigh`; override a property if its default is wrong."""

    def __post_init__(self) -> None:
        check_intervals(self)

    @property
    def needs(self) -> Collection[str]:
        """The keys of `NEEDS` that `weigh` reads from the batch."""
        return ()

    @property
    def stores(self) -> HiddenStates | None:
        """What the store keeps of each token; None for rules without hidden states."""
        return HiddenStates() if "hidden" in self.needs else None

    @property
    def mean_one(self) -> bool:
        """Whether the mean weight over all valid tokens is always one. `delta_rlvr.testing` checks it."""
        return False

    @property
    def sees_slices(self) -> bool:
        """Whether the weights are right if a rank has a slice of a response (sequence parallelism). This is so only for rules that use
        no position, length or row. `delta_rlvr.testing` checks it."""
        return False

    @property
    def constant(self) -> bool:
        """Whether every weight is one for any batch, so that an engine need not solve for weights."""
        return False

    def weigh(self, batch: TokenBatch) -> Float[Tensor, " token"] | CreditRecord:
        """Return one weight per valid token of the batch, packed row by row, or a whole record."""
        raise NotImplementedError

    def diagnose(self, batch: TokenBatch) -> dict[str, float]:
        """Return further metrics of the weights for logs, over all ranks (each of which calls this)."""
        return {}


Rule = TypeVar("Rule", bound=type[TokenRule])


@dataclass(frozen=True)
class NamedRule:
    """A rule with settings, registered under a name."""

    name: str
    rule: TokenRule
    about: str
    """One line for `delta-rlvr methods` and the report."""
    paper: str
    """Its source."""


REGISTERED: dict[str, NamedRule] = {}
"""All registered rules, in the order of their registration."""

WIDER: dict[type[TokenRule], type[TokenRule]] = {}
"""Rules that have more settings than the key: `delta?gamma=current` is a setting of DelTA's ablations."""


def register(name: str, *, about: str = "", paper: str = "", **settings: Any) -> Callable[[Rule], Rule]:
    """Register a rule with these settings under a name for all commands and engines. A rule may have several names.

    `about` is the line that `delta-rlvr methods` shows (default: the first line of the class's docstring), `paper` the source.
    """
    if not isinstance(name, str) or not name or any(character in name for character in "?&=,:/ "):
        raise RuleError(f"register({name!r}): a name is a text with no space and none of ? & = , : /")

    def add(kind: Rule) -> Rule:
        check_rule_class(kind)
        known = REGISTERED.get(name)
        # A module that is loaded again (as a notebook's cell is) may register its own rule again.
        if known is not None and type(known.rule).__qualname__ != kind.__qualname__:
            raise RuleError(
                f"register({name!r}): {kind.__qualname__} cannot have this name, {type(known.rule).__qualname__} has it already"
            )
        REGISTERED[name] = NamedRule(name, kind(**settings), about or first_line(kind), paper)
        return kind

    return add


def first_line(kind: type) -> str:
    """Return the first line of a class's docstring, or "" if it has none (Python then gives a dataclass its signature)."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else text.partition("\n")[0]


def check_rule_class(kind: object, called: str | None = None) -> None:
    """Refuse a class that is not a token rule."""
    name = called or getattr(kind, "__qualname__", repr(kind))
    if not (isinstance(kind, type) and issubclass(kind, TokenRule)):
        raise RuleError(f"{name} is not a token rule: make it a subclass of delta_rlvr.TokenRule")
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or "__dataclass_params__" not in vars(kind):
        raise RuleError(f"{name} is not a frozen dataclass: write @dataclass(frozen=True) above the class")
    if kind.weigh is TokenRule.weigh:
        raise RuleError(f"{name} has no `weigh(self, batch)`: write it, one weight per token")
    if isinstance(kind.needs, str):
        raise RuleError(f"{name}.needs is a string: write needs = ({kind.needs!r},)")
    if not isinstance(kind.needs, Collection) and not hasattr(kind.needs, "__get__"):  # a property
        raise RuleError(
            f"{name}.needs is {kind.needs!r}: write the names in brackets, as in needs = (), which reads nothing"
        )
    required = [
        one.name
        for one in dataclasses.fields(kind)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]
    if required:
        raise RuleError(f"{name}: give the setting {required[0]!r} a default value")


def check_needs(rule: TokenRule, gives: Collection[str], where: str, called: str) -> None:
    """Refuse a rule with needs that are unknown, or that `where` (an engine or a command) cannot meet."""
    for need in rule.needs:
        if need not in NEEDS:
            raise RuleError(f"{called} needs {need!r}, which is unknown; needs are {', '.join(NEEDS)}")
        if need not in gives:
            raise RuleError(f"{called} needs {NEEDS[need]}, which {where} cannot give")


def weigh(batch: TokenBatch, rule: TokenRule) -> CreditRecord:
    """Return the rule's weights of a batch, checked. Every rank of the batch's reducer must call this."""
    answer: object = None
    problem: ValueError | None = None
    before = _versions(batch)
    try:
        answer = rule.weigh(batch)
        problem = _problem(answer, batch, rule)
        changed = [name for name, number in _versions(batch).items() if number != before.get(name, 0)]
        if changed:
            problem = RuleError(
                f"{type(rule).__name__}.weigh changes batch.{changed[0]} in place, which others read: change a copy, by .clone()"
            )
    except AnotherRankRefused as error:
        problem = error
    except (Exception, SystemExit) as error:
        # A user rule gets a message with the line that failed; in a built-in rule it is a bug, unless the input was wrong.
        if type(rule).__module__.partition(".")[0] != __name__.partition(".")[0]:
            problem = failure(rule, error)
        elif isinstance(error, ValueError):
            problem = error
        else:
            raise
    batch.reducer.agree(problem)
    if isinstance(answer, CreditRecord):
        return answer
    assert isinstance(answer, Tensor)
    return CreditRecord.of(batch, answer)


def _versions(batch: TokenBatch) -> dict[str, int]:
    """Return how often each tensor of the batch has been changed in place."""
    every = {**vars(batch), **batch.given, **batch._known}
    return {name: one._version for name, one in every.items() if isinstance(one, Tensor) and not one.is_inference()}


def failure(rule: TokenRule, error: BaseException) -> RuleError:
    """The error for one that the rule's code raised."""
    kind = type(rule)
    hint = ""
    if isinstance(error, AttributeError) and isinstance(error.obj, TokenBatch):
        has = [name for name in dir(error.obj) if not name.startswith("_")]
        near = did_you_mean(str(error.name), has)
        if error.name == "hidden":
            near = "; hidden states come in chunks: `for place, hidden in batch.store.chunks()`"
        hint = f"{near}; a batch has {', '.join(has)}"
    failure = RuleError(f"{kind.__name__}.weigh {failed_with(kind, error)}{hint}")
    failure.__cause__ = error
    return failure


def _problem(answer: object, batch: TokenBatch, rule: TokenRule) -> RuleError | None:
    """Return the error of a rule's result, or None if it is right."""
    name = type(rule).__name__
    weights = answer.weights if isinstance(answer, CreditRecord) else answer
    if not isinstance(weights, Tensor):
        return RuleError(f"{name}.weigh gave {type(answer).__name__}: give a tensor with one weight per token")
    if tuple(weights.shape) != (len(batch.row),):
        return RuleError(
            f"{name}.weigh gave shape {tuple(weights.shape)}: give one weight per valid token of the batch, [{len(batch.row)}] here "
            "(batch.row is the response of each token)"
        )
    if weights.layout != strided:
        return RuleError(f"{name}.weigh gave the layout {weights.layout}: give a dense tensor, as with .to_dense()")
    if not weights.is_floating_point():
        return RuleError(f"{name}.weigh gave {weights.dtype}: give floating-point weights, as with .float()")
    low, high = extremes(weights)
    if low >= 0 and high < math.inf:
        return None
    bad = ~(weights >= 0) | ~weights.isfinite()
    place = int(bad.nonzero()[0, 0])
    return RuleError(
        f"{name}.weigh gave the weight {weights[place].item():g} to token {int(batch.position[place])} of row "
        f"{first_bad_row(bad, batch.row)} ({int(bad.sum())} such tokens in all): weights must be finite and not negative"
    )
