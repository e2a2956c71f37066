"""Makes the README's picture from the running program: a real search, then the real cockpit on it.

Run: python docs/make_screenshot.py
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path

from engine.api import start_run
from engine.settings import RunSettings
from engine.store.reader import Reader
from engine.tasks.catalogue import find_task
from tui.app import Cockpit

TASK = "residual_rms_norm"
SIZE = (170, 44)
PICTURE = Path(__file__).with_name("cockpit.svg")


async def main() -> None:
    """Searches, opens the cockpit on the best candidate, and saves what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "runs.db"
        run = start_run(db, find_task(TASK), RunSettings(budget=24, seed=4))
        while True:
            await asyncio.sleep(1)
            with Reader(db) as reader:
                overview = reader.run(run)
            if overview is not None and overview.run.state.ended:
                break
        app = Cockpit(db, run=run)
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(2)
            await pilot.press("b")
            await pilot.pause(2)
            # Without the fonts that the export would fetch from elsewhere; the reader's own monospace serves.
            PICTURE.write_text(re.sub(r"@font-face\s*{[^}]*}\s*", "", app.export_screenshot()))
    print(f"saved {PICTURE}")


if __name__ == "__main__":
    asyncio.run(main())
