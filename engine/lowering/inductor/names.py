"""Names for the values of a rewritten kernel: what was loaded, what was reduced, which row and column."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from engine.lowering.inductor.syntax import Renaming, assigned_name, blocks_of, called, names_in

_NOUNS: Mapping[str, str] = {
    "tl.sum": "total",
    "tl.max": "largest",
    "tl.min": "smallest",
    "tl.exp": "exponential",
    "tl.exp2": "exponential",
    "tl.log": "logarithm",
    "tl.log2": "logarithm",
    "tl.sqrt": "root",
    "tl.sqrt_rn": "root",
    "tl.rsqrt": "inverse_root",
    "tl.erf": "error_function",
    "tl.sigmoid": "gate",
    "tl.abs": "size",
    "tl.where": "selected",
    "tl.maximum": "larger",
    "tl.minimum": "smaller",
    "tl.dot": "product",
    "tl.reduce": "reduced",
    "tl.associative_scan": "scanned",
    "tl.reshape": "reshaped",
    "tl.trans": "transposed",
    "tl.broadcast_to": "spread",
    "tanh": "hyperbolic",
}
_OPERATORS: Mapping[type, str] = {
    ast.Add: "added",
    ast.Sub: "difference",
    ast.Mult: "product",
    ast.Div: "quotient",
    ast.BitAnd: "inside",
    ast.BitOr: "either",
    ast.FloorDiv: "quotient",
    ast.Mod: "remainder",
}
_REDUCTIONS = frozenset({"tl.sum", "tl.max", "tl.min", "tl.reduce", "any_true", "product_of"})
_PARTS: Mapping[str, str] = {"mean": "mean", "m2": "squares", "weight": "count", "max": "largest", "sum": "total"}


def rename_locals(body: list[ast.stmt], axes: list[str], pointers: Mapping[str, str], taken: set[str]) -> None:
    """Renames, in place, everything that a kernel's body assigns.

    Args:
        body: statements of the kernel, rewritten.
        axes: Inductor's axes ("x", "r0_") of the kernel.
        pointers: what each pointer parameter points to.
        taken: names that must not be used.
    """
    names = _axis_names(axes)
    names |= _sub_indices(body, names)
    names = {old: new for old, new in names.items()}
    used = taken | set(names.values())
    reserved = set(used)
    scopes: list[tuple[list[ast.stmt], bool]] = [(body, True)] + [(b, False) for b in blocks_of(body) if b is not body]
    for block, lasting in scopes:
        local = set(used)
        for statement in block:
            for old, wish in _wishes(statement, pointers):
                if old in names:
                    continue
                names[old] = _free(wish, local if not lasting else used)
                local.add(names[old])
                if lasting:
                    used.add(names[old])
    _name_accumulators(body, names, used | reserved)
    for statement in body:
        Renaming(names).visit(statement)


def _axis_names(axes: list[str]) -> dict[str, str]:
    kept = sorted((axis for axis in axes if not axis.startswith("r")), key="zyx".index)
    reduced = [axis for axis in axes if axis.startswith("r")]
    if len(kept) == 1 and not reduced:
        labels = {kept[0]: ""}
    else:
        ordered = {1: ["row"], 2: ["row", "column"], 3: ["plane", "row", "column"]}[len(kept)]
        labels = dict(zip(kept, ordered, strict=True))
    for index, axis in enumerate(reduced):
        labels[axis] = ("column" if len(kept) == 1 else "inner") + (f"_{index + 1}" if index else "")
    names: dict[str, str] = {}
    for axis, label in labels.items():
        prefix = f"{label}_" if label else ""
        names[f"{axis}index"] = label or "index"
        names[f"{axis}mask"] = f"{prefix}mask"
        names[f"{axis}offset"] = f"{prefix}start"
        names[f"{axis}base"] = f"{prefix}offsets"
    return names


def _sub_indices(body: list[ast.stmt], names: Mapping[str, str]) -> dict[str, str]:
    """Names for the parts of an index: its innermost is a column, the next a row, then planes."""
    found: dict[str, list[tuple[int, str]]] = {}
    for block in blocks_of(body):
        for statement in block:
            name = assigned_name(statement)
            match = re.fullmatch(r"([xyz]|r\d_)(\d+)", name or "")
            if match is None or name is None or not isinstance(statement, ast.Assign):
                continue
            text = ast.unparse(statement.value)
            depth = 0 if "//" not in text else 1 if "%" in text else 2
            found.setdefault(match.group(1), []).append((depth * 10 + int(match.group(2)), name))
    renamed: dict[str, str] = {}
    for axis, parts in found.items():
        whole = names.get(f"{axis}index", "index")
        innermost_missing = not any(rank < 10 for rank, _ in parts)
        labels = ["column", "row", "plane", "image", "group"][1 if innermost_missing else 0 :]
        for position, (_, name) in enumerate(sorted(parts)):
            label = labels[position] if position < len(labels) else f"index_{position}"
            renamed[name] = label if whole == "index" else f"{whole}_{label}"
    return renamed


def _wishes(statement: ast.stmt, pointers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that a statement assigns for the first time, each with the name it would like."""
    if not isinstance(statement, ast.Assign):
        return []
    target = statement.targets[0]
    if isinstance(target, ast.Name):
        return [(target.id, _noun(target.id, statement.value, pointers))]
    if isinstance(target, ast.Tuple):
        function = called(statement.value)
        parts = {"welford_finish": ["mean", "squares", "count"], "softmax_finish": ["largest", "total"]}.get(function)
        wishes = []
        for index, element in enumerate(target.elts):
            assert isinstance(element, ast.Name)
            label = parts[index] if parts else _noun(element.id, statement.value, pointers)
            wishes.append((element.id, label))
        return wishes
    return []


def _noun(name: str, value: ast.expr, pointers: Mapping[str, str]) -> str:
    if match := re.match(r"_?tmp\d+_(mean|m2|weight|max|sum)(_next)?$", name):
        return ("new_" if match.group(2) else "") + _PARTS[match.group(1)] + ("" if match.group(2) else "_parts")
    if name.startswith("_tmp"):
        return "accumulator"
    inner = value
    while isinstance(inner, ast.Subscript) or (isinstance(inner, ast.Call) and called(inner).endswith(".to")):
        inner = inner.value if isinstance(inner, ast.Subscript) else inner.func.value  # type: ignore[attr-defined]
    function = called(inner)
    if function == "tl.load" and isinstance(inner, ast.Call):
        return next((pointers[n] for n in names_in(inner.args[0]) if n in pointers), "value")
    if function:
        return _NOUNS.get(function, function.rpartition(".")[2])
    if isinstance(inner, ast.BinOp):
        return _OPERATORS.get(type(inner.op), "value")
    if isinstance(inner, ast.Compare):
        return "condition"
    if isinstance(inner, ast.UnaryOp):
        return "negative" if isinstance(inner.op, ast.USub) else "outside"
    if isinstance(inner, ast.Name):
        return "result" if inner.id.startswith("_tmp") else "value" if inner.id.startswith("tmp") else inner.id
    return "value"


def _free(wish: str, used: set[str]) -> str:
    if wish not in used:
        return wish
    number = 2
    while f"{wish}_{number}" in used:
        number += 1
    return f"{wish}_{number}"


def _name_accumulators(body: list[ast.stmt], names: dict[str, str], used: set[str]) -> None:
    """Names each accumulator after what it is reduced to at the end."""
    for statement in body:
        name = assigned_name(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        inner = statement.value
        while isinstance(inner, ast.Subscript) or (isinstance(inner, ast.Call) and called(inner).endswith(".to")):
            inner = inner.value if isinstance(inner, ast.Subscript) else inner.func.value  # type: ignore[attr-defined]
        if called(inner) not in _REDUCTIONS:
            continue
        for part in names_in(inner):
            if re.fullmatch(r"_tmp\d+", part) and names.get(part, "").startswith("accumulator"):
                names[part] = _free(f"{names[name]}_parts", used)
                used.add(names[part])
