"""TorchInductor's lowering of a task, rewritten as plain Triton modules. For the lowering process only."""

from engine.lowering.inductor.variants import each_structure, structures

__all__ = ["each_structure", "structures"]
