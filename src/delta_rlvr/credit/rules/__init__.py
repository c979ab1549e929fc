"""The rules themselves, one file each. A file that is put here is found by itself; what it registers has a name everywhere."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
