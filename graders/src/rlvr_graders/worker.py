"""The process in which answers are compared: reads one JSON request a line, answers one JSON line, and may be killed at any time.

Started by `workers`, for one of the graders.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

Judge = Callable[[str, str], dict[str, Any]]


def _ours() -> Judge:
    from .math.algebra import ValueAlgebra
    from .math.compare import judge

    algebra = ValueAlgebra()
    return lambda reference, prediction: {"reason": judge(reference, prediction, algebra)}


def _math_verify() -> Judge:
    from .others import judge_by_math_verify

    return judge_by_math_verify()


GRADERS = {"math": _ours, "math-verify": _math_verify}


def main(memory: int, grader: str) -> None:
    """Serves requests from standard input until it closes."""
    # Whatever a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.set_int_max_str_digits(4300)

    judge = GRADERS[grader]()
    given = resource.getrlimit(resource.RLIMIT_AS)
    limits = [memory, *(limit for limit in given if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), min(limits)))  # a limit that is lower already stays
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    for line in sys.stdin:
        request = json.loads(line)
        # The parent kills this process when time is up. Should the parent itself be gone by then, the kernel does it, even inside
        # a long computation in C, by signals that have no handler: SIGIO when the pipe from the parent closes, and an alarm.
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
        signal.setitimer(signal.ITIMER_REAL, request["timeout"] + 2.0)
        try:
            answer = judge(request["reference"], request["prediction"])
        except RecursionError:
            answer = {"reason": "unparsable answer: nested too deeply"}
        except MemoryError:
            # What is left of the heap cannot be trusted for the next sample: say so and go.
            os.write(answers.fileno(), b'{"failure": "out of memory"}\n')
            os._exit(1)
        except Exception as error:
            answer = {"failure": f"could not be compared: {type(error).__name__}: {str(error)[:200]}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        fcntl.fcntl(0, fcntl.F_SETFL, flags)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
