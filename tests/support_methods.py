"""The methods that an engine can run, for tests that go through all of them. Beside the tests: spawned processes import it too."""

from delta_rlvr.objectives import all_methods

TRAINABLE = {
    name: method
    for name, method in all_methods().items()
    if set(method.rule.needs) <= {"hidden", "head", "groups", "logps", "entropy", "tokens"}
}
"""What TRL and verl can give is enough for these."""
