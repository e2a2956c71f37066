"""Kernelgrove's engine: tasks, judging, proposing, search, storage and the loop that drives them.

Importing this package is cheap: it loads neither torch nor a user interface.
"""

__version__ = "0.1.0"
