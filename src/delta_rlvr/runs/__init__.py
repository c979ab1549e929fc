"""The run folder (docs/run_schema.md): its writer, its reader and the sums per vocabulary entry."""

from delta_rlvr.runs.layout import SCHEMA, RunFolderError
from delta_rlvr.runs.reader import RunReader, read_run
from delta_rlvr.runs.tokens import TokenSums
from delta_rlvr.runs.writer import RunDescription, RunWriter

__all__ = ["SCHEMA", "RunDescription", "RunFolderError", "RunReader", "RunWriter", "TokenSums", "read_run"]
