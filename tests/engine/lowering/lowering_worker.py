"""Lowers tasks in a process of its own: `python lowering_worker.py FOLDER TASK_FILE...`.

Writes the text of each structure with default parameters to FOLDER/TASK/STRUCTURE.py and, to FOLDER/report.json, the
reasons, how many neighbours there are, and those whose text is not valid Python or names Inductor.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from engine.lowering.inductor import structures
from engine.lowering.neighbours import neighbours
from engine.lowering.structure import Structure


def main(folder: Path, files: list[Path]) -> None:
    report: dict[str, Any] = {}
    for file in files:
        found, reasons = structures(file.read_text(), {}, "sm_90")
        target = folder / file.stem
        target.mkdir(parents=True, exist_ok=True)
        entry: dict[str, Any] = {"reasons": reasons, "structures": {}}
        for structure in found:
            (target / f"{structure.name.partition('/')[2]}.py").write_text(structure.render(structure.defaults))
            entry["structures"][structure.name] = neighbours_report(structure)
        report[file.stem] = entry
    (folder / "report.json").write_text(json.dumps(report))


def neighbours_report(structure: Structure) -> dict[str, Any]:
    texts: set[str] = set()
    refused: list[str] = []
    found = neighbours(structure, structure.defaults)
    for neighbour in found:
        try:
            text = structure.render(neighbour.parameters)
        except ValueError as error:
            refused.append(str(error))
            continue
        ast.parse(text)
        assert "torch._inductor" not in text and "triton_helpers" not in text and "libdevice" not in text
        texts.add(text)
    return {"neighbours": len(found), "texts": len(texts), "refused": refused}


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
