"""The methods that an engine can run, for tests that go through all of them. Beside the tests: spawned processes import it too."""

from delta_rlvr.objectives import all_methods, get_method

# With their defaults these leave every token of the tests' random policies alone: STARE above its target entropy, NTHR below its
# threshold, RSI-S inside its band, TR-GRPO below its clip; and they are so unsure that nothing fades. Here each does what it is for.
_SPELLED = {
    "stare": "stare?target_entropy=inf",
    "nthr": "nthr?beta=0",
    "rsi-s": "rsi-s?low=0.9&high=1.1",
    "tr-grpo": "tr-grpo?low=0",
    "fading": "fading?nats=20",
}

TRAINABLE = {
    _SPELLED.get(name, name): get_method(_SPELLED.get(name, name))
    for name, method in all_methods().items()
    if set(method.rule.needs) <= {"hidden", "head", "groups", "logps", "entropy", "tokens"}
}
"""What TRL and verl can give is enough for these."""

ONE_OF_A_KIND = {
    (frozenset(method.rule.needs), str(method.rule.stores), method.surrogate): name
    for name, method in reversed(TRAINABLE.items())
}.values()
"""The first of those that need and store the same and have the same surrogate: to an engine the others are no different."""
