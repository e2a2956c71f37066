"""Names for kernels, their parameters and the buffers between them."""

from __future__ import annotations

import ast
import re

from engine.lowering.inductor.syntax import called, names_in
from engine.lowering.inductor.wrapper import WrittenKernel


def unique(wish: str, used: dict[str, str], key: str) -> str:
    """The wish, or the wish with a number, so that one key has one name; `used` maps names to keys."""
    name, number = wish, 2
    while used.get(name, key) != key:
        name, number = f"{wish}_{number}", number + 1
    used[name] = key
    return name


def stored_noun(kernel: WrittenKernel, pointer: str) -> str:
    """What a kernel stores through a pointer, as a noun for the buffer."""
    assigned: dict[str, str] = {}
    for node in ast.walk(kernel.function):
        if isinstance(node, ast.Assign):
            assigned[ast.unparse(node.targets[0])] = ast.unparse(node.value)
    for node in ast.walk(kernel.function):
        if isinstance(node, ast.Call) and called(node) == "tl.store" and pointer in names_in(node.args[0]):
            text = assigned.get(ast.unparse(node.args[1]), "")
            for sign, noun in (
                ("max2", "largest"),
                ("min2", "smallest"),
                ("tl.sum", "total"),
                ("rsqrt", "inverse_root"),
            ):
                if sign in text:
                    return noun
            if re.fullmatch(r"tmp\d+\[:, None\]", text):
                return "statistic"
    return "intermediate"


_SILENT = re.compile(
    r"^(view|t|transpose|permute|expand|clone|unsqueeze|squeeze|_unsafe_view|prepare_softmax_online|split|detach)$"
)


def plain_operations(kernel: WrittenKernel) -> list[str]:
    """The operations that a kernel fuses, in the words of PyTorch, without those that only change a view."""
    names = [re.sub(r"^native_", "", name.strip("_")) for name in kernel.operations if not _SILENT.match(name)]
    if any(name == "prepare_softmax_online" for name in kernel.operations) and not names:
        names = ["softmax_statistics"]
    return list(dict.fromkeys(re.sub(r"_(with_indices|forward|legit_functional)$", "", name) for name in names))


def kernel_name(kernel: WrittenKernel, taken: set[str]) -> str:
    """A name for a kernel that is not taken: the last operations that it fuses."""
    names = plain_operations(kernel)
    base = "_".join(names[-3:]) if names else "fused"
    return unique(f"{base}_kernel" if len(base) < 40 else "fused_kernel", dict.fromkeys(taken, "taken"), "new")
