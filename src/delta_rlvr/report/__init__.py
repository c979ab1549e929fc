"""The self-contained page about a run, a comparison, or rollouts of any engine."""

from delta_rlvr.report.page import write_report

__all__ = ["write_report"]
