"""Problems from other sources: rows of files and data sets, and generators."""
