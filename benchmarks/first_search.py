"""How soon `demo` has judged its first candidate and its first twelve, and how much the best gains.

Run: python benchmarks/first_search.py [TASK]
Times count from the start of a fresh `kernelgrove demo` process, installation not included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.events import CandidateEvaluated, CandidateMoved
from engine.records import CandidateState
from engine.store.reader import Reader

CANDIDATES = 12


def main() -> None:
    task = sys.argv[1] if len(sys.argv) > 1 else "softmax"
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "runs.db"
        program = (
            f"from tui.commands import main; main(['--db', {str(db)!r}, 'demo', '--task', {task!r}, '--headless',"
            f" '--budget', '{CANDIDATES}'])"
        )
        start = time.time()
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
        whole = time.time() - start
        with Reader(db) as reader:
            judged = [
                recorded.at - start
                for recorded in reader.events(1, limit=100_000)
                if isinstance(recorded.event, CandidateEvaluated)
                or (isinstance(recorded.event, CandidateMoved) and recorded.event.state == CandidateState.DUPLICATE)
            ]
            overview = reader.run(1)
            candidates = [c for c in reader.candidates(1) if c.time_us is not None]
    assert overview is not None
    first, best = candidates[0], min(c.time_us for c in candidates if c.time_us)
    assert first.time_us is not None
    print(f"first candidate judged after {judged[0]:6.1f} s")
    print(f"{len(judged)} candidates judged after {judged[-1]:6.1f} s ({whole:.1f} s to the end of the command)")
    print(f"correct {overview.correct}; first {first.time_us:.1f} us, best {best:.1f} us: {first.time_us / best:.2f}x")


if __name__ == "__main__":
    main()
