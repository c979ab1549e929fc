"""Training runs: the request, the session, the held-out score, resumed runs and comparisons."""
