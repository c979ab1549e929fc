"""Where a sandbox begins: reads its job, sets the limits, and hands over to what serves that kind of job."""

from __future__ import annotations

import os
import sys

from rlvr_graders.code.sandbox.inside import read_message, serve_calls, start

TYPE_CHECKING = False  # typing's own constant, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from typing import Any


def main() -> Any:
    """Serve one program; in the child of a whole-program run, return the code for the top level to execute."""
    job = read_message(0)
    sys.path.append(job["packages"])
    sys.argv = ["main.py"]
    requests, replies = start(job["limits"], job["folder"])
    mode = job["mode"]
    if mode == "calls":
        serve_calls(job, requests, replies)
    elif mode == "runs":
        from rlvr_graders.code.sandbox.inside_runs import serve_runs

        code = serve_runs(job, requests, replies)
        if code is not None:
            return code
    else:
        from rlvr_graders.code.sandbox.inside_assertions import serve_assertions

        serve_assertions(job, requests, replies)
    os._exit(0)
