"""Shared by all tests: GPU tests are skipped where there is no GPU."""

from __future__ import annotations

import shutil

import pytest

from tests.engine.judging.corpus import OUTCOME, table


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("nvidia-smi"):
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how the corpus of candidates went, where any of it was judged."""
    reports = [report for status in ("passed", "failed") for report in terminalreporter.stats.get(status, [])]
    outcomes = [value for report in reports for name, value in report.user_properties if name == OUTCOME]
    if outcomes:
        terminalreporter.section("corpus of candidates")
        for row in table(outcomes):
            terminalreporter.write_line(row)
