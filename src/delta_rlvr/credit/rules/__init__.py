"""The built-in rules, one file each. Every file in this folder is imported, so that its rules are registered."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
