"""DelTA inside stock verl 0.9, as a plug-in: trainer mode `delta_sync`, settings in one `delta` block. See docs/verl.md.

`internals` is the one file that touches verl; the others know tensors and settings only.
"""
