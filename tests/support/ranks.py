"""A function on two ranks, as `torchrun` starts it (with gloo), without the seconds that its imports take."""

import gc
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import FORKS


def on_two_ranks(function: Callable[..., Any], *arguments: Any, log: Path, seconds: float = 560) -> str:
    """Run it to its end on both; what they said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = [Path(f"{log}.{rank}") for rank in range(2)]
    processes = [
        FORKS.Process(target=_be_rank, args=(rank, port, str(logs[rank]), function, arguments)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + seconds
    # A rank that fails leaves the other one waiting for it.
    while {process.exitcode for process in processes} <= {None, 0} and time.monotonic() < end:
        if all(process.exitcode == 0 for process in processes):
            break
        time.sleep(0.02)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    said = "".join(path.read_text(encoding="utf-8") for path in logs if path.exists())
    assert codes == [0, 0], f"exit codes {codes} (None: it was still running):\n{said[-6000:]}"
    return said


def _be_rank(rank: int, port: int, log: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= {
        **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2"),
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
    }
    import torch

    gc.freeze()  # each training starts with a collection, which need not look at what was imported
    torch.set_num_threads(1)
    code = function(*arguments)
    sys.stdout.flush()
    sys.exit(code)
