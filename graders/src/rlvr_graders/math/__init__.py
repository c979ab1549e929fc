"""Mathematics: whether a final answer is the reference answer. `grade` is the door; the rest also runs in worker processes.

Nothing is imported here, because a worker loads this package without the one around it.
"""
