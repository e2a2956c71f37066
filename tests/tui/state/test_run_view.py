from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.records import RunState
from engine.store.reader import Reader, RunOverview
from tests.tui.grove import NOW, Grove
from tui.poller import DatabaseSources
from tui.state.chart import Progress, chart_rows
from tui.state.log import evaluation_lines, wrapped
from tui.state.run_view import RunUpdate, RunView, Segment, fit
from tui.state.words import ASCII, UNICODE


def view_of(grove: Grove, db: Path) -> RunView:
    view = RunView(grove.run)
    update = DatabaseSources().run(db, grove.run).poll()
    assert update is not None
    view.fold_in(update)
    return view


def status_text(view: RunView, now: float = NOW) -> str:
    return " | ".join(segment.text for segment in view.status(now, UNICODE))


def overview_of(view: RunView) -> RunOverview:
    assert view.overview is not None
    return view.overview


def test_the_status_line_says_how_the_run_does(grove: Grove, db: Path) -> None:
    view = view_of(grove, db)
    assert status_text(view) == (
        "1 softmax | running | 4:07 | 7/40 | about 19 min left | 5 correct | ★ 1.88x #6 | ? 2 waiting"
        " | CPU, modelled sm_90 | engine 2 s"
    )


def test_a_silent_engine_is_warned_of_after_ten_seconds(grove: Grove, db: Path) -> None:
    view = view_of(grove, db)
    assert "engine 10 s" in status_text(view, NOW + 8)
    assert "engine silent for 13 s" in status_text(view, NOW + 11)
    assert "silent" in view.warning(NOW + 11)
    assert view.warning(NOW) == ""


def test_a_run_without_an_engine_says_how_to_go_on(grove: Grove, db: Path) -> None:
    grove.store.release()
    view = view_of(grove, db)
    assert "no engine (p)" in status_text(view)
    assert view.warning(NOW) == "no engine works on this run; p resumes it"
    ended = replace(overview_of(view).run, state=RunState.DONE, ended_by="budget")
    view.fold_in(RunUpdate(replace(overview_of(view), run=ended)))
    assert "ended: budget" in status_text(view)
    assert view.warning(NOW) == ""


def test_the_least_important_parts_go_first() -> None:
    parts = [Segment("run"), Segment("state"), Segment("device", order=7), Segment("best", order=1)]
    assert [part.text for part in fit(parts, 100)] == ["run", "state", "device", "best"]
    assert [part.text for part in fit(parts, 18)] == ["run", "state", "best"]
    assert [part.text for part in fit(parts, 1)] == ["run", "state"]


def test_pruning_asks_with_the_size_of_the_subtree(grove: Grove, db: Path) -> None:
    view = view_of(grove, db)
    assert view.prune_question(5) == "Prune 5 and what grew from it: 7 in all, 3 of them not judged yet?"
    assert view.prune_question(4) == "Prune 4, which has nothing below?"
    assert view.prune_question(9) == "Prune 9, which has nothing below and is not judged yet?"


def test_the_log_leaves_out_small_steps_and_a_candidate_keeps_its_own(grove: Grove, db: Path) -> None:
    view = view_of(grove, db)
    assert not any(line.text in ("queued", "evaluating") for line in view.log.lines)
    assert [line.text for line in view.log.of(5)] == [
        "structural step at the root, asked of compiler",
        "queued",
        "evaluating",
        "correct, 0.87x in 67.1 us",
    ]
    assert any("new best: 6" in line.text for line in view.log.lines)


def test_the_judges_words_on_a_candidate_come_with_its_failed_checks_and_log(grove: Grove, db: Path) -> None:
    with Reader(db) as reader:
        lines = [line.text for line in evaluation_lines(reader.evaluation(grove.run, 4))]
    assert lines[:2] == ["at 12:24: arange's range must be a power of two", "    offsets = tl.arange(0, 768)"]
    assert "check unwritten_memory failed: row 3 keeps the poison" in lines
    assert lines[-1] == "[/b] is no tag here"


def test_log_lines_wrap_at_words_under_their_text(grove: Grove, db: Path) -> None:
    line = next(line for line in view_of(grove, db).log.lines if "power of two" in line.text)
    rows = ["".join(text for text, _ in row) for row in wrapped(line, 40, None)]
    assert len(rows) > 1
    assert all(len(row) <= 40 for row in rows)
    assert rows[1].startswith(" " * 14)


def test_the_chart_shows_the_best_over_the_budget(grove: Grove, db: Path) -> None:
    view = view_of(grove, db)
    assert view.progress.best == (1.21, 1.42, 1.42, 1.42, 1.42, 1.88, 1.88)
    rows = ["".join(text for text, _ in row) for row in chart_rows(view.progress, 48, 8, 40, ASCII)]
    assert len(rows) == 8
    assert rows[0].lstrip().startswith("1.88x |")
    assert any(row.startswith(" 1.00x |") for row in rows)
    assert all(len(row) <= 48 for row in rows)
    assert chart_rows(Progress(), 48, 8, 40, ASCII)[0][0][0].strip() == "no correct candidate yet"
