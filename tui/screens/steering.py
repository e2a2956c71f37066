"""What a person can do to a run from its screen: every action becomes a row in the database."""

from __future__ import annotations

from functools import partial

from engine.events import CommandAnswered
from engine.records import Candidate, CandidateState, CommandKind, CommandState, ProposerKind, Step
from tui.asking import Said, add_own, ask, ask_each, prompt_text, take_back, without_prompt
from tui.clipboard import copy_text
from tui.context import Context
from tui.editor import edit_text
from tui.reading import Detail
from tui.screens.base import CockpitScreen
from tui.screens.prompts import KeyPrompt, TextPrompt, yes_or_no
from tui.state.log import clock_text, evaluation_lines
from tui.state.run_view import RunView
from tui.state.words import Tone, one_line

FORCE_KEYS = {"l": str(Step.LOCAL), "s": str(Step.STRUCTURAL)}
COPY_KEYS = {"i": "id", "c": "code", "d": "diff", "l": "log", "p": "prompt"}


class SteeringScreen(CockpitScreen):
    """A screen on one run; commands go through threads, since a commit may have to wait."""

    view: RunView
    detail: Detail | None

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._asked: set[int] = set()

    # Asking

    def _ask(self, kind: CommandKind, candidate: int | None = None, argument: str = "") -> None:
        self.in_thread(partial(ask, self.context.db, self.view.run_id, kind, candidate, argument), self._was_asked)

    def _was_asked(self, said: Said) -> None:
        if said.command is not None:
            self._asked.add(said.command)

    def answered(self, answer: CommandAnswered) -> None:
        """Says what the engine answered to a command of this screen."""
        if answer.command in self._asked:
            self._asked.discard(answer.command)
            if answer.state == CommandState.RETRACTED:
                return
            refused = answer.state == CommandState.REFUSED
            self.say(f"{'refused: ' if refused else ''}{answer.answer}", Tone.BAD if refused else Tone.GOOD)

    def _current(self) -> Candidate | None:
        candidate = self.view.tree.current
        if candidate is None:
            self.say("there is no candidate under the cursor", Tone.WARN)
        return candidate

    def _waiting(self) -> Candidate | None:
        candidate = self._current()
        if candidate is not None and candidate.state is not CandidateState.AWAITING_APPROVAL:
            self.say(f"candidate {candidate.number} does not wait for approval", Tone.WARN)
            return None
        return candidate

    # Approval

    def action_approve(self) -> None:
        """Lets the candidate's code run."""
        if (candidate := self._waiting()) is not None:
            self._ask(CommandKind.APPROVE, candidate.number)

    def action_approve_marked(self) -> None:
        """Approves all marked candidates."""
        marked = sorted(self.view.tree.marked)
        wanted = [
            (self.view.run_id, number)
            for number in marked
            if (found := self.view.tree.candidate(number)) and found.state is CandidateState.AWAITING_APPROVAL
        ]
        if marked and not wanted:
            self.say("none of the marked candidates waits for approval", Tone.WARN)
            return
        self.view.tree.marked.clear()
        self.in_thread(partial(ask_each, self.context.db, wanted, CommandKind.APPROVE), self._was_asked)

    def action_reject(self) -> None:
        """Turns the candidate down, with a reason."""
        if (candidate := self._waiting()) is not None:
            prompt = TextPrompt(f"Why is {candidate.number} rejected? ", hint="Enter rejects it, Escape does not")
            self.app.push_screen(prompt, partial(self._reject, candidate.number))

    def _reject(self, number: int, reason: str | None) -> None:
        if reason is not None:
            self._ask(CommandKind.REJECT, number, reason.strip())

    # The tree

    def action_prune(self) -> None:
        """Takes a subtree out of the search, after a question."""
        candidate = self._current()
        if candidate is None:
            return
        if candidate.pruned:
            self.say(f"candidate {candidate.number} is pruned already; X restores it", Tone.WARN)
            return
        question = self.view.prune_question(candidate.number)
        self.app.push_screen(yes_or_no(question), partial(self._if_yes, CommandKind.PRUNE, candidate.number))

    def _if_yes(self, kind: CommandKind, number: int | None, answer: str | None) -> None:
        if answer == "y":
            self._ask(kind, number)
        else:
            self.say("nothing was done")

    def action_restore(self) -> None:
        """Brings a pruned subtree back."""
        if (candidate := self._current()) is not None:
            self._ask(CommandKind.RESTORE, candidate.number)

    def action_pin(self) -> None:
        """Pins the candidate, or unpins it."""
        if (candidate := self._current()) is not None:
            self._ask(CommandKind.UNPIN if candidate.pinned else CommandKind.PIN, candidate.number)

    def action_retest(self) -> None:
        """Has the candidate judged again."""
        if (candidate := self._current()) is not None:
            self._ask(CommandKind.RETEST, candidate.number)

    def action_force(self) -> None:
        """Asks which step to force from the candidate."""
        if (candidate := self._current()) is not None:
            prompt = KeyPrompt(f"Force a step from {candidate.number}: l local   s structural", FORCE_KEYS)
            self.app.push_screen(prompt, partial(self._force, candidate.number))

    def _force(self, number: int, step: str | None) -> None:
        if step is not None:
            self._ask(CommandKind.FORCE, number, step)

    def action_hint(self) -> None:
        """Asks for advice on what grows from the candidate."""
        if (candidate := self._current()) is not None:
            prompt = TextPrompt(
                f"Hint for {candidate.number}: ", hint="every proposal that grows from it is shown this"
            )
            self.app.push_screen(prompt, partial(self._hint, candidate.number))

    def action_hint_run(self) -> None:
        """Asks for advice on the whole run."""
        if self.view.overview is not None:
            prompt = TextPrompt("Hint for the run: ", hint="every proposal from now on is shown this")
            self.app.push_screen(prompt, partial(self._hint, None))

    def _hint(self, number: int | None, text: str | None) -> None:
        if text is not None and text.strip():
            self._ask(CommandKind.HINT, number, text.strip())

    # The run

    def action_pause(self) -> None:
        """Pauses a run that is worked on, resumes one that is paused, starts an engine where none works."""
        overview = self.view.overview
        if overview is None:
            self.say("no run is open; 1 shows all runs", Tone.WARN)
        elif self.view.engine_alive:
            paused = overview.run.state == "paused"
            self._ask(CommandKind.RESUME if paused else CommandKind.PAUSE)
        elif self.context.start_engine is None:
            run = self.view.run_id
            self.say(f"no engine works on run {run}; start one with: kernelgrove resume {run}", Tone.WARN)
        else:
            self.say(f"starting an engine for run {self.view.run_id}")
            self.in_thread(partial(self._start, self.view.run_id))

    def _start(self, run: int) -> Said:
        assert self.context.start_engine is not None
        try:
            return Said(self.context.start_engine(run), Tone.GOOD)
        except Exception as error:  # whatever keeps an engine from starting is for the person to read
            return Said(f"no engine was started: {error}", Tone.BAD)

    def action_stop(self) -> None:
        """Stops the search, after a question."""
        overview = self.view.overview
        if overview is None or overview.run.state.ended:
            self.say("the search has ended already" if overview else "no run is open", Tone.WARN)
            return
        question = f"Stop run {self.view.run_id}? Running work is killed, what waits is abandoned."
        self.app.push_screen(yes_or_no(question), partial(self._if_yes, CommandKind.STOP, None))

    def action_budget(self) -> None:
        """Asks how many candidates the run may judge."""
        if (overview := self.view.overview) is None:
            return
        prompt = TextPrompt(
            "Budget: ",
            str(overview.run.budget),
            f"how many candidates may be judged in all; {overview.judged} were judged so far",
            lambda text: "" if not text or text.strip().isdecimal() else "the budget is a whole number",
        )
        self.app.push_screen(prompt, self._set_budget)

    def _set_budget(self, text: str | None) -> None:
        if text is None:
            return
        if text.strip().isdecimal() and int(text) > 0:
            self._ask(CommandKind.BUDGET, argument=text.strip())
        else:
            self.say("the budget is a whole number of candidates, at least 1; nothing was done", Tone.WARN)

    def action_take_back(self) -> None:
        """Takes back the newest command that nobody answered yet."""
        self.in_thread(partial(take_back, self.context.db, self.view.run_id))

    # Own kernels and copies

    def action_edit_own(self) -> None:
        """Opens the candidate in the person's editor; what is saved becomes its child."""
        candidate = self._current()
        if candidate is None:
            return
        if candidate.proposer is ProposerKind.MANUAL and candidate.state is CandidateState.PROPOSING:
            self._edit_answer(candidate)
            return
        if self.detail is None or self.detail.wanted.number != candidate.number:
            self.say(f"the source of {candidate.number} is still being read; press e again", Tone.WARN)
            return
        if not self.detail.source:
            self.say(f"candidate {candidate.number} has no source yet", Tone.WARN)
            return
        edited = edit_text(self.app, self.detail.source, f"from_{candidate.number}.py")
        if edited.problem:
            self.say(edited.problem, Tone.BAD)
        elif edited.text is None:
            edited.forget()
            self.say("nothing was changed, so no candidate was made")
        else:
            idea = f"own kernel from {candidate.number}"

            def after(said: Said) -> None:
                if said.tone is Tone.GOOD:
                    edited.forget()
                else:
                    self.say(f"{said.text}; your text is in {edited.file}", Tone.BAD)

            entered = partial(add_own, self.context.db, self.view.run_id, candidate.number, edited.text, idea)
            self.in_thread(entered, after)

    def _edit_answer(self, candidate: Candidate) -> None:
        """Opens the prompt of a candidate in the person's editor; what is saved below it answers it."""
        asked = prompt_text(self.context.db, self.view.run_id, candidate.number)
        edited = edit_text(self.app, asked, f"answer_{candidate.number}.py")
        if edited.problem:
            self.say(edited.problem, Tone.BAD)
        elif edited.text is None:
            edited.forget()
            self.say("nothing was changed, so nothing was answered")
        else:
            # Kept until the engine has taken it: the engine may refuse it, and typing it again is no fun.
            self.say(f"your text is kept in {edited.file}")
            self._ask(CommandKind.ANSWER, candidate.number, without_prompt(edited.text))

    def action_copy(self) -> None:
        """Asks what to copy."""
        if self._current() is not None:
            question = "Copy: " + "   ".join(f"{key} {what}" for key, what in COPY_KEYS.items())
            self.app.push_screen(KeyPrompt(question, COPY_KEYS), self._copy)

    def _copy(self, what: str | None) -> None:
        candidate = self.view.tree.current
        if what is None or candidate is None:
            return
        text, name = self._text_to_copy(what, candidate)
        if not text:
            self.say(f"candidate {candidate.number} has no {what} to copy", Tone.WARN)
            return
        self.say(f"{what} of {candidate.number} {copy_text(text, name, self.app.copy_to_clipboard)}", Tone.GOOD)

    def _text_to_copy(self, what: str, candidate: Candidate) -> tuple[str, str]:
        stem = f"run{self.view.run_id}-{candidate.number}"
        detail = self.detail if self.detail and self.detail.wanted.number == candidate.number else None
        if what == "id":
            return f"{self.view.run_id}:{candidate.number}", f"{stem}.txt"
        if what == "log":
            lines = [*self.view.log.of(candidate.number), *evaluation_lines(detail.evaluation if detail else None)]
            text = "\n".join(f"{clock_text(line.at)} {line.text}" for line in lines)
            return f"{one_line(candidate.idea)}\n{text}\n", f"{stem}.log"
        if detail is None:
            return "", ""
        if what == "prompt":
            return detail.prompt, f"{stem}-prompt.txt"
        return (detail.source, f"{stem}.py") if what == "code" else (detail.diff_text, f"{stem}.diff")
