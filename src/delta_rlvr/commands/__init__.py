"""What the command line does: each module is one subcommand, composed from the other rooms."""

EXTRAS = {
    **dict.fromkeys(("train", "doctor", "compare"), "train"),
    "evaluate": "evaluate,math",
    **dict.fromkeys(("report", "explain"), "report,evaluate"),
    **dict.fromkeys(("methods", "completion"), "train"),
}
"""The commands, and the extras of the package that each needs."""

TRAIN_LIKE = ("train", "doctor", "compare")
"""Those that take every option of TRL."""

IN_EVIDENCE = ("credit-bench", "measured-credit", "study", "leaderboard")
"""Commands of the distribution delta-rlvr-evidence, which joins them by the entry-point group `delta_rlvr.commands`."""
