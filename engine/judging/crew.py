"""The processes that judge one task on one device, as the engine sees them: judge, nursery, compile nursery.

A crew is started together and ends together. When one of its processes fails the crew is broken,
every evaluation in it learns so, and the evaluator starts another crew.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.judging import processes, sandbox, sandbox_kernel
from engine.judging.compiled import Compiled
from engine.judging.facts import MachineError
from engine.judging.neighbours import Neighbours
from engine.judging.processes import Launcher, Worker
from engine.judging.settings import JudgeSettings
from engine.judging.wire import Message, WireClosed, WireError
from engine.records import Audit, BaselineKernel, Task
from engine.tasks.catalogue import FUNCTION, TaskError, entry_point

EXIT_TIMEOUT_S = 15.0
"""How long a killed contestant may take to be gone before the nursery is given up."""

BASELINE_TIMEOUT_S = 240.0
"""How long building, tuning and measuring one baseline may take."""

_NURSERY = "engine.judging.workers.nursery"


class CrewBroken(Exception):
    """A process of the crew failed; the message says which and how. Never a candidate's fault."""


@dataclass(slots=True)
class Seat:
    """One child of a nursery as the engine knows it: messages about it, and how it ended."""

    number: int
    nursery: Worker
    inbox: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    exited: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Crew:
    """Judge, nursery and, without a GPU, compile nursery."""

    def __init__(self, task: Task, settings: JudgeSettings, audit: Audit | None = None) -> None:
        """Takes what is judged and how, and what an earlier audit found of the task."""
        self.device = ""
        self.toolchain: dict[str, str] = {}
        self.device_name = ""
        self.device_id = ""
        self.neighbours: Neighbours | None = None
        self.ready: Message = {}
        self.folder = Path(tempfile.mkdtemp(prefix="kernelgrove-"))
        self.compiled = Compiled(self.folder / "compiled")
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = task
        self._settings = settings
        self._audit = audit
        self._seats: dict[int, Seat] = {}
        self._next = 1
        self._launcher = Launcher(settings.python, self.folder, settings.device)
        self._workers: list[Worker] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._baselines: dict[str, Seat] = {}
        self._own: dict[str, str] = {}
        self._started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._late: asyncio.TimerHandle | None = None
        self._essential: Seat | None = None
        self._closing = False

    # start and end

    async def open(self, known: Callable[[Mapping[str, str]], Sequence[Message]]) -> None:
        """Starts everything and waits until the judge has opened the task.

        Args:
            known: gives what earlier runs found of the task's baselines, for what they depend on.

        Raises TaskError or MachineError; the crew is closed then.
        """
        try:
            async with asyncio.timeout(self._settings.open_timeout_s):
                await self._open()
                await self._start_judge(known(self.fingerprint) if self.device != "cpu" else (), ())
            # Every candidate is timed against it, so a crew without it is of no use.
            self._essential = self._baselines.get("eager")
        except CrewBroken as error:
            await self.close()
            raise MachineError(f"{error}.") from error
        except TimeoutError as error:
            await self.close()
            raise MachineError(
                f"judge and nursery were not ready within {self._settings.open_timeout_s:g} s on this machine."
            ) from error
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        await self._open_launcher()
        self._judge, self._nursery = await asyncio.gather(
            self._start("judge", "engine.judging.workers.judge", single_threaded=False),
            self._start("nursery", _NURSERY, single_threaded=True),
        )
        await self._tell_judge("judge")
        self.device = (await self._expect(self._judge, "device"))["device"]
        nurseries = [self._nursery]
        await self._tell_nursery(self._nursery, "contestants", self.device)
        if self.device == "cpu" and self._settings.modelled:
            self._compilers = await self._start("compile nursery", _NURSERY, single_threaded=True)
            await self._tell_nursery(self._compilers, "compilers", "cpu")
            nurseries.append(self._compilers)
        opened, *loaded = await asyncio.gather(
            self._expect(self._judge, "opened"), *(self._expect(nursery, "ready") for nursery in nurseries)
        )
        self.device_name, self.device_id = opened["name"], opened["device_id"]
        self.toolchain = dict(loaded[0]["toolchain"]) | dict(opened["toolchain"])
        if self.device != "cpu":
            self.neighbours = Neighbours.open(self.device_id, self._judge.process.pid)
        for nursery in nurseries:
            self.spawn(self._follow(nursery, self._heard_from_nursery))
        self.spawn(self._follow(self._judge, self._heard_from_judge))

    async def _tell_judge(self, purpose: str) -> None:
        task = task_message(self._task) | {"audit": self._audit.to_json() if self._audit is not None else None}
        await self._judge.channel.send(
            {
                "settings": self._settings.to_json(),
                "task": task,
                "sandbox": self.sandbox.to_json(),
                "purpose": purpose,
            }
        )

    async def audit(self, *, for_search: bool = False) -> Audit:
        """Has a judge audit the task and do nothing else. The crew is closed then.

        Args:
            for_search: whether a task that no candidate could be right for is an error.

        Raises TaskError or MachineError.
        """
        try:
            async with asyncio.timeout(self._settings.open_timeout_s):
                await self._open_launcher()
                self._judge = await self._start("judge", "engine.judging.workers.judge", single_threaded=False)
                await self._tell_judge("audit for a search" if for_search else "audit")
                await self._expect(self._judge, "device")
                return Audit.from_json((await self._expect(self._judge, "audited"))["audit"])
        except CrewBroken as error:
            raise MachineError(f"{error}.") from error
        except TimeoutError as error:
            raise MachineError(
                f"the audit of {self._task.name} took longer than {self._settings.open_timeout_s:g} s on this machine."
            ) from error
        finally:
            await self.close()

    @property
    def fingerprint(self) -> dict[str, str]:
        """What times depend on beside the task: the device, how it is timed, and every version."""
        settings = self._settings
        how = {"mode": settings.time_mode, "cache": settings.cache, "dtype": settings.dtype or ""}
        return {"device": self.device_name, "device_id": self.device_id, **how, **self.toolchain}

    async def compare_with(self, kernels: Sequence[BaselineKernel]) -> None:
        """Takes people's own kernels, which are right, among the baselines. No candidate may be under way.

        Raises CrewBroken or MachineError.
        """
        self._own |= {kernel.name: kernel.source for kernel in kernels}
        await self._start_judge((), [kernel.name for kernel in kernels])

    async def _start_judge(self, known: Sequence[Message], own: Sequence[str]) -> None:
        """Has the judge measure the baselines that it does not know, and waits until it is ready."""
        self._started = asyncio.get_running_loop().create_future()
        await self._judge.channel.send({"op": "start", "known": list(known), "own": list(own)})
        self.ready = await self.while_intact(self._started)
        if self.ready["problem"]:
            words = processes.last_line(self.folder / "baseline-0" / "output.log")
            problem = ": ".join(filter(None, [self.ready["problem"], words]))
            raise MachineError(f"the task {self._task.name} cannot be timed here: {problem}.")

    @property
    def sandbox(self) -> sandbox.Sandbox:
        """The layers in force between candidates and everything else."""
        return self._launcher.sandbox

    async def _open_launcher(self) -> None:
        try:
            layers = sandbox.wanted(self._settings.sandbox)
        except ValueError as error:
            raise MachineError(f"{error}.") from error
        await self._launcher.open(layers, [str(self.folder)])
        if self.sandbox.exposes_engine:
            sandbox_kernel.hide_memory()

    async def _tell_nursery(self, nursery: Worker, role: str, device: str) -> None:
        await nursery.channel.send(
            {
                "role": role,
                "device": device,
                "arch": self._settings.arch,
                "most_tuned": self._settings.most_tuned,
                "sandbox": self.sandbox.to_json(),
            }
        )

    async def _start(self, name: str, module: str, single_threaded: bool) -> Worker:
        home = self.folder / name.replace(" ", "-")
        home.mkdir()
        environment = processes.clean_environment(home, self._settings.device, single_threaded)
        worker = await self._launcher.start(name, module, home, environment)
        self._workers.append(worker)
        return worker

    def _heard_of_baselines(self, message: Message) -> None:
        """What the judge says on its own account, whether candidates are under way or not."""
        if message["event"] == "measuring":
            self._watch_baseline(message["name"])
        elif message["event"] == "wanted":
            self.spawn(self._fork_baseline(message["name"]))
        elif message["event"] == "alone":
            self.spawn(self._allow(message["id"]))
        elif message["event"] == "ready":
            self._started.set_result(message)
        elif message["event"] == "failed":
            self._started.set_exception(MachineError(f"the judge cannot go on: {message['message']}."))

    async def _allow(self, number: int) -> None:
        await self.quiet(lambda what: None)
        await self.allow(number)

    async def quiet(self, waiting: Callable[[str], None]) -> None:
        """Waits a while for other people who compute on the device; `waiting` is told for whom."""
        if self.neighbours is not None:
            await self.neighbours.quiet(waiting)

    async def allow(self, number: int) -> None:
        """Lets the judge time the contestant with this number."""
        with contextlib.suppress(WireClosed):
            await self._judge.channel.send({"op": "allowed", "id": number})

    async def _fork_baseline(self, name: str) -> None:
        """Starts the process of a baseline; one of a person's own is confined as a candidate's is."""
        folder = self.folder / f"baseline-{len(self._baselines)}"
        folder.mkdir(mode=0o700)
        path = folder / "module.py"
        path.write_text(self._own.get(name, self._task.source), encoding="utf-8")
        seat = self._baselines[name] = self.contestant()
        ours, theirs = socket.socketpair()
        with ours, theirs, (folder / "output.log").open("wb") as log:
            try:
                await self.fork(seat, path, theirs, log.fileno(), trusted=name not in self._own)
                await self._judge.channel.send({"op": "baseline", "name": name}, [ours.fileno()])
            except (CrewBroken, WireClosed) as error:
                self._break(f"the baseline {name} could not be started: {error}")

    def _watch_baseline(self, name: str) -> None:
        """Gives a baseline that the judge begins to measure its time; an empty name says that it is done.

        One that takes too long is ended, and the judge goes on without it.
        """
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if name:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(BASELINE_TIMEOUT_S, self._kill_soon, self._baselines[name])

    def _kill_soon(self, seat: Seat) -> None:
        self.spawn(self.kill(seat))

    async def _expect(self, worker: Worker, event: str) -> Message:
        """The next message of a worker that is starting, which must be `event`."""
        message = await self._heard(worker)
        if message["event"] != event:
            raise CrewBroken(f"the {worker.name} said {message['event']!r} where {event!r} was expected")
        return message

    async def _heard(self, worker: Worker) -> Message:
        """The next message of a worker that is starting, or its failure as an error."""
        try:
            message = await worker.channel.receive()
        except WireClosed as error:
            await worker.process.wait()
            words = worker.last_words()
            if worker.process.returncode == -signal.SIGKILL:
                raise MachineError(
                    f"the system ended the {worker.name} while it opened the task {self._task.name}, most likely for "
                    "lack of memory; give the task smaller sizes, or a machine with more."
                ) from error
            raise MachineError(
                f"the {worker.name} did not start with {self._settings.python}"
                + (f": {words}." if words else f" (exit code {worker.process.returncode}).")
            ) from error
        if message["event"] == "failed":
            if message["kind"] == "task":
                raise TaskError(f"the task {self._task.name} {message['message']}.")
            if message["kind"] == "memory":
                raise MachineError(
                    f"the task {self._task.name} does not fit into this machine's memory: {message['message']}; "
                    "give it smaller sizes, or a machine with more."
                )
            raise MachineError(f"the {worker.name} cannot start: {message['message']}.")
        return message

    async def close(self) -> None:
        """Ends every process and removes every file of the crew."""
        self._closing = True
        self._watch_baseline("")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._break("the crew was closed")
        await self._launcher.close()
        for worker in self._workers:
            worker.channel.close()
        # Reading the error here keeps the loop from reporting it as never retrieved.
        self.broken.exception()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def _break(self, reason: str) -> None:
        if not self.broken.done():
            self.broken.set_exception(CrewBroken(reason))
        for seat in self._seats.values():
            if not seat.exited.done():
                seat.exited.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs `work` beside the caller, at most until the crew closes."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def while_intact(self, work: Awaitable[Any]) -> Any:
        """The result of `work`; CrewBroken as soon as a process of the crew fails."""
        waiting = asyncio.ensure_future(work)
        try:
            await asyncio.wait({waiting, self.broken}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self.broken.result()
            return waiting.result()
        except asyncio.CancelledError:
            if self.broken.done() and not waiting.cancelled() and not waiting.done():
                self.broken.result()
            raise
        finally:
            waiting.cancel()

    # what the workers say

    async def _follow(self, worker: Worker, heard: Any) -> None:
        try:
            while True:
                heard(await worker.channel.receive())
        except (WireClosed, WireError) as error:
            if self._closing:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await worker.process.wait()
            words = worker.last_words() or str(error)
            self._break(f"the {worker.name} ended (exit code {worker.process.returncode}): {words}")

    def _heard_from_judge(self, message: Message) -> None:
        if not message.get("id"):
            self._heard_of_baselines(message)
            return
        seat = self._seats.get(message["id"])
        if seat is not None:
            seat.inbox.put_nowait(message)

    def _heard_from_nursery(self, message: Message) -> None:
        seat = self._seats.get(message["id"])
        if seat is None or seat.exited.done():
            return
        if message["event"] == "exited":
            seat.exited.set_result(message["code"])
            if seat is self._essential:
                self._break("the process that runs the reference ended")
        elif message["event"] == "unforked":
            self._break(f"the nursery could not fork: {message['message']}")

    # children of the nurseries

    def contestant(self) -> Seat:
        """A place for one contestant."""
        return self._seat(self._nursery)

    def compiler(self) -> Seat:
        """A place for one compiling child, on a machine without a GPU."""
        return self._seat(self._compilers)

    def _seat(self, nursery: Worker) -> Seat:
        seat = Seat(self._next, nursery)
        self._next += 1
        self._seats[seat.number] = seat
        return seat

    async def fork(self, seat: Seat, path: Path, connection: socket.socket, log: int, *, trusted: bool = False) -> None:
        """Forks a child that owns `connection`, writes what it prints to `log`, and works beside the file `path`.

        One that is `trusted` runs the task's own code and is not confined. Raises CrewBroken.
        """
        request = {
            "op": "fork",
            "id": seat.number,
            "path": str(path),
            "scratch": str(path.parent),
            "environment": processes.private_folders(path.parent),
            "memory_bytes": self._settings.max_memory_bytes,
            "confined": not trusted,
        }
        try:
            await seat.nursery.channel.send(request, [connection.fileno(), log])
        except WireClosed as error:
            raise CrewBroken(f"the {seat.nursery.name} is gone: {error}") from error

    async def introduce(self, seat: Seat, connection: socket.socket, request: Message) -> None:
        """Hands the judge its end of a contestant's connection, with what is wanted of it. Raises CrewBroken.

        `known` are fingerprints that are not timed; `best` has the times to beat by case, None where no time can be
        one; `confirms` is None, or what is known by case of a candidate that is timed again in a fresh process: its
        `tier`, and what autotuning had `tuned`.
        """
        try:
            await self._judge.channel.send({"op": "examine", "id": seat.number, **request}, [connection.fileno()])
        except WireClosed as error:
            raise CrewBroken(f"the judge is gone: {error}") from error

    async def kill(self, seat: Seat) -> None:
        """Asks the nursery to kill the child and its group, without waiting."""
        with contextlib.suppress(WireClosed):
            await seat.nursery.channel.send({"op": "kill", "id": seat.number})

    async def end(self, seat: Seat) -> int | None:
        """Kills the child if it lives and waits until it is gone; its exit code, None where unknown."""
        try:
            if not seat.exited.done():
                await self.kill(seat)
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                code = await asyncio.shield(seat.exited)
            if self._seats.pop(seat.number, None) is not None and seat.nursery is self._nursery:
                # Now nobody else can write to the memory that the judge lent.
                with contextlib.suppress(WireClosed):
                    await self._judge.channel.send({"op": "ended", "id": seat.number})
            return code
        except TimeoutError:
            self._break("a killed candidate did not end")
        except asyncio.CancelledError:
            if not self.broken.done():
                raise
        finally:
            self._seats.pop(seat.number, None)
        return None


def task_message(task: Task) -> Message:
    """The task as the judge takes it."""
    return {
        "name": task.name,
        "source": task.source,
        "entry": entry_point(task),
        "function": task.format == FUNCTION,
        "cases": [
            {
                "name": case.name,
                "weight": case.weight,
                "overrides": dict(case.overrides),
                "small_overrides": dict(case.small_overrides),
                "atol": case.atol,
                "rtol": case.rtol,
            }
            for case in task.cases
        ],
    }
