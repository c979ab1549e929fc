"""The type checker behind the shape annotations (see conftest.py)."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number will do where a float is asked for
