"""A run of training from what was asked for to its folder: the request, the session, the held-out score, resumed and compared runs."""
