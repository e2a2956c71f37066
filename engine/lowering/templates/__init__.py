"""Our own templates: families of kernels that fit a task's graph whatever the task is called."""

from engine.lowering.templates.families import structures

__all__ = ["structures"]
