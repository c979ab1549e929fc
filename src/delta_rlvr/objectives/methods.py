"""Methods by name: each is a token rule, a surrogate and an average.

The spec of a method is `name?setting=value&setting=value`. The name is a registered one or the place of a rule:
`my_rules.py:FirstHalf`, `my_package.rules:FirstHalf`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

from delta_rlvr.credit.rule import REGISTERED, WIDER, RuleError, TokenRule, check_rule_class, first_line, register
from delta_rlvr.credit.rules.uniform import ResponseMean, Uniform
from delta_rlvr.hints import did_you_mean
from delta_rlvr.objectives.aggregate import Aggregation
from delta_rlvr.objectives.surrogates import Clip, FutureClip, SoftGate, Surrogate
from delta_rlvr.specs import split_spec, typed_settings
from delta_rlvr.user_code import PLUGINS, PlaceError, failed_with, module_at, printable


@dataclass(frozen=True)
class Method:
    """The parts in which one training method differs from another."""

    name: str
    """The spec, settings included."""
    about: str = ""
    """One line for `delta-rlvr methods` and the report."""
    paper: str = ""
    """Its source."""
    rule: TokenRule = field(default_factory=Uniform)
    """The token weights, fixed for a rollout batch."""
    surrogate: Surrogate = field(default_factory=Clip)
    """The token loss."""
    aggregation: Aggregation = "token_mean"
    """The average of token losses."""

    @property
    def rho(self) -> TokenRule:
        """Appendix E's token weight at theta_old, which includes a mean over responses. (Clips and gates have no effect there.)"""
        return ResponseMean(self.rule) if self.aggregation == "sequence_mean" else self.rule

    def with_settings(self, settings: Mapping[str, str]) -> Method:
        """Return the method with other settings of its rule or surrogate."""
        own = {key: text for key, text in settings.items() if key in self.surrogate.settings}
        rest = {key: text for key, text in settings.items() if key not in own}
        surrogate, rule = self.surrogate, self.rule
        with _building(type(rule)):
            if own:
                surrogate = replace(surrogate, **typed_settings(type(surrogate), own, self.name))
            if rest:
                where = f"method {self.name!r}"
                if not fields(rule) and surrogate.settings:  # only the surrogate has settings
                    raise ValueError(
                        f"{where} has no setting {next(iter(rest))!r} (it has: {', '.join(surrogate.settings)})"
                    )
                known = {one.name: getattr(rule, one.name) for one in fields(rule)}
                if type(rule) in WIDER and not rest.keys() <= known.keys():
                    rule = WIDER[type(rule)](**known)
                rule = replace(rule, **typed_settings(type(rule), rest, where))
        return replace(self, rule=rule, surrogate=surrogate)


_BASELINES = (
    Method("grpo", "mean over responses, symmetric clip", "App. J", Uniform(), Clip(0.2, 0.2), "sequence_mean"),
    Method("dapo", "mean over tokens, clip-higher", "App. J, Table 1"),
    Method("sapo", "soft gate instead of the clip", "App. J, Table 1", Uniform(), SoftGate(), "sequence_mean"),
    Method("fipo", "advantages scaled by the future shift", "App. J, Table 1", Uniform(), FutureClip()),
)


def all_methods() -> dict[str, Method]:
    """Return all named methods: the baselines, and DAPO with the weights of each registered rule."""
    _load_plugins()
    named = {method.name: method for method in _BASELINES}
    return named | {name: Method(name, known.about, known.paper, known.rule) for name, known in REGISTERED.items()}


def get_method(spec: str | TokenRule | Method) -> Method:
    """Return the method of a spec, or DAPO with the weights of a rule object."""
    if isinstance(spec, Method):
        return spec
    if isinstance(spec, TokenRule):
        check_rule_class(type(spec))
        return Method(spelled(spec), first_line(type(spec)), rule=spec)
    if not isinstance(spec, str):
        raise RuleError(f"method: give a name, a rule or a Method, not {type(spec).__name__}")
    name, settings = split_spec(spec)
    method = _from_place(name) if ":" in name else _from_name(name)
    return replace(method.with_settings(settings), name=spec) if settings else replace(method, name=spec)


def spelled(rule: TokenRule) -> str:
    """Return the spec of a rule object: its registered name or its place, and the settings that differ from it."""
    for name, known in REGISTERED.items():
        if known.rule == rule:
            return name
    kind = type(rule)
    plain = next((one for one, wider in WIDER.items() if wider is kind), kind)()
    base = next((name for name, known in REGISTERED.items() if known.rule == plain), None)
    changed = {
        one.name: getattr(rule, one.name)
        for one in fields(rule)
        if getattr(rule, one.name) != getattr(kind(), one.name)
    }
    query = f"?{urlencode({key: str(value) for key, value in changed.items()})}" if changed else ""
    return (base or f"{kind.__module__}:{kind.__qualname__}") + query


def _from_name(name: str) -> Method:
    methods = all_methods()
    if name in methods:
        return methods[name]
    hint = did_you_mean(name, methods)
    if name.endswith(".py"):
        hint = f"; name the rule in the file, too: {name}:{(_rules_in(_module(name)) or ['MyRule'])[0]}"
    failed = "".join(f"; the plug-in {plugin} did not load ({why})" for plugin, why in _load_plugins().items())
    raise RuleError(f"unknown method {name!r}{hint} (`delta-rlvr methods` lists them){failed}")


def _from_place(place: str) -> Method:
    """Return the method of a rule's place: a file or a module, and the class in it."""
    where, _, name = place.rpartition(":")
    module = _module(where)
    kind = getattr(module, name, None)
    if kind is None:
        rules = _rules_in(module)
        has = f"it has {', '.join(rules)}" if rules else "it has no token rule"
        raise RuleError(f"{place}: there is no {name!r} in {where}{did_you_mean(name, rules)} ({has})")
    if isinstance(kind, TokenRule):
        return replace(get_method(kind), name=place)
    check_rule_class(kind, place)
    with _building(kind):
        return Method(place, first_line(kind), rule=kind())


@contextmanager
def _building(kind: type[TokenRule]) -> Iterator[None]:
    """An error of a rule's own checks is a `RuleError`, in one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = printable(str(error)) if isinstance(error, ValueError) else ""
        raise RuleError(said or f"{kind.__name__} {failed_with(kind, error)}") from error


def _module(where: str) -> ModuleType:
    try:
        return module_at(where)
    except PlaceError as error:
        raise RuleError(str(error)) from error


def _rules_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, TokenRule) and value.__module__ == module.__name__
    ]


@cache
def _load_plugins() -> dict[str, str]:
    """Load the rules of other packages; return those that failed to load, with the reason."""
    failed = {}
    for plugin in entry_points(group=PLUGINS):
        try:
            brought: Any = plugin.load()
            if not isinstance(brought, ModuleType):
                check_rule_class(brought, plugin.value)
                register(plugin.name)(brought)
        except Exception as error:
            failed[plugin.name] = f"{type(error).__name__}: {error}"
            warnings.warn(f"the methods of {plugin.name} ({plugin.value}) did not load: {error}", stacklevel=2)
    return failed
