"""Runs the shape annotations of what computes, and says under which vector instructions and with how many threads torch ran. What tests
share lies in `support/`."""

import gc
import os
import signal
import sys
import threading

import jaxtyping
import pytest
from jaxtyping import install_import_hook

# Every call of these modules is held to its annotations: shapes, dtypes, types. Left out is what refuses bad input in words of its own,
# which the annotations would refuse first.
CHECKED = {
    "credit": "batch diagnostics discriminator draws linear pieces record reduce estimator slots solver store vectors",
    "objectives": "advantages aggregate future surrogates",
}
install_import_hook(
    [f"delta_evidence.stack.{name}" for name in ("layers", "logprobs", "ragged", "sampling")]
    + [f"delta_rlvr.{room}.{name}" for room, names in CHECKED.items() for name in names.split()],
    "shape_checks.checked",
)

# A suite started in the background inherits an ignored SIGINT and would hand it on to the programs whose Ctrl-C is tested.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_ran_under = set()


@pytest.fixture(scope="module", autouse=True)
def settled_heap():
    """What was imported before a module stays to the end, so no collection of garbage needs to look at it again: that took a third of
    the time of the small trainings, and more than the tenth of a second that a grading call may keep its caller busy."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def unchecked_shapes():
    """For modules that make the same calls again and again as another one, which checks their shapes: a third of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


def pytest_sessionfinish(session):
    gc.unfreeze()
    if "torch" not in sys.modules:
        return
    import torch

    capability, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    asked = os.environ.get("ATEN_CPU_CAPABILITY", capability)
    assert asked.lower() == capability.lower(), f"asked for {asked}, torch runs {capability}"
    told = f"torch ran with CPU capability {capability} and {threads} {'thread' if threads == 1 else 'threads'}"
    if hasattr(session.config, "workeroutput"):  # one of pytest-xdist's workers
        session.config.workeroutput["ran_under"] = told
    else:
        _ran_under.add(told)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _ran_under.add(getattr(node, "workeroutput", {}).get("ran_under"))


def pytest_terminal_summary(terminalreporter):
    for told in sorted(filter(None, _ran_under)):
        terminalreporter.write_line(told)
