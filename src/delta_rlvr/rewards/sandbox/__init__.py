"""Running programs that nobody trusts: bubblewrap, a remote server, or (weakly) a plain process."""
