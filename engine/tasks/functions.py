"""Function tasks: a file with `reference` and `CASES`, for people who have an operator and not a model.

A case makes its arguments by a function, or names their dtypes and shapes; constants of the module that a case
(`sizes`, `small`) or `SMALL` replaces are replaced before. Everything here works on the text and runs none of it:
`read_cases` says what cases there are, `as_model` writes the same task as a module with a class Model, which is
what judge and lowering open.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from engine.records import Case

DEFAULT_ENTRY = "solution"
"""The name of the candidate's function where the task has no ENTRY."""

CASE = "CASE"
"""The constant that says which case is open, in what `as_model` writes."""

_KEYS = {"name", "inputs", "weight", "atol", "rtol", "sizes", "small"}


class FunctionTaskError(ValueError):
    """The text is no function task; the message says what is wrong with which part."""


def is_function_task(tree: ast.Module) -> bool:
    """Whether the module defines `reference` and no class Model."""
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return "reference" in names and "Model" not in names


def entry_of(tree: ast.Module) -> str:
    """The name of the function that a candidate defines.

    Raises:
        FunctionTaskError: ENTRY is not a name.
    """
    given = _assigned(tree, "ENTRY")
    entry = DEFAULT_ENTRY if given is None else _literal(given, "ENTRY")
    if not isinstance(entry, str) or not entry.isidentifier():
        raise FunctionTaskError("ENTRY must be the name of a function, as text")
    return entry


def mutated_by(tree: ast.Module) -> tuple[str, ...]:
    """The parameters that are outputs as well.

    Raises:
        FunctionTaskError: MUTATES is no list of parameters.
    """
    names = _parameters(tree)
    mutated = _literal(_assigned(tree, "MUTATES"), "MUTATES") or []
    if not isinstance(mutated, list | tuple) or not all(name in names for name in mutated):
        raise FunctionTaskError(f"MUTATES must be a list of parameters of reference ({', '.join(names)})")
    return tuple(mutated)


def read_cases(tree: ast.Module, small: Mapping[str, Any]) -> tuple[Case, ...]:
    """The cases of a function task; `small` is its SMALL, which every case shares.

    Raises:
        FunctionTaskError: CASES, MUTATES or ENTRY is not what the format asks for.
    """
    entry_of(tree)
    mutated_by(tree)
    cases = tuple(_read_case(item, index, small) for index, item in enumerate(_cases(tree)))
    if len({case.name for case in cases}) < len(cases):
        raise FunctionTaskError("two cases in CASES have the same name")
    return cases


def _cases(tree: ast.Module) -> list[ast.Dict]:
    node = _assigned(tree, "CASES")
    if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
        raise FunctionTaskError("CASES must be a list of dicts that is written out, with one case at least")
    for index, item in enumerate(node.elts):
        if not isinstance(item, ast.Dict) or not all(isinstance(key, ast.Constant) for key in item.keys):
            raise FunctionTaskError(f"case {index} in CASES must be a dict that is written out")
    return [item for item in node.elts if isinstance(item, ast.Dict)]


def _fields(node: ast.Dict) -> dict[str, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _read_case(node: ast.Dict, index: int, small: Mapping[str, Any]) -> Case:
    fields = _fields(node)
    if unknown := sorted(fields.keys() - _KEYS):
        raise FunctionTaskError(
            f"case {index} in CASES has {unknown[0]!r}, which is none of {', '.join(sorted(_KEYS))}"
        )
    for needed in ("name", "inputs"):
        if needed not in fields:
            raise FunctionTaskError(f"case {index} in CASES has no {needed!r}")
    values = {key: _literal(value, f"{key} of case {index}") for key, value in fields.items() if key != "inputs"}
    if not isinstance(values["name"], str) or not values["name"]:
        raise FunctionTaskError(f"the name of case {index} in CASES must be text")
    name = values["name"]
    for key, least in (("weight", 1e-9), ("atol", 0.0), ("rtol", 0.0)):
        if key in values and not (_is_number(values[key]) and least <= values[key] < float("inf")):
            kind = "positive" if key == "weight" else "non-negative"
            raise FunctionTaskError(f"{key} of case {name} must be a {kind} number")
    for key in ("sizes", "small"):
        if not isinstance(values.get(key, {}), dict):
            raise FunctionTaskError(f"{key} of case {name} must be a dict from names of constants to values")
    return Case(
        name=name,
        weight=float(values.get("weight", 1.0)),
        overrides={**values.get("sizes", {}), CASE: name},
        small_overrides={**small, **values.get("small", {})},
        atol=values.get("atol"),
        rtol=values.get("rtol"),
    )


def as_model(source: str, functional: bool = False) -> str:
    """The task as a module with a class Model, `get_inputs` and `get_init_inputs`; other modules as they are.

    Constants stay constants, and `CASE` says which case is open, at first the first.

    Args:
        source: the task's text.
        functional: whether Model works on copies of the arguments in MUTATES and returns a flat tuple: the results,
            then these copies.

    Raises:
        FunctionTaskError: the text is not what the format asks for.
        SyntaxError: the text is not Python.
    """
    tree = ast.parse(source)
    if not is_function_task(tree):
        return source
    names = _parameters(tree)
    small = _literal(_assigned(tree, "SMALL"), "SMALL") or {}
    cases = read_cases(tree, small)
    forward = _forward(_reference(tree), names, mutated_by(tree) if functional else ())
    items = _cases(tree)
    # What a case is made of is worked out when it is opened, with its constants in place.
    inputs = ast.Dict(
        [ast.Constant(case.name) for case in cases], [_later(fields["inputs"]) for fields in map(_fields, items)]
    )
    domains = _assigned(tree, "DOMAINS") or ast.Constant(None)
    made = f"_arguments.make(reference, {CASE}, {ast.unparse(inputs)}[{CASE}](), {ast.unparse(domains)})"
    adapter = (
        "from engine.tasks import arguments as _arguments\n"
        "from torch import nn\n"
        f"{CASE} = {cases[0].name!r}\n"
        f"SMALL = {cases[0].small_overrides!r}\n"
        f"def get_inputs():\n    return {made}\n"
        "def get_init_inputs():\n    return []\n"
    )
    model = ast.parse("class Model(nn.Module):\n    pass\n").body[0]
    assert isinstance(model, ast.ClassDef)
    model.body = [forward]
    # After the last line, so that the lines of the task's own text keep their numbers.
    return f"{source.rstrip()}\n\n\n{adapter}{ast.unparse(model)}\n"


def _later(node: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), node)


def _forward(reference: ast.FunctionDef, names: list[str], copied: Sequence[str]) -> ast.FunctionDef:
    """The reference as a method: its own body where that means the same, so that its names are seen; else a call."""
    own = ast.arg("self" if "self" not in names else "_self")
    method = copy.deepcopy(reference)
    method.name = "forward"
    (method.args.posonlyargs or method.args.args).insert(0, own)
    used = {node.id for node in ast.walk(reference) if isinstance(node, ast.Name)}
    if not copied and not reference.decorator_list and not used & {"reference", own.arg}:
        return ast.fix_missing_locations(method)
    lines = [f"{name} = {name}.clone()" for name in copied]
    call = f"reference({', '.join(names)})"
    if copied:
        lines.append(f"result = {call}")
        lines.append(
            "results = () if result is None else tuple(result) if isinstance(result, (tuple, list)) else (result,)"
        )
        lines.append(f"return (*results, {', '.join(copied)})")
    else:
        lines.append(f"return {call}")
    method.decorator_list, method.returns = [], None
    method.body = ast.parse("\n".join(lines)).body
    return ast.fix_missing_locations(method)


def _reference(tree: ast.Module) -> ast.FunctionDef:
    return next(node for node in reversed(tree.body) if isinstance(node, ast.FunctionDef) and node.name == "reference")


def _parameters(tree: ast.Module) -> list[str]:
    """The names of the reference's parameters, which are all passed by position."""
    found = _reference(tree).args
    if found.vararg or found.kwarg or found.kwonlyargs:
        raise FunctionTaskError("reference must take plain parameters: no *, no ** and none by keyword only")
    return [argument.arg for argument in (*found.posonlyargs, *found.args)]


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """What the module gives a name at its top level, at last."""
    for node in reversed(tree.body):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return node.value
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return node.value
    return None


def _literal(node: ast.expr | None, what: str) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError as error:
        raise FunctionTaskError(
            f"{what} must be written out, so that it can be read without running the file"
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
