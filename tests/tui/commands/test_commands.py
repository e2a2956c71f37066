"""The commands that need no engine: what they print, their exit codes, and one sentence for each error."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from engine.loop.process import judge_settings
from engine.records import BaselineKernel, CandidateState, CommandKind, Evaluation, RunState, Task, Verdict
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import find_task
from tests.engine.store.conftest import grow
from tests.tui.commands.conftest import Call


@pytest.fixture
def run(db: Path) -> int:
    """A finished run with three candidates, the second of them a child of the first."""
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings(budget=5))
    store = RunStore.take(db, run)
    first = grow(store, "one\n", time_us=10.0)
    grow(store, "two\n", first, time_us=5.0)
    grow(store, "three\n", gated=True)
    store.release()
    return run


def test_tasks_are_listed_with_their_families(call: Call) -> None:
    outcome = call("tasks", "--json")
    tasks = json.loads(outcome.out)
    assert outcome.code == 0
    assert len(tasks) >= 8
    assert all(set(task) == {"name", "family", "format", "path"} for task in tasks)
    assert "kernelbench" in {task["format"] for task in tasks}


def test_runs_of_a_database_that_is_not_there_yet(call: Call) -> None:
    outcome = call("runs")
    assert (outcome.code, outcome.out) == (0, "no runs yet; start one with: kernelgrove demo\n")


def test_status_as_json_has_what_scripts_need(call: Call, run: int) -> None:
    document = json.loads(call("status", str(run), "--json").out)
    assert document["run"] == run
    assert document["candidates"] == 3
    assert document["correct"] == 2
    assert document["best"]["candidate"] == 2
    assert Path(document["best"]["source_path"]).read_text() == "two\n"
    assert document["engine"] is None


def test_status_warns_of_a_task_that_cannot_tell_right_from_wrong(call: Call, db: Path) -> None:
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings(budget=5))
    store = RunStore.take(db, run)
    assert store.audit() is None
    found = {"verdict": "degenerate", "findings": ["a wrong answer is exactly right: zeros", "and more"]}
    store.task_opened("cpu", "modelled", {"kind": "modelled", "cases": [], "audit": found}, {})
    kept = store.audit()
    assert kept is not None and kept.to_json() == found
    store.release()
    assert "the task is degenerate, so that speedups on it prove little: a wrong answer is" in call("status").out
    assert json.loads(call("status", "--json").out)["audit"] == found
    with Reader(db) as reader:
        assert reader.audit(find_task("softmax"), None) == kept
        assert reader.audit(find_task("softmax"), "bfloat16") is None, "another dtype is another question"


def test_show_prints_source_diff_and_log(call: Call, run: int) -> None:
    assert call("show", str(run), "1", "--source").out == "one\n"
    assert "-one\n+two" in call("show", str(run), "2", "--diff", "1").out
    assert call("show", str(run), "2", "--diff").out == call("show", str(run), "2", "--diff", "1").out
    assert "grew from the root" in call("show", str(run), "1", "--diff").err
    assert call("show", str(run), "1", "--log").out == "log"
    assert "correct" in call("show", str(run), "1").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "1", "9"), "run 1 has no candidate 9"),
        (("status", "7"), "there is no run 7"),
        (("pause", "7"), "there is no run 7"),
        (("resume", "7"), "there is no run 7"),
        (("prune", "1", "9"), "run 1 has no candidate 9"),
        (("retract", "1", "5"), "there is no command 5"),
        (("run", "sofmax", "--detach"), "did you mean softmax"),
        (("run", "nowhere.py", "--detach"), "nowhere.py cannot be read"),
        (("run", "softmax", "--detach", "--device", "tpu"), "the setting device is wrong"),
        (("run", "softmax", "--detach", "--allow", "fast"), "the setting allow"),
        (("run", "softmax", "--detach", "--policy", "uct"), "there is no policy 'uct'; there are adaexplore, single"),
        (("run", "softmax", "--detach", "--arch", "sm_10"), "no figures for the architecture 'sm_10'"),
        (("run", "softmax", "--detach", "--until", "25:00"), "the setting until is wrong"),
        (("run", "softmax", "--detach", "--target", "fast"), "the setting target is wrong"),
        (("run", "softmax", "--detach", "--max-time", "long"), "the setting max_time is wrong"),
        (("force", "local", "1", "9"), "run 1 has no candidate 9"),
        (("hint", "1", "9", "use shared memory"), "run 1 has no candidate 9"),
        (("hint", "7", "use shared memory"), "there is no run 7"),
        (("run", "softmax", "--detach", "--baseline", "absent.py"), "the baseline absent.py cannot be read"),
        (("run", "softmax", "--detach", "--max-memory", "plenty"), "the setting max_memory is wrong"),
        (("run", "softmax", "--detach", "--no-regress", "-1"), "the setting no_regress is wrong"),
        (("run", "softmax", "--detach", "--time", "warp"), "'warp' is not one of"),
        (("eval", "softmax", "absent.py", "--dtype", "float64"), "'float64' is not one of"),
        (("attach", "1"), "the cockpit needs a terminal"),
        ((), "the cockpit needs a terminal"),
        (("run", "softmax", "--json"), "--json needs --detach or --headless"),
        (("skills", "show", "nothing"), "nothing"),
        (("nonsense",), "No such command"),
        (("eval", "softmax", "absent.py"), "absent.py cannot be read"),
    ],
)
def test_errors_are_one_sentence_with_exit_code_2(
    call: Call, run: int, arguments: tuple[str, ...], sentence: str
) -> None:
    outcome = call(*arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err


def test_a_database_from_the_future_exits_with_3(call: Call, db: Path, run: int) -> None:
    connection = sqlite3.connect(db)
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('kernelgrove', 'm999', '')"
    )
    connection.commit()
    connection.close()
    outcome = call("runs")
    assert outcome.code == 3
    assert "newer Kernelgrove" in outcome.err


def test_flags_apply_at_once_without_an_engine(call: Call, db: Path, run: int) -> None:
    assert "pruned 1 and the 1 that grew from it" in call("prune", str(run), "1").out
    assert "restored" in call("restore", str(run), "1").out
    refused = call("restore", str(run), "1")
    assert (refused.code, refused.err) == (2, "candidate 1 is not pruned\n")


def test_approval_without_an_engine_waits_and_says_so(call: Call, db: Path, run: int) -> None:
    outcome = call("approve", str(run), "3")
    assert f"kernelgrove resume {run}" in outcome.out
    with Reader(db) as reader:
        (command,) = reader.commands(run)
        assert command.kind is CommandKind.APPROVE
        assert reader.candidates(run, [3])[0].state is CandidateState.AWAITING_APPROVAL
    assert "took back" in call("retract", str(run), str(command.id)).out


def test_a_persons_kernel_is_queued_and_a_binary_file_refused(call: Call, db: Path, run: int, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class ModelNew: ...\n")
    assert f"candidate 4 of run {run} is queued for the judge; no engine" in call("add", str(run), "2", str(mine)).out
    mine.write_bytes(b"\xff\xfe\x00")
    refused = call("add", str(run), "2", str(mine))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    with Reader(db) as reader:
        assert len(reader.candidates(run)) == 4


def test_what_a_candidate_made_the_judge_say_cannot_steer_the_terminal(call: Call, db: Path) -> None:
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings())
    store = RunStore.take(db, run)
    number = grow(store, "source", judge=False)
    store.claim(number)
    store.evaluated(number, Evaluation(Verdict.RUNTIME_ERROR, "load", "\x1b[2J"), None, 0.05)
    store.release()
    assert "\x1b" not in call("show", str(run), str(number)).out + call("status", str(run)).out


def test_an_interruption_exits_with_130_and_says_how_to_go_on(
    call: Call, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_run(db: Path, task: Task, settings: RunSettings, name: str, start: str | None) -> int:
        with Control(db) as control:
            return control.create_run(task, settings, name)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.api.start_run", start_run)
    monkeypatch.setattr("tui.commands.progress.follow", interrupted)
    outcome = call("run", "softmax", "--headless")
    assert outcome.code == 130
    assert "kernelgrove attach 1" in outcome.err


def test_a_bad_settings_file_is_named(call: Call, tmp_path: Path) -> None:
    (tmp_path / "kernelgrove.toml").write_text("[run]\nbudget = 0\n")
    outcome = call("runs")
    assert outcome.code == 2
    assert "run.budget" in outcome.err


def test_layers_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.settings import load_settings

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user = tmp_path / "config" / "kernelgrove" / "kernelgrove.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[run]\nbudget = 7\nworkers = 2\nseed = 5\n")
    (tmp_path / "kernelgrove.toml").write_text("[run]\nbudget = 8\nworkers = 3\n")
    monkeypatch.setenv("KERNELGROVE_RUN__BUDGET", "9")
    settings = load_settings(None, {"db": tmp_path / "other.db"})
    assert (settings.run.budget, settings.run.workers, settings.run.seed) == (9, 3, 5)
    assert settings.db == tmp_path / "other.db"


def test_a_run_keeps_how_it_is_judged_and_its_own_baselines(
    call: Call, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.api.launch", lambda db, run: None)
    (tmp_path / "mine.py").write_text("class ModelNew: ...\n")
    options = "--time graph --cache warm --dtype bfloat16 --no-regress 5 --max-memory 2G --baseline mine.py"
    assert call("run", "softmax", "--detach", *options.split()).code == 0
    (tmp_path / "mine.py").write_text("changed since\n")
    with Reader(db) as reader:
        overview = reader.run(1)
    assert overview is not None
    stored = RunSettings.model_validate(overview.run.settings)
    assert (stored.time, stored.cache, stored.dtype, stored.no_regress) == ("graph", "warm", "bfloat16", 5.0)
    assert judge_settings(stored, 1).max_memory_bytes == stored.max_memory == 2 << 30
    words = "numerics reduced, time graph, cache warm, dtype bfloat16, no regress 5%, baseline mine.py"
    assert words in call("status", "1").out
    assert json.loads(call("status", "1", "--json").out)["settings"]["time"] == "graph"
    store = RunStore.take(db, 1)
    assert store.own_baselines() == (BaselineKernel("mine.py", "class ModelNew: ...\n"),)
    store.release()


def test_a_skill_is_added_edited_switched_and_a_stale_edit_refused(call: Call, db: Path, tmp_path: Path) -> None:
    text = tmp_path / "rule.toml"
    shown = call("skills", "show", "arange-power-of-two").out
    lines = [line for line in shown.splitlines() if not line.startswith(("# revision", "revision"))]
    text.write_text("\n".join(lines).replace("arange-power-of-two", "my-rule") + "\n")
    assert call("skills", "add", str(text)).code == 0
    listed = {skill["name"]: skill for skill in json.loads(call("skills", "list", "--json").out)}
    assert listed["my-rule"]["revision"] == 1
    assert call("skills", "off", "my-rule").code == 0
    stale = tmp_path / "stale.toml"
    stale.write_text("revision = 1\n" + text.read_text().replace("The range of", "The whole range of"))
    refused = call("skills", "edit", "my-rule", "--file", str(stale))
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    stale.write_text(stale.read_text().replace("revision = 1", "revision = 2"))
    assert call("skills", "edit", "my-rule", "--file", str(stale)).code == 0
    assert "revision 3" in call("skills", "show", "my-rule").out
    with Reader(db) as reader:
        changes = [r.event for r in reader.events(None) if r.event.kind == "skill_changed"]
    assert len(changes) == 3


def test_an_ended_run_is_not_stopped_again(db: Path, run: int) -> None:
    store = RunStore.take(db, run)
    store.set_state(RunState.DONE, "budget")
    with Control(db) as control:
        control.ask(run, CommandKind.STOP)
    store.obey()
    store.release()
    with Reader(db) as reader:
        assert reader.commands(run)[0].answer == f"run {run} is done"


def test_more_commands_at_once_than_a_screen_lists_are_all_answered(call: Call, db: Path) -> None:
    with Control(db) as control:
        run = control.create_run(find_task("softmax"), RunSettings())
    numbers = [str(number) for number in range(1, 121)]
    ready, enough = threading.Event(), threading.Event()

    def engine() -> None:
        store = RunStore.take(db, run)
        for number in numbers:
            grow(store, number, judge=False)
        ready.set()
        while not enough.wait(0.1):
            store.obey()
        store.release()

    thread = threading.Thread(target=engine)
    thread.start()
    try:
        assert ready.wait(30)
        outcome = call("pin", str(run), *numbers)
    finally:
        enough.set()
        thread.join()
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == [f"pinned {number}" for number in numbers]


def test_a_database_that_stays_locked_exits_with_3(
    call: Call, db: Path, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.database.BUSY_TIMEOUT_MS", 50)
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    outcome = call("pin", str(run), "1")
    connection.close()
    assert (outcome.code, outcome.err.count("\n")) == (3, 1)
    assert "locked" in outcome.err
