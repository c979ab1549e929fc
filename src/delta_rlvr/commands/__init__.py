"""The subcommands of the command line: one module each, composed from the other rooms."""

EXTRAS = {
    **dict.fromkeys(("train", "doctor", "compare"), "train"),
    "evaluate": "evaluate,math",
    **dict.fromkeys(("report", "explain"), "report,evaluate"),
    **dict.fromkeys(("methods", "completion"), "train"),
}
"""The extras of the package that each command needs."""

TRAIN_LIKE = ("train", "doctor", "compare")
"""Commands that take every option of TRL."""

IN_EVIDENCE = ("credit-bench", "measured-credit", "study", "leaderboard")
"""Commands of the distribution delta-rlvr-evidence, found by the entry-point group `delta_rlvr.commands`."""
