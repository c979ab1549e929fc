"""`delta-rlvr train`: RLVR of a causal LM on verifiable problems, with a held-out score before and after, and a report."""

from __future__ import annotations

from delta_rlvr.commands.options import as_flags, read_request
from delta_rlvr.terminal import plain_console
from delta_rlvr.training.progress import Teller
from delta_rlvr.training.session import train


def run(arguments: list[str]) -> int:
    train(read_request(arguments), Teller(plain_console(), as_flags))
    return 0
