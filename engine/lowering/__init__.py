"""Kernels from the reference itself: TorchInductor rewritten as plain Triton, and our own templates.

`client` and `neighbours` belong to the engine and import no torch; `server` and what it imports run in a process of
their own.
"""
