"""DelTA inside stock verl 0.9, as a plug-in: one `delta` block of settings, for verl's V1 and classic trainers. See docs/verl.md.

`internals` is the one folder that touches verl; the other files know tensors and settings only.
"""
