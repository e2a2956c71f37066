"""The seams of TorchInductor that the lowering rests on, for the installed torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.engine.lowering.conftest import ROOT


def in_lowering_process(program: str) -> dict[str, object]:
    """Runs a program in a process that pretends to have a GPU; the program prints one JSON object."""
    preamble = """
        import json, resource, torch
        from engine.lowering.inductor import capture
        capture.pretend_device("sm_90")
        sizes = capture.SymbolicSizes()
        rows, columns = sizes.size("rows", 1 << 20, 16), sizes.size("columns", 8192, 16)
        with sizes.mode:
            x = torch.empty(rows, columns, device="cuda")
        arguments = [rows, columns, x]
        softmax = lambda rows, columns, x: [torch.softmax(x, -1)]
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(preamble) + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_32_gigabytes_are_lowered_without_memory_and_sizes_stay_symbols() -> None:
    result = in_lowering_process("""
        graph = capture.trace(softmax, arguments, sizes)
        text = capture.lower(graph, arguments, sizes, capture.Settings()).text
        print(json.dumps({
            "fixed": sizes.fixed(),
            "broken": sizes.broken_guards({"rows": 19, "columns": 300}),
            "kernels": text.count("@triton.jit"),
            "masks": text.count("xindex < xnumel"),
            "target": "cc=90" in text,
            "baked": "8192" in text.partition("def triton_")[2].partition("'''")[0],
            "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }))
    """)
    assert result["fixed"] == {} and result["broken"] == [] and result["target"] is True
    assert result["kernels"] == result["masks"] == 1
    assert result["baked"] is False
    assert isinstance(result["gigabytes"], float) and result["gigabytes"] < 2


@pytest.mark.parametrize(
    ("settings", "sign"),
    [
        ("persistent=True", "persistent_reduction"),
        ("persistent=False", "for r0_offset in"),
        ("config={'max_fusion_size': 1}", "triton_poi_fused"),
    ],
)
def test_settings_change_the_structure(settings: str, sign: str) -> None:
    result = in_lowering_process(f"""
        graph = capture.trace(softmax, arguments, sizes)
        text = capture.lower(graph, arguments, sizes, capture.Settings({settings})).text
        print(json.dumps({{"found": {sign!r} in text}}))
    """)
    assert result["found"] is True


def test_splits_and_matrix_products_can_be_asked_for() -> None:
    result = in_lowering_process("""
        total = lambda rows, columns, x: [x.sum()]
        product = lambda rows, columns, x: [x.t() @ x]
        split = capture.Settings(split=16)
        matmul = capture.Settings(config={"triton.native_matmul": True})
        texts = [
            capture.lower(capture.trace(function, arguments, sizes), arguments, sizes, settings).text
            for function, settings in ((total, split), (product, matmul))
        ]
        print(json.dumps({"kernels": texts[0].count("@triton.jit"), "dot": "tl.dot(" in texts[1]}))
    """)
    assert result == {"kernels": 2, "dot": True}


def test_a_size_that_tracing_fixes_is_reported_by_name() -> None:
    result = in_lowering_process("""
        capture.trace(lambda rows, columns, x: [x[:, : int(columns)] * 2], arguments, sizes)
        print(json.dumps(sizes.fixed()))
    """)
    assert result == {"columns": "8192"}
