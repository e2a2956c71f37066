"""Templates match graphs, not tasks: references written here, in many forms, are lowered and right."""

from __future__ import annotations

import textwrap

import pytest

from engine.lowering.structure import Structure
from engine.lowering.templates import structures
from tests.engine.lowering.templates.checking import Request, run_worker, with_neighbours

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""


def task(sizes: dict[str, tuple[int, int]], forward: str, inputs: str, init: str = "", arguments: str = "") -> str:
    """A task whose constants have a large and a small value each."""
    names = [name.split("=")[0] for name in inputs.split(";")]
    values = [name.split("=")[1] for name in inputs.split(";")]
    lines = [f"{name} = {large}" for name, (large, _) in sizes.items()]
    small = {name: value for name, (_, value) in sizes.items()}
    lines.append(f"SMALL = {small!r}")
    lines.append("class Model(nn.Module):")
    if init:
        lines += [f"    def __init__(self, {arguments}):", "        super(Model, self).__init__()"]
        lines += textwrap.indent(init, "        ").split("\n")
    lines.append(f"    def forward(self, {', '.join(names)}):")
    lines += textwrap.indent(forward, "        ").split("\n")
    lines.append(f"def get_inputs(): return [{', '.join(values)}]")
    lines.append(f"def get_init_inputs(): return [{arguments}]")
    return HEAD + "\n".join(lines) + "\n"


def randn(*sizes: str, suffix: str = "") -> str:
    return f"torch.randn({', '.join(sizes)}){suffix}"


R, C = {"R": (8192, 13)}, {"C": (4096, 70)}
RC = {**R, **C}
X = f"x={randn('R', 'C')}"
IMAGE = {"N": (32, 2), "D": (64, 3), "H": (112, 11), "W": (96, 14)}
HEADS = {"N": (8, 2), "H": (16, 3), "S": (2048, 37), "D": (64, 32)}
QKV = ";".join(f"{name}={randn('N', 'H', 'S', 'D')}" for name in "qkv")

CASES = {
    "log_softmax with a prologue": (
        task(RC, "return F.log_softmax(torch.relu(x) * 2 + b, dim=-1)", f"{X};b={randn('C')}"),
        "log_softmax/",
    ),
    "softmax over three axes": (
        task({**RC, "B": (4, 3)}, "return torch.softmax(x / C ** 0.5, dim=2)", f"x={randn('B', 'R', 'C')}"),
        "softmax/",
    ),
    "logsumexp": (task(RC, "return torch.logsumexp(x, dim=1)", X), "reduction/"),
    "maximum of a row": (task(RC, "return torch.max(x, dim=1)[0]", X), "reduction/"),
    "minimum, kept": (task(RC, "return x.amin(dim=1, keepdim=True)", X), "reduction/"),
    "variance of a row": (task(RC, "return x.var(dim=-1)", X), "reduction/"),
    "row divided by its length": (task(RC, "return x / torch.norm(x, p=2, dim=1, keepdim=True)", X), "normalisation/"),
    "layer norm over two axes": (
        task(
            {"N": (512, 5), "D": (16, 3), "H": (32, 7)},
            "return self.norm(x)",
            f"x={randn('N', 'D', 'H')}",
            "self.norm = nn.LayerNorm((D, H))\nself.D = D",
            "D, H",
        ),
        "layer_norm/",
    ),
    "rms norm in half precision": (
        task(
            RC,
            "return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)",
            f"x={randn('R', 'C', suffix='.half()')}",
            "self.weight = nn.Parameter(torch.randn(C).half())",
            "C",
        ),
        "rms_norm/",
    ),
    "mean over the first axis": (task(RC, "return x.mean(dim=0)", X), "reduction/"),
    "sum over a middle axis, scaled": (
        task({"B": (64, 3), **RC}, "return 0.5 * torch.sum(x * y, dim=1)", f"x={randn('B', 'R', 'C')};y={randn('C')}"),
        "reduction/",
    ),
    "maximum over the first axis": (task(RC, "return x.amax(dim=0, keepdim=True)", X), "reduction/"),
    "softmax over the first axis": (task(RC, "return torch.softmax(x, dim=0)", X), "softmax/"),
    "mean of everything": (task(RC, "return (x - y).square().mean()", f"{X};y={randn('R', 'C')}"), "loss/"),
    "hinge": (
        task(RC, "return torch.mean(torch.clamp(1 - x * y, min=0))", f"{X};y={randn('R', '1')}"),
        "loss/",
    ),
    "smooth l1": (task(RC, "return F.smooth_l1_loss(x, y)", f"{X};y={randn('R', 'C')}"), "loss/"),
    "sum of rows in half precision": (
        task(RC, "return x.sum(dim=1)", f"x={randn('R', 'C', suffix='.bfloat16()')}"),
        "reduction/",
    ),
    "cosine similarity loss, square": (
        task(
            {"R": (4096, 13), "C": (4096, 70)},
            "return torch.mean(1 - F.cosine_similarity(x, y, dim=1))",
            f"{X};y={randn('R', 'C')}",
        ),
        "loss/",
    ),
    "sum of a vector": (task(C, "return x.sum() * 2", f"x={randn('C')}"), "loss/"),
    "matrix times vector": (task(RC, "return x @ y", f"{X};y={randn('C', '1')}"), "reduction/"),
    "unreduced cross entropy": (
        task(RC, "return F.cross_entropy(x, i, reduction='none')", f"{X};i=torch.randint(0, C, (R,))"),
        "reduction/",
    ),
    "masked softmax": (
        task(RC, "return torch.softmax(x.masked_fill(m, -1e9), dim=-1)", f"{X};m=torch.rand(R, C) > 0.9"),
        "softmax/",
    ),
    "a number as input, a list as output": (task(RC, "return [x * s, x + 1]", f"{X};s=3.14"), "elementwise/"),
    "slices of a matrix": (
        task(RC, "return x[:, : C // 2] + x[:, C // 2 : 2 * (C // 2)] * 2", X),
        "elementwise/",
    ),
    "average pooling": (
        task(IMAGE, "return F.avg_pool2d(x, 3, stride=2, padding=1)", f"x={randn('N', 'D', 'H', 'W')}"),
        "pooling/",
    ),
    "average pooling without padding counted": (
        task(
            IMAGE,
            "return torch.relu(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))",
            f"x={randn('N', 'D', 'H', 'W')}",
        ),
        "pooling/",
    ),
    "maximum pooling in one dimension": (
        task(IMAGE, "return F.max_pool1d(x, 4, 3, 1, 2)", f"x={randn('N', 'D', 'W')}"),
        "pooling/",
    ),
    "global average": (task(IMAGE, "return x.mean(dim=[2, 3])", f"x={randn('N', 'D', 'H', 'W')}"), "reduction/"),
    "channel bias and activations": (
        task(
            IMAGE,
            "return F.leaky_relu(F.silu(x + self.bias) * torch.tanh(x), 0.1), F.softplus(x)",
            f"x={randn('N', 'D', 'H', 'W')}",
            "self.bias = nn.Parameter(torch.randn(D, 1, 1))",
            "D",
        ),
        "elementwise/",
    ),
    "outer sum": (task(RC, "return a[:, None] + b[None, :]", f"a={randn('R')};b={randn('C')}"), "elementwise/"),
    "many activations": (
        task(
            RC,
            "y = F.elu(x) + F.hardtanh(x) + F.mish(x) + F.selu(x) + F.hardswish(x) + F.softsign(x)\n"
            "z = torch.where(x > 0, y, torch.exp(-x.abs())) ** 3 + torch.rsqrt(x * x + 1) + torch.log1p(x.abs())\n"
            "return z + (x.abs() + 1) ** 1.7 + torch.sign(x) + torch.expm1(x) + F.gelu(x) + (x > 0.5).float()",
            X,
        ),
        "elementwise/",
    ),
    "mixed types": (
        task(RC, "return x * m + i, x.half()", f"{X};m=torch.rand(R, C) > 0.5;i=torch.randint(-5, 5, (R, C))"),
        "elementwise/",
    ),
    "product, bias, sigmoid and scale": (
        task(
            {"M": (4096, 37), "K": (2048, 50), "N": (4096, 45)},
            "return torch.sigmoid(self.linear(x)) * 3.0 - r",
            f"x={randn('M', 'K')};r={randn('M', '1')}",
            "self.linear = nn.Linear(K, N)",
            "K, N",
        ),
        "matmul/",
    ),
    "product in half precision": (
        task(
            {"M": (4096, 37), "K": (2048, 48), "N": (4096, 40)},
            "return x @ y.T",
            f"x={randn('M', 'K', suffix='.half()')};y={randn('N', 'K', suffix='.half()')}",
        ),
        "matmul/",
    ),
    "product of transposed factors": (
        task(
            {"M": (4096, 37), "K": (2048, 50), "N": (4096, 45)},
            "return (x.T @ y.T).relu()",
            f"x={randn('K', 'M')};y={randn('N', 'K')}",
        ),
        "matmul/",
    ),
    "batched product": (
        task(
            {"B": (16, 3), "M": (512, 37), "K": (256, 50), "N": (512, 45)},
            "return torch.bmm(x, y) + x.shape[2]",
            f"x={randn('B', 'M', 'K')};y={randn('B', 'K', 'N')}",
        ),
        "matmul/",
    ),
    "linear layer over three axes": (
        task(
            {"B": (16, 3), "M": (512, 11), "K": (256, 50), "N": (512, 45)},
            "return F.gelu(self.linear(x))",
            f"x={randn('B', 'M', 'K')}",
            "self.linear = nn.Linear(K, N)",
            "K, N",
        ),
        "matmul/",
    ),
    "attention of many heads": (task(HEADS, "return F.scaled_dot_product_attention(q, k, v)", QKV), "attention/"),
    "causal attention": (
        task(HEADS, "return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)", QKV),
        "attention/",
    ),
    "attention of many heads, spelled out": (
        task(HEADS, "s = q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5)\nreturn F.softmax(s, dim=-1) @ v", QKV),
        "attention/",
    ),
    "arguments with the names of sizes": (
        task(
            {"S": (1024, 37), "D": (64, 32)},
            "rows = queries @ keys.T * 0.125\nreturn torch.softmax(rows, dim=-1) @ width",
            ";".join(f"{name}={randn('S', 'D')}" for name in ("queries", "keys", "width")),
        ),
        "attention/",
    ),
    "variables with the names of functions": (
        task(RC, "max = x + count\ntanh = torch.tanh(max)\nreturn tanh * max", f"{X};count={randn('C')}"),
        "elementwise/",
    ),
    "attention in half precision": (
        task(
            HEADS,
            "return F.scaled_dot_product_attention(q, k, v)",
            ";".join(f"{name}={randn('N', 'H', 'S', 'D', suffix='.half()')}" for name in "qkv"),
        ),
        "attention/",
    ),
}


def small_of(source: str) -> dict[str, int]:
    namespace: dict[str, object] = {}
    exec(source, namespace)
    small = namespace["SMALL"]
    assert isinstance(small, dict)
    return small


@pytest.fixture(scope="module")
def lowered() -> dict[str, tuple[list[Structure], list[str]]]:
    return {name: structures(source, {}, "sm_90") for name, (source, _) in CASES.items()}


@pytest.fixture(scope="module")
def answers(lowered: dict[str, tuple[list[Structure], list[str]]]) -> dict[str, dict[str, str]]:
    requests = [
        Request(source, with_neighbours(lowered[name][0], 0), small_of(source)) for name, (source, _) in CASES.items()
    ]
    return dict(zip(CASES, run_worker("interpret", requests), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_reference_of_this_form_is_lowered_and_right(
    name: str, lowered: dict[str, tuple[list[Structure], list[str]]], answers: dict[str, dict[str, str]]
) -> None:
    found, reasons = lowered[name]
    assert found, reasons
    assert reasons == []
    assert all(structure.name.startswith(CASES[name][1]) for structure in found)
    assert {structure: fault for structure, fault in answers[name].items() if fault} == {}


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return torch.cumsum(x, dim=1)", "No template knows the operation cumsum."),
        ("return torch.argmax(x, dim=1)", "No template knows the operation argmax."),
        ("return (x @ x.T) @ x", "several matrix products"),
        ("return x.nonzero()", "No template knows the operation nonzero."),
        ("return x.unknown()", "cannot be traced"),
        ("return x", "returns an input"),
        ("return x / torch.norm(x)", "needs a reduction over everything first"),
        ("return {'a': x + 1}", "something else than a tensor"),
        ("x += 1\nreturn x * 2", "in place"),
    ],
)
def test_a_task_that_no_template_fits_says_why(forward: str, reason: str) -> None:
    found, reasons = structures(task(RC, forward, X), {}, "sm_90")
    assert found == []
    assert any(reason in sentence for sentence in reasons), reasons
    assert all(sentence.endswith(".") for sentence in reasons), reasons


def test_a_task_without_a_small_form_keeps_its_relations_to_sizes() -> None:
    source = task(RC, "a, b = x.chunk(2, dim=-1)\nreturn a * b", X).replace("SMALL = ", "UNUSED = ")
    found, reasons = structures(source, {}, "sm_90")
    assert found, reasons
    modules = {structure.name: structure.render(structure.defaults) for structure in found}
    [answers] = run_worker("interpret", [Request(source, modules, {"R": 5, "C": 44})])
    assert set(answers.values()) == {""}, answers


def test_overrides_replace_the_constants_of_the_timed_form() -> None:
    source = task(RC, "return torch.softmax(x, dim=-1)", X)
    usual, _ = structures(source, {}, "sm_90")
    wide, _ = structures(source, {"R": 64, "C": 1 << 20}, "sm_90")
    assert "softmax/one_pass" in {structure.name for structure in usual}
    assert "softmax/one_pass" not in {structure.name for structure in wide}
