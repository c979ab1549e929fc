"""The learning study: protocols, training of many runs, held-out scores, tables."""
