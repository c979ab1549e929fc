"""Problems from outside: rows of files and data sets, generators."""
