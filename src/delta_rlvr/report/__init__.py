"""One self-contained page for a run or a comparison, and for rollouts from anywhere."""

from delta_rlvr.report.page import write_report

__all__ = ["write_report"]
