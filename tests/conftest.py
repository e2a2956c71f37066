"""Shared by all tests: those that need a GPU or a model are skipped where there is none, the others never use it."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import settings

from tests.engine.judging.corpus import OUTCOME, table

# Runs that tests start are settled by this; tests that need a GPU name it.
os.environ["KERNELGROVE_DEVICE"] = "cpu"

# No deadline, since the machine may be busy; the same examples each time, since a test must not fail by chance.
settings.register_profile("ours", deadline=None, derandomize=True, database=None)
settings.load_profile("ours")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("llm") and not os.environ.get("KERNELGROVE_LLM_PYTHON"):
            item.add_marker(pytest.mark.skip(reason="needs a model server; make test-llm sets one up"))
    if shutil.which("nvidia-smi"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how the corpus of candidates went, where any of it was judged."""
    reports = [report for status in ("passed", "failed") for report in terminalreporter.stats.get(status, [])]
    outcomes = [value for report in reports for name, value in report.user_properties if name == OUTCOME]
    for where in dict.fromkeys(outcome[0] for outcome in outcomes):
        terminalreporter.section(f"corpus of candidates, {where}")
        for row in table([(group, right) for place, group, right in outcomes if place == where]):
            terminalreporter.write_line(row)
