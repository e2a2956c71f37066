"""Compiled kernels as they are launched on a GPU: noted, left out, made to fail, or held up on side streams.

Runs in the contestant. Everything is put back when the block ends, so that nothing is wrapped while calls
are timed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton.compiler.compiler import CompiledKernel

from engine.judging.workers.conditions import LaunchRefused
from engine.judging.workers.resources import code_fingerprint

Json = dict[str, Any]

_LATE_CYCLES = 60_000_000
"""About thirty milliseconds of a GPU: far more than any copy needs that must come after the work."""

_MOST_STEPS = 2000
"""Launches and library calls of one call that enter its fingerprint."""


class Recorder:
    """Decides what becomes of each launch, and remembers it.

    `conduct` is `run`; `skip`: launches do nothing; `fail`: they raise; or `late`: work on any stream but the
    one that the call is made on starts so late that whoever does not wait for it sees none of it.
    """

    def __init__(self, conduct: str, stream: int) -> None:
        """Takes the conduct and the handle of the stream that calls are made on."""
        self._conduct = conduct
        self._stream = stream
        self._held_up: set[int] = set()
        self._codes: dict[str, str] = {}
        self._steps: list[str] = []
        self.kernels: dict[str, Json] = {}
        self.replays = 0

    @property
    def streams(self) -> int:
        """How many other streams were held up."""
        return len(self._held_up)

    def launch(self, kernel: Any, grid: Sequence[int], stream: int) -> bool:
        """Notes a launch; whether it shall take place. Raises LaunchRefused where it must fail."""
        if self._conduct == "fail":
            raise LaunchRefused
        if self._conduct == "skip":
            return False
        self.hold_up(stream)
        number = str(kernel.hash)
        if number not in self._codes:
            self.kernels[number] = _describe(kernel)
            self._codes[number] = _code(kernel)
        self.step(f"{self._codes[number]} {list(map(int, grid))}")
        return True

    def replay(self, stream: int) -> bool:
        """Notes the replay of a graph, whose launches cannot be seen; whether it shall take place."""
        if self._conduct == "fail":
            raise LaunchRefused
        if self._conduct == "skip":
            return False
        self.hold_up(stream)
        self.replays += 1
        return True

    def hold_up(self, stream: int) -> None:
        """Lets a stream that is not the call's own start late, once, where that is asked for."""
        if self._conduct != "late" or stream in (self._stream, *self._held_up):
            return
        # What a capture records is played later, on a stream that is held up then.
        if not torch.cuda.is_current_stream_capturing():
            self._held_up.add(stream)
            torch.cuda._sleep(_LATE_CYCLES)  # type: ignore[no-untyped-call]

    def step(self, text: str) -> None:
        """Adds one step to what the call's fingerprint is made of."""
        if len(self._steps) < _MOST_STEPS:
            self._steps.append(text)

    def fingerprint(self) -> str | None:
        """A hash of the compiled code, the grids and the library calls, in order; None where they cannot be seen."""
        if not self._codes or self.replays or len(self._steps) == _MOST_STEPS:
            return None
        return hashlib.sha256("\n".join(self._steps).encode()).hexdigest()


class _LibraryCalls(TorchFunctionMode):
    """Notes calls of PyTorch's own functions, and holds their streams up."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs `func`."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in ("__get__", "__set__", "__delete__"):
            with torch._C.DisableTorchFunction():
                self._recorder.step(f"{name} {_shown((*args, *sorted(kwargs.items())))}")
                self._recorder.hold_up(_current_stream())
        return func(*args, **kwargs)


def _shown(value: Any) -> str:
    """What of an argument decides over the work: no values of tensors, no addresses."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{list(value.stride())}" if value.layout is torch.strided else "tensor"
    if isinstance(value, tuple | list):
        return "(" + ",".join(map(_shown, value)) + ")"
    plain = (int, float, str, torch.dtype, torch.device, type(None))
    return repr(value) if isinstance(value, plain) else type(value).__name__


def _current_stream() -> int:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    return int(torch.cuda.current_stream().cuda_stream)


class _State:
    """The recorder in force, if any."""

    recorder: Recorder | None = None


@contextmanager
def recording(conduct: str) -> Iterator[Recorder]:
    """While active, launches of compiled kernels and replays of graphs go through the recorder that it gives."""
    recorder = Recorder(conduct, _current_stream())
    kernel: Any = CompiledKernel
    graph: Any = torch.cuda.CUDAGraph
    plain_run, plain_replay = kernel.run, graph.replay

    def run(self: Any) -> Callable[..., None]:
        launch = plain_run.__get__(self)

        def launched(x: int, y: int, z: int, stream: int, *rest: Any) -> None:
            # PyTorch's compiler keeps what it finds here, beyond the end of the recording.
            if _State.recorder is None or _State.recorder.launch(self, (x, y, z), stream):
                launch(x, y, z, stream, *rest)

        return launched

    def replay(self: Any) -> None:
        if recorder.replay(_current_stream()):
            plain_replay(self)

    kernel.run, graph.replay = property(run), replay
    _State.recorder = recorder
    try:
        with _LibraryCalls(recorder):
            yield recorder
    finally:
        _State.recorder = None
        kernel.run, graph.replay = plain_run, plain_replay


def _code(kernel: Any) -> str:
    metadata = kernel.metadata
    options = {"warps": metadata.num_warps, "shared": metadata.shared}
    return code_fingerprint(kernel.asm["ptx"], metadata.name, options)


def _describe(kernel: Any) -> Json:
    """The resources of a compiled and loaded kernel, named as the compile nursery names them."""
    metadata = kernel.metadata
    return {
        "kernel": str(metadata.name),
        "hash": str(kernel.hash),
        "arch": f"sm_{metadata.target.arch}",
        "registers": int(kernel.n_regs or 0),
        "spills": int(kernel.n_spills or 0),
        "shared_bytes": int(metadata.shared or 0),
        "num_warps": int(metadata.num_warps),
        "num_stages": int(metadata.num_stages),
    }
