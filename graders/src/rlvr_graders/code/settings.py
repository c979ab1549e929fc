"""How programs are run: what they may use of the machine."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class CodeSettings:
    """Settings of the code grader."""

    seconds_per_test: float = 6.0
    """Wall-clock limit of one call or one run of the program; loading the program has one such limit too."""
    seconds_total: float = 60.0
    """Wall-clock limit of all tests of one program together."""
    memory_bytes: int = 2048 * MEBIBYTE
    """Address space of a process, and memory of all processes of the program together, as the kernel counts it."""
    processes: int = 256
    """Processes and threads that the program may have at a time: a bound on harm, since default pools grow with the machine."""
    file_bytes: int = 16 * MEBIBYTE
    """Size of a file that the program writes."""
    open_files: int = 512
    """Files that the program may have open."""
    temporary_bytes: int = 64 * MEBIBYTE
    """Room in each of the sandbox's two folders for temporary files, which lie in memory."""
    files: int = 10_000
    """Files that each of these folders may hold."""
    output_bytes: int = 16 * MEBIBYTE
    """Size of one answer or output of the program; of all its answers together, where a test's own source calls it."""
    packages: tuple[str, ...] | None = None
    """Installed packages that programs may import beside the standard library; None: numpy where it is installed."""
    workers: int | None = None
    """Programs graded at a time by a batch; None: one for each processor that this process may use."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, not {self.workers}")
        if not 0 < self.seconds_per_test <= self.seconds_total:
            raise ValueError(
                "seconds_per_test must be above 0 and at most seconds_total, "
                f"not {self.seconds_per_test} and {self.seconds_total}"
            )
        for name in ("processes", "file_bytes", "open_files", "temporary_bytes", "files", "output_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.memory_bytes < 64 * MEBIBYTE:
            raise ValueError(f"memory_bytes must be at least 64 MiB for Python to start, not {self.memory_bytes}")
        if self.packages is not None and not isinstance(self.packages, tuple):
            raise ValueError(f"packages must be a tuple of names, not {type(self.packages).__name__}")
