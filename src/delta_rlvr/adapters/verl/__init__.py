"""DelTA in stock verl 0.9 as a plug-in: one `delta` block of settings, for verl's V1 and classic trainers. See docs/verl.md.

Only the folder `internals` uses verl, with `plugin.py`; the other files handle tensors and settings.
"""
