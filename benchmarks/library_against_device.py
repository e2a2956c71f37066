"""How the modelled time of PyTorch's own operations compares with the time measured on an NVIDIA GPU.

Run on a machine with a GPU: python benchmarks/library_against_device.py [--arch sm_90]. The ratios are where
`LIBRARY_PASSES` in engine/judging/modelled_time.py comes from.
"""

from __future__ import annotations

import argparse
import statistics
import types
from typing import Any

import torch
from torch.nn import functional as F

from engine.judging.modelled_time import reference_times_us
from engine.judging.workers import large_form

CALLS = 30
FLUSH_BYTES = 256 << 20
WIDE, IMAGE, VOLUME = (8192, 8192), (64, 64, 112, 112), (16, 32, 24, 48, 48)

OPERATIONS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "copy": (lambda x: x.clone(), (WIDE,)),
    "add": (lambda x, y: x + y, (WIDE, WIDE)),
    "add a row": (lambda x, y: x + y, (WIDE, (8192,))),
    "half columns": (lambda x: x[:, :4096] * x[:, 4096:], (WIDE,)),
    "transposed copy": (lambda x: x.t().contiguous(), (WIDE,)),
    "gelu": (F.gelu, (WIDE,)),
    "tanh": (torch.tanh, (WIDE,)),
    "silu": (F.silu, (WIDE,)),
    "pow": (lambda x: x**2, (WIDE,)),
    "softmax": (lambda x: torch.softmax(x, 1), (WIDE,)),
    "softmax 1024": (lambda x: torch.softmax(x, 1), ((65536, 1024),)),
    "softmax 32768": (lambda x: torch.softmax(x, 1), ((2048, 32768),)),
    "softmax channels": (lambda x: torch.softmax(x, 1), (IMAGE,)),
    "log_softmax": (lambda x: torch.log_softmax(x, 1), (WIDE,)),
    "log_softmax 32768": (lambda x: torch.log_softmax(x, 1), ((2048, 32768),)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), (WIDE,)),
    "logsumexp channels": (lambda x: torch.logsumexp(x, 1), (IMAGE,)),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[1:]), (WIDE,)),
    "layer_norm 1024": (lambda x: F.layer_norm(x, x.shape[1:]), ((65536, 1024),)),
    "layer_norm image": (lambda x: F.layer_norm(x, x.shape[1:]), (IMAGE,)),
    "group_norm": (lambda x: F.group_norm(x, 8), (IMAGE,)),
    "batch_norm training": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    "instance_norm": (lambda x: F.instance_norm(x), (IMAGE,)),
    "sum rows": (lambda x: x.sum(1), (WIDE,)),
    "sum columns": (lambda x: x.sum(0), (WIDE,)),
    "sum all": (lambda x: x.sum(), (WIDE,)),
    "mean channels": (lambda x: x.mean(1), (IMAGE,)),
    "max rows": (lambda x: x.max(1), (WIDE,)),
    "amax rows": (lambda x: x.amax(1), (WIDE,)),
    "argmax rows": (lambda x: x.argmax(1), (WIDE,)),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), (WIDE,)),
    "cumsum rows": (lambda x: x.cumsum(1), (WIDE,)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "max_pool2d 3 by 1": (lambda x: F.max_pool2d(x, 3, 1, 1), (IMAGE,)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (VOLUME,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (VOLUME,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
    "matmul": (lambda x, y: x @ y, ((2048, 4096), (4096, 4096))),
    "bmm": (torch.bmm, ((64, 1024, 256), (64, 256, 1024))),
    "conv2d": (F.conv2d, ((32, 64, 56, 56), (128, 64, 3, 3))),
    "conv3d": (F.conv3d, (VOLUME, (32, 32, 3, 3, 3))),
    "conv_transpose2d": (F.conv_transpose2d, ((32, 64, 56, 56), (64, 64, 3, 3))),
    "conv_transpose3d": (F.conv_transpose3d, (VOLUME, (32, 32, 3, 3, 3))),
    "depthwise conv2d": (lambda x, w: F.conv2d(x, w, groups=64), (IMAGE, (64, 1, 3, 3))),
}


def as_task(operation: Any, shapes: tuple[tuple[int, ...], ...]) -> types.ModuleType:
    """The operation as a task's module, which the model reads."""

    class Model(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return operation(*inputs)

    module = types.ModuleType("task")
    module.Model = Model  # type: ignore[attr-defined]
    module.get_inputs = lambda: [torch.rand(shape) for shape in shapes]  # type: ignore[attr-defined]
    return module


def measured_us(operation: Any, inputs: list[torch.Tensor], flush: torch.Tensor) -> float:
    event: Any = torch.cuda.Event
    times = []
    for _ in range(CALLS + 3):
        flush.zero_()
        before, after = event(enable_timing=True), event(enable_timing=True)
        before.record()
        operation(*inputs)
        after.record()
        torch.cuda.synchronize()
        times.append(float(before.elapsed_time(after)) * 1e3)
    return statistics.median(times[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="sm_90")
    arch = parser.parse_args().arch
    torch.backends.cudnn.allow_tf32 = False
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    print(f"{'operation':22}{'measured us':>12}{'modelled us':>12}{'ratio':>7}  calls")
    for name, (operation, shapes) in OPERATIONS.items():
        form = large_form.describe(as_task(operation, shapes), None)
        if form.cost is None:
            print(f"{name:22} {form.problem}")
            continue
        modelled = reference_times_us(form.cost["calls"], form.cost["bound"], arch)["eager"]
        with torch.no_grad():
            found = measured_us(operation, [torch.rand(shape, device="cuda") for shape in shapes], flush)
        calls = " ".join(call["op"] for call in form.cost["calls"])
        print(f"{name:22}{found:12.1f}{modelled:12.1f}{modelled / found:7.2f}  {calls}", flush=True)


if __name__ == "__main__":
    main()
