"""The process in which algebra runs: reads one JSON request a line, answers one JSON line, and may be killed at any time.

Started by `workers`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys


def main(memory: int) -> None:
    """Serves requests from standard input until it closes."""
    # Whatever a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.set_int_max_str_digits(4300)

    from .math.algebra import ValueAlgebra
    from .math.compare import judge

    given = resource.getrlimit(resource.RLIMIT_AS)
    limits = [memory, *(limit for limit in given if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), min(limits)))  # a limit that is lower already stays
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    algebra = ValueAlgebra()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        # The parent kills this process when time is up. Should the parent itself be gone by then, the kernel does it:
        # an alarm without a handler ends the process even inside a long computation in C.
        signal.setitimer(signal.ITIMER_REAL, request["timeout"] + 2.0)
        try:
            answer = {"reason": judge(request["reference"], request["prediction"], algebra)}
        except RecursionError:
            answer = {"reason": "unparsable answer: nested too deeply"}
        except MemoryError:
            # What is left of the heap cannot be trusted for the next sample: say so and go.
            os.write(answers.fileno(), b'{"failure": "out of memory"}\n')
            os._exit(1)
        except Exception as error:
            answer = {"failure": f"could not be compared: {type(error).__name__}: {str(error)[:200]}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
