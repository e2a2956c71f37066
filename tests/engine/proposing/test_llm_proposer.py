"""The model proposer over a real store and a real server: what it asks and keeps, how it fails, what that costs."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.loop.search_loop import SearchLoop
from engine.proposing.briefing import Subject
from engine.proposing.llm import LlmProposer
from engine.proposing.mixed import MixedProposer
from engine.proposing.model import ModelClient
from engine.proposing.proposer import ProposalFailed, ProposalRequest, Proposed, ProposerUnavailable
from engine.proposing.requests import PATIENCE, CallFailed
from engine.records import (
    CallFailure,
    CallState,
    Candidate,
    CandidateState,
    CommandKind,
    Evaluation,
    ModelCall,
    ProposerKind,
    RunState,
    Step,
    Verdict,
)
from engine.settings import RunSettings
from engine.store.control import Control
from engine.store.reader import Reader
from engine.store.run_store import RunStore
from engine.tasks.catalogue import entry_point, find_task
from tests.engine.loop.scripted import ScriptedJudge, ScriptedProposer
from tests.engine.proposing.model_server import (
    Answer,
    Exchange,
    ModelServer,
    drops,
    edit_answer,
    is_silent,
    kernel,
    module_answer,
    prompts,
    refuses,
    says,
    sends,
    status,
    trickles,
)

KEY = "sk-a-secret-of-some-length"
FACTS = {"kind": "modelled", "toolchain": {"arch": "sm_90"}, "cases": [], "baselines": {}}
PRICE = {"input": 1.0, "output": 10.0}


class Workbench:
    """A run, its store, and a proposer that asks the test's server."""

    def __init__(self, db: Path, server: ModelServer, **settings: Any) -> None:
        llm = {"model": "tiny", "base_url": server.url, "retries": 0, **settings.pop("llm", {})}
        self.settings = RunSettings.model_validate({"budget": 8, "proposer": "llm", "llm": llm, **settings})
        task = find_task("softmax")
        with Control(db) as control:
            self.run = control.create_run(task, self.settings)
        self.db = db
        self.store = RunStore.take(db, self.run)
        self.store.set_state(RunState.RUNNING)
        self.store.task_opened("cpu (modelling sm_90)", "modelled", FACTS, {})
        self.reader = Reader(db)
        self.client = ModelClient(self.settings.llm, {"OPENAI_API_KEY": KEY})
        subject = Subject(task, entry_point(task), "cpu", FACTS, self.settings)
        self.proposer = LlmProposer(self.client, self.reader, self.store.ledger, self.run, subject)

    async def close(self) -> None:
        await self.client.close()
        self.reader.close()
        self.store.release()

    def grow(
        self, source: str, parent: int | None = None, *, verdict: Verdict = Verdict.CORRECT, reason: str = ""
    ) -> int:
        """A judged candidate."""
        step = Step.STRUCTURAL if parent is None else Step.LOCAL
        number = self.store.add_candidate(self._candidate(parent), step, ProposerKind.LLM, {})
        self.store.proposed(number, source, f"idea of {number}", None, False)
        assert self.store.claim(number)
        speedup = {"eager": 1.5} if verdict is Verdict.CORRECT else {}
        self.store.evaluated(number, Evaluation(verdict, "time", reason, time_us=9.0, speedup=speedup), 1.5, 0.9)
        return number

    def _candidate(self, number: int | None) -> Candidate | None:
        return next((c for c in self.store.candidates() if c.number == number), None)

    async def propose(self, parent: int | None = None, step: Step = Step.STRUCTURAL, *context: int) -> Proposed:
        """Asks for a candidate as the loop does."""
        number = self.store.add_candidate(self._candidate(parent), step, ProposerKind.LLM, {})
        return await self.proposer.propose(
            ProposalRequest(number, parent, step, Random(0), ProposerKind.LLM, tuple(context))
        )

    @property
    def calls(self) -> list[ModelCall]:
        """All requests of the run, oldest first."""
        return [call for c in self.store.candidates() for call in self.reader.calls(self.run, c.number)]


Bench = Callable[..., Workbench]


@pytest.fixture
async def bench(tmp_path: Path, server: ModelServer) -> AsyncIterator[Bench]:
    made: list[Workbench] = []

    def make(**settings: Any) -> Workbench:
        made.append(Workbench(tmp_path / f"{len(made)}.db", server, **settings))
        return made[-1]

    yield make
    for workbench in made:
        await workbench.close()


async def test_a_structural_step_is_one_request_and_the_prompt_kept_is_the_prompt_sent(
    server: ModelServer, bench: Bench
) -> None:
    server.script = [says(module_answer("Two rows a program"))]
    workbench = bench(llm={"price": PRICE})
    seen = workbench.grow(kernel("One row"))
    proposed = await workbench.propose(None, Step.STRUCTURAL, seen)
    assert (proposed.source, proposed.idea) == (kernel("Two rows a program"), "two rows a program")
    (call,) = workbench.calls
    sent = [(message["role"], message["content"]) for message in server.requests[0].body["messages"]]
    assert workbench.reader.prompt(call.id) == sent
    assert f"Candidate {seen} (structural): idea of {seen}" in sent[1][1]
    assert (call.template, call.state, call.destination) == ("structural", CallState.ANSWERED, server.url)
    assert call.cost_usd == pytest.approx(
        (len(sent[1][1]) * 1.0 + len(module_answer("Two rows a program")) * 10.0) / 1e6
    )
    assert workbench.reader.response(call.id) == module_answer("Two rows a program")
    rules = workbench.reader.skills().used_in(workbench.run, seen + 1)
    assert [(rule.name, rule.revision) for rule in rules] == sorted(call.skills)
    assert ("arange-power-of-two", 1) in call.skills


async def test_a_local_step_asks_a_reviser_then_a_tuner_who_is_told_what_it_said(
    server: ModelServer, bench: Bench
) -> None:
    server.script = [says("1. Use 4 warps.\n2. Two rows."), says(edit_answer("num_warps=8", "num_warps=4", "4 warps"))]
    workbench = bench()
    parent = workbench.grow(kernel())
    proposed = await workbench.propose(parent, Step.LOCAL, parent)
    assert (proposed.source, proposed.idea) == (kernel(warps=4), "4 warps")
    assert [call.template for call in workbench.calls] == ["reviser", "tuner"]
    assert "1. Use 4 warps.\n2. Two rows." in server.requests[1].prompt
    assert kernel() in server.requests[1].prompt


async def test_the_reviser_is_left_out_while_nothing_is_correct(server: ModelServer, bench: Bench) -> None:
    server.script = [says(edit_answer("num_warps=8", "num_warps=4"))]
    workbench = bench()
    parent = workbench.grow(kernel(), verdict=Verdict.INCORRECT, reason="wrong at 3 of 5 seeds")
    await workbench.propose(parent, Step.LOCAL, parent)
    assert [call.template for call in workbench.calls] == ["tuner"]
    assert "wrong at 3 of 5 seeds" in server.requests[0].prompt


async def test_the_tuner_does_without_a_reviser_that_is_of_no_use(server: ModelServer, bench: Bench) -> None:
    useful = says(edit_answer("num_warps=8", "num_warps=4"))
    for useless, name in ((refuses(), "refused"), (says(""), "empty"), (says("1. U", finish="length"), None)):
        server.script = [useless, useful]
        workbench = bench()
        parent = workbench.grow(kernel())
        assert (await workbench.propose(parent, Step.LOCAL, parent)).source == kernel(warps=4)
        assert workbench.reader.spending(workbench.run).failures == ({name: 1} if name else {})


async def test_what_the_model_can_mend_is_told_to_it_once(server: ModelServer, bench: Bench) -> None:
    server.script = [says(edit_answer("num_warps=9", "num_warps=4")), says(edit_answer("num_warps=8", "num_warps=4"))]
    workbench = bench()
    parent = workbench.grow(kernel(), verdict=Verdict.INCORRECT)
    assert (await workbench.propose(parent, Step.LOCAL, parent)).source == kernel(warps=4)
    assert "Your last answer could not be used" not in server.requests[0].prompt
    told = server.requests[1].prompt
    assert "searches for lines that are not there; the nearest are from line" in told
    first, second = workbench.calls
    assert (first.failure, first.attempt, second.failure, second.attempt) == (CallFailure.EDIT_NOT_FOUND, 1, None, 2)


TWO_CLASSES = f"```python\n{kernel()}\n\nclass ModelNew:\n    pass\n```"


@pytest.mark.parametrize(
    ("answer", "failure", "requests"),
    [
        (says("I would use tiles."), CallFailure.NO_CODE, 2),
        (says("```python\nx = 1\n```"), CallFailure.NO_ENTRY_POINT, 2),
        (says(TWO_CLASSES), CallFailure.TWO_CLASSES, 2),
        (says(""), CallFailure.EMPTY, 2),
        (drops(), CallFailure.DROPPED, 2),
        (sends("{"), CallFailure.MALFORMED, 2),
        (says("```python\nimport tri", finish="length"), CallFailure.CUT_OFF, 2),
        (is_silent("import"), CallFailure.TIMEOUT, 2),
        (refuses(), CallFailure.REFUSED, 1),
        (status(429, "slow down"), CallFailure.RATE_LIMITED, 1),
        (status(500, "oops"), CallFailure.SERVER_ERROR, 1),
        (is_silent(), CallFailure.TIMEOUT, 1),
        (trickles(), CallFailure.DEADLINE, 1),
        (status(400, "maximum context length is 4096 tokens"), CallFailure.CONTEXT_OVERFLOW, 2),
    ],
)
async def test_a_failure_ends_in_a_failed_candidate_with_its_name_after_one_repetition_at_most(
    server: ModelServer, bench: Bench, answer: Answer, failure: CallFailure, requests: int
) -> None:
    server.script = [answer] * requests
    workbench = bench(llm={"silence": 0.2, "deadline": 0.5 if failure is CallFailure.DEADLINE else 20})
    with pytest.raises(CallFailed, match=f"^{str(failure).replace('_', ' ')}: "):
        await workbench.propose()
    assert workbench.reader.spending(workbench.run).failures == {failure: requests}


async def test_a_model_that_repeats_itself_is_told_so_then_left_alone_and_the_search_ends(
    server: ModelServer, bench: Bench
) -> None:
    server.otherwise = says(module_answer())
    workbench = bench(budget=50, policy={"actions": "structural"})
    candidates = await search(workbench)
    run = workbench.store.run()
    assert (run.state, run.ended_by) == (RunState.DONE, "exhausted")
    assert [c.state for c in candidates] == [CandidateState.EVALUATED] + [CandidateState.DUPLICATE] * 6
    assert [c.duplicate_of for c in candidates[1:]] == [1] * 6
    assert "this is the text of candidate 1" in server.requests[2].prompt
    assert workbench.reader.spending(workbench.run).failures == {"known": 6}


async def test_an_answer_that_was_cut_off_after_its_module_is_used(server: ModelServer, bench: Bench) -> None:
    server.script = [says(module_answer() + "\nAnd now", finish="length")]
    assert (await bench().propose()).source == kernel()


async def test_a_prompt_that_is_too_long_shrinks_in_the_fixed_order_and_stays_short(
    server: ModelServer, bench: Bench
) -> None:
    said = status(400, "the maximum context length is 3000 tokens", error={"code": "context_length_exceeded"})
    server.script = [said, says(module_answer()), says(module_answer("Another"))]
    workbench = bench(llm={"notes": "Notes of the engineer. " * 10})
    shown = [workbench.grow(kernel(f"Kernel {number}") + "# filler\n" * 300) for number in range(5)]
    await workbench.propose(None, Step.STRUCTURAL, *shown)
    before, after = workbench.calls
    assert before.dropped == ()
    assert "context" in after.dropped[-1]
    assert "Notes of the engineer." in server.requests[1].prompt
    assert (server.requests[0].body["max_tokens"], server.requests[1].body["max_tokens"]) == (16_000, 1500)
    await workbench.propose(None, Step.STRUCTURAL, *shown)
    assert server.requests[2].body["max_tokens"] == 1500
    assert len(server.requests[2].prompt) < len(server.requests[0].prompt)


async def test_without_a_word_on_how_long_the_context_is_half_is_tried(server: ModelServer, bench: Bench) -> None:
    server.script = [status(400, "too long", error={"code": "context_length_exceeded"}), says(module_answer())]
    workbench = bench()
    shown = [workbench.grow(kernel(f"Kernel {number}") + "# filler\n" * 300) for number in range(5)]
    await workbench.propose(None, Step.STRUCTURAL, *shown)
    before, after = (len(prompt) for prompt in prompts(server.requests))
    assert 0.25 * before < after <= 0.5 * before
    assert server.requests[1].body["max_tokens"] == 8_000


async def test_pruned_structures_are_shown_to_nobody(server: ModelServer, bench: Bench) -> None:
    server.script = [says(module_answer())]
    workbench = bench()
    kept, pruned = workbench.grow(kernel("Kept")), workbench.grow(kernel("Pruned"))
    with Control(workbench.db) as control:
        control.ask(workbench.run, CommandKind.PRUNE, pruned)
    workbench.store.obey()
    await workbench.propose()
    assert f"idea of {kept}" in server.requests[0].prompt
    assert f"idea of {pruned}" not in server.requests[0].prompt


@pytest.mark.parametrize(("skills", "shown"), [("none", False), ("active", True)])
async def test_rules_can_be_left_out(server: ModelServer, bench: Bench, skills: str, shown: bool) -> None:
    server.script = [says(module_answer())]
    workbench = bench(skills=skills)
    await workbench.propose()
    assert ("power of two elements" in server.requests[0].prompt) is shown
    assert bool(workbench.calls[0].skills) is shown


async def test_rules_can_come_from_a_file(server: ModelServer, bench: Bench, tmp_path: Path) -> None:
    rule = tmp_path / "mine.toml"
    rule.write_text(
        'name = "mine"\nkind = "validity"\nstatement = "tl.load wants a mask, always."\nstage = "compile"\n'
    )
    server.script = [says(module_answer())]
    workbench = bench(skills=str(rule))
    await workbench.propose()
    assert "- tl.load wants a mask, always." in server.requests[0].prompt
    assert "power of two elements" not in server.requests[0].prompt
    assert workbench.calls[0].skills == (("mine", 0),)


# Reading along, and being cut


async def test_an_answer_can_be_read_while_it_is_written(server: ModelServer, bench: Bench) -> None:
    server.script = [trickles("word ")]
    workbench = bench()
    asked = asyncio.create_task(workbench.propose())
    seen: set[str] = set()
    async with asyncio.timeout(20):
        while len(seen) < 3:
            seen |= {text for call in workbench.calls if (text := workbench.reader.response(call.id))}
            await asyncio.sleep(0.05)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    (call,) = workbench.calls
    assert call.state is CallState.INTERRUPTED
    assert workbench.reader.response(call.id).startswith(max(seen, key=len))


async def test_a_request_that_was_cut_keeps_its_reserve_charged(server: ModelServer, bench: Bench) -> None:
    server.script = [trickles()]
    workbench = bench(llm={"price": PRICE, "max_output_tokens": 1000})
    asked = asyncio.create_task(workbench.propose())
    async with asyncio.timeout(20):
        while not any(workbench.reader.response(call.id) for call in workbench.calls):
            await asyncio.sleep(0.02)
    reserved = workbench.reader.spending(workbench.run).reserved_usd
    assert reserved > 0.01
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    spending = workbench.reader.spending(workbench.run)
    assert (spending.usd, spending.reserved_usd, spending.failures) == (reserved, 0.0, {"interrupted": 1})


async def test_what_broke_off_is_charged_in_full_and_what_was_refused_is_not(server: ModelServer, bench: Bench) -> None:
    server.script = [drops(), drops(), status(500, "oops")]
    workbench = bench(llm={"price": PRICE, "max_output_tokens": 1000})
    for _ in range(2):
        with pytest.raises(ProposalFailed):
            await workbench.propose()
    costs = [call.cost_usd for call in workbench.calls]
    assert costs == [workbench.calls[0].reserved_usd, workbench.calls[1].reserved_usd, 0.0]


# Whole searches


async def search(workbench: Workbench, judge: ScriptedJudge | None = None, proposer: Any = None) -> list[Candidate]:
    await SearchLoop(
        workbench.store, [judge or ScriptedJudge()], proposer or workbench.proposer, workbench.settings
    ).run()
    return workbench.store.candidates()


def by_prompt(exchange: Exchange) -> None:
    """Answers any prompt of a search with something new."""
    serial = f"{exchange.at:.9f}"
    if "numbered list" in exchange.prompt:
        says("1. Use other warps.")(exchange)
    elif "<<<<<<< SEARCH" in exchange.prompt:
        says(edit_answer("class ModelNew(nn.Module):", f"SERIAL = {serial}\n\n\nclass ModelNew(nn.Module):"))(exchange)
    else:
        says(module_answer(f"Kernel {serial}"))(exchange)


async def test_a_search_in_which_everything_goes_wrong_stays_healthy_and_names_it_all(
    server: ModelServer, bench: Bench
) -> None:
    server.script = [
        says("no code"),
        says("no code"),
        refuses(),
        status(500, "oops"),
        says(""),
        says(TWO_CLASSES),
        sends("{"),
        sends("{"),
    ]
    server.otherwise = by_prompt
    workbench = bench(budget=9)
    candidates = await search(workbench)
    assert workbench.store.run().state is RunState.DONE
    failed = [c.reason or "" for c in candidates if c.state is CandidateState.FAILED]
    assert [reason.partition(":")[0] for reason in failed] == [
        "no code", "refused", "server error", "two classes", "malformed"
    ]  # fmt: skip
    assert sum(c.state is CandidateState.EVALUATED for c in candidates) == 4
    assert sum(workbench.reader.spending(workbench.run).failures.values()) == 8


async def test_the_same_answers_replay_the_same_tree(server: ModelServer, bench: Bench) -> None:
    def by_order(exchange: Exchange) -> None:
        # The same prompt always gets the same answer, another one nearly always another.
        serial = zlib.crc32(exchange.prompt.encode())
        if "numbered list" in exchange.prompt:
            says("1. Use other warps.")(exchange)
        elif "<<<<<<< SEARCH" in exchange.prompt:
            edit = edit_answer("class ModelNew(nn.Module):", f"S = {serial}\nclass ModelNew(nn.Module):", f"S {serial}")
            says(edit)(exchange)
        else:
            says(module_answer(f"Kernel {serial}"))(exchange)

    server.otherwise = by_order
    trees, asked = [], []
    for _ in range(2):
        workbench = bench(budget=10, seed=4)
        start = len(server.requests)
        trees.append([(c.number, c.parent, c.step, c.source_hash) for c in await search(workbench)])
        asked.append(prompts(server.requests[start:]))
    assert trees[0] == trees[1]
    assert asked[0] == asked[1]
    assert len({step for _, _, step, _ in trees[0]}) == 2


async def test_a_search_ends_before_its_money_does_and_keeps_what_was_paid_for(
    server: ModelServer, bench: Bench
) -> None:
    server.otherwise = by_prompt
    llm = {"price": {"input": 1.0, "output": 5.0}, "max_output_tokens": 4000, "prompt_tokens": 6000}
    workbench = bench(budget=1000, max_cost=0.2, llm=llm)
    candidates = await search(workbench)
    run = workbench.store.run()
    assert (run.state, run.ended_by) == (RunState.DONE, "cost")
    spending = workbench.reader.spending(workbench.run)
    assert 0.1 < spending.usd <= 0.2
    assert spending.reserved_usd == 0.0
    assert len(candidates) > 3
    assert all(c.state is not CandidateState.QUEUED for c in candidates)
    assert candidates[-1].state in (CandidateState.EVALUATED, CandidateState.FAILED)


async def test_several_proposals_at_once_do_not_overspend(server: ModelServer, bench: Bench) -> None:
    server.otherwise = by_prompt
    llm = {"price": {"input": 1.0, "output": 5.0}, "max_output_tokens": 4000, "prompt_tokens": 6000}
    workbench = bench(budget=1000, workers=4, max_cost=0.15, llm=llm)
    await search(workbench)
    assert workbench.store.run().ended_by == "cost"
    assert workbench.reader.spending(workbench.run).usd <= 0.15


async def test_a_wrong_key_fails_the_run_at_once_and_a_dead_server_after_some_patience(
    server: ModelServer, bench: Bench
) -> None:
    server.script = [status(401, f"Incorrect API key provided: {KEY}")]
    wrong = bench()
    (only,) = await search(wrong)
    run = wrong.store.run()
    assert (run.state, run.ended_by) == (RunState.FAILED, "proposer")
    assert "the key is not accepted (401)" in (run.reason or "")
    assert f"kernelgrove resume {run.id}" in (run.reason or "")
    assert only.state is CandidateState.FAILED
    server.script = [says(module_answer())] + [status(500, "oops")] * PATIENCE
    dead = bench(budget=100)
    candidates = await search(dead)
    assert dead.store.run().state is RunState.FAILED
    assert [c.state for c in candidates] == [CandidateState.EVALUATED] + [CandidateState.FAILED] * PATIENCE
    for workbench in (wrong, dead):
        assert KEY.encode() not in b"".join(
            path.read_bytes() for path in workbench.db.parent.glob(f"{workbench.db.name}*")
        )


async def test_what_looks_hopeless_ends_the_proposing_only_if_the_model_never_answered(
    server: ModelServer, bench: Bench
) -> None:
    server.script = [says(module_answer()), status(401, "no"), status(404, "no")]
    workbench = bench()
    await workbench.propose()
    with pytest.raises(CallFailed, match="no access"):
        await workbench.propose()
    with pytest.raises(ProposerUnavailable):
        await bench().propose()


async def test_the_compiler_seeds_a_mixed_search_and_the_model_does_the_rest(server: ModelServer, bench: Bench) -> None:
    server.otherwise = by_prompt
    workbench = bench(budget=6)
    compiler: Any = ScriptedProposer(structures=5)
    candidates = await search(workbench, proposer=MixedProposer(compiler, workbench.proposer, seeded=False))
    assert [c.proposer for c in candidates] == [ProposerKind.COMPILER] + [ProposerKind.LLM] * 5
    resumed = MixedProposer(compiler, workbench.proposer, seeded=True)
    assert resumed.kind is ProposerKind.LLM
    nothing: Any = ScriptedProposer(structures=0)
    assert MixedProposer(nothing, workbench.proposer, seeded=False).kind is ProposerKind.LLM
