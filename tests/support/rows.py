"""Files of rows, as problems, rollouts and samples are kept."""

import json


def write_rows(path, rows):
    """JSON Lines; a row that is a text stands as it is."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def write_sums(path, count):
    """So many problems with answers."""
    return write_rows(path, [{"question": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1)} for n in range(count)])
