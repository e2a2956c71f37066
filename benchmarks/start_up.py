"""How long `import engine` and `kernelgrove --help` take in fresh processes, against a bare interpreter.

Run: python benchmarks/start_up.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 10
PROGRAMS = {
    "bare interpreter": "pass",
    "import engine": "import engine, engine.records, engine.events",
    "kernelgrove --help": "from tui.commands import main; main(['--help'])",
    "import engine.api": "import engine.api",
}


def seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(ROUNDS):
        for name, program in PROGRAMS.items():
            times[name].append(seconds(program))
    bare = statistics.median(times["bare interpreter"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<20} {median * 1e3:7.0f} ms median, {median / bare:5.1f}x the bare interpreter")
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, engine; print([m for m in ('torch', 'textual') if m in sys.modules])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    print(f"heavy modules loaded by import engine: {loaded}")


if __name__ == "__main__":
    main()
