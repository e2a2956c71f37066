"""The layers between a candidate and everything else, and which of them are in force.

Each layer is used where the kernel offers it. `NAMESPACES` are entered by the launcher, the rest by each
candidate's own process before the candidate's code runs. `KERNELGROVE_SANDBOX` leaves layers out, to find
out which one stands in the way: `off`, or names such as `no-landlock,no-network`. Standard library only.
"""

from __future__ import annotations

import os
import resource
from dataclasses import asdict, dataclass
from typing import Any

from engine.judging import sandbox_files
from engine.judging import sandbox_kernel as kernel
from engine.judging.sandbox_kernel import Ruleset
from engine.judging.sandbox_namespaces import NAMESPACES, USER

VARIABLE = "KERNELGROVE_SANDBOX"

FILES, SIGNALS, SOCKETS, TCP = "landlock", "signals", "sockets", "tcp"
PRIVILEGES, PROCESS_LIMIT = "privileges", "process-limit"
LAYERS = (*NAMESPACES, FILES, SIGNALS, SOCKETS, TCP, PRIVILEGES, PROCESS_LIMIT)

_FIRST_USABLE_ABI = 2
"""Before it Landlock forbids every move of a file between folders, which Triton's cache needs."""

MAX_PROCESSES = max(4096, 64 * (os.cpu_count() or 1))
"""Processes and threads of one user inside the sandbox, those of the judge and of PyTorch's compiler included."""


def wanted(setting: str) -> tuple[str, ...]:
    """The layers that a setting leaves in.

    Raises:
        ValueError: one sentence that says what the setting may be.
    """
    words = [word for word in setting.replace(",", " ").split() if word != "auto"]
    if words == ["off"]:
        return ()
    left_out = {word.removeprefix("no-") for word in words if word.startswith("no-")}
    if len(left_out) != len(words) or not left_out <= set(LAYERS):
        names = ", ".join(f"no-{name}" for name in LAYERS)
        raise ValueError(f"{VARIABLE} is {setting!r}: set it to auto, off, or some of {names}")
    return tuple(name for name in LAYERS if name not in left_out)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The layers in force for candidates.

    Attributes:
        layers: names out of `LAYERS`.
        abi: the version of Landlock in use; 0 where it is not.
    """

    layers: tuple[str, ...]
    abi: int

    @classmethod
    def with_namespaces(cls, asked: tuple[str, ...], entered: tuple[str, ...]) -> Sandbox:
        """What can be in force of the layers asked for, given the namespaces entered already."""
        abi = kernel.landlock_abi() if FILES in asked else 0
        if abi < _FIRST_USABLE_ABI:
            abi = 0
        offered = {
            FILES: abi > 0,
            SIGNALS: kernel.abi_confines_signals(abi),
            SOCKETS: kernel.abi_confines_signals(abi),
            TCP: kernel.abi_confines_network(abi),
            PRIVILEGES: True,
            # Elsewhere it would count whatever else the user runs on the machine.
            PROCESS_LIMIT: USER in entered,
        }
        return cls(entered + tuple(name for name, there in offered.items() if there and name in asked), abi)

    def to_json(self) -> dict[str, Any]:
        """The layers in a message to a worker."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Sandbox:
        """The layers in a message from the engine."""
        return cls(tuple(fields["layers"]), int(fields["abi"]))

    @property
    def hides_memory(self) -> bool:
        """Whether a candidate is kept out of the memory of every other process of its user."""
        return FILES in self.layers

    @property
    def exposes_engine(self) -> bool:
        """Whether only the engine itself can keep a candidate out of its memory and environment."""
        return PRIVILEGES in self.layers and not self.hides_memory and USER not in self.layers

    @property
    def exposes_workers(self) -> bool:
        """Whether only judge and nursery themselves can keep a candidate out of their memory."""
        return PRIVILEGES in self.layers and not self.hides_memory

    def prepare(self, scratch: str, gpu: bool) -> Ruleset | None:
        """The lists of files for one candidate's process, made before it is forked.

        Raises:
            OSError: the kernel refuses.
        """
        if FILES not in self.layers:
            return None
        return sandbox_files.ruleset(
            self.abi,
            scratch,
            gpu=gpu,
            signals=SIGNALS in self.layers,
            sockets=SOCKETS in self.layers,
            network=TCP in self.layers,
        )

    def enter(self, rules: Ruleset | None) -> None:
        """Confines the calling process, which must have one thread, for good.

        Raises:
            OSError: the kernel refuses; the process must not go on.
        """
        if PROCESS_LIMIT in self.layers:
            _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            most = MAX_PROCESSES if hard == resource.RLIM_INFINITY else min(MAX_PROCESSES, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        if PRIVILEGES in self.layers:
            # Root may judge in a folder of another user; where Landlock says what is readable, that stays possible.
            kernel.drop_capabilities(keep=(kernel.CAP_DAC_OVERRIDE,) if rules is not None else ())
        if PRIVILEGES in self.layers or rules is not None:
            kernel.no_new_privileges()
        if rules is not None:
            sandbox_files.allow_itself(rules)
            rules.enter()
            rules.close()


def setting() -> str:
    """The setting of this process's environment."""
    return os.environ.get(VARIABLE, "") or "auto"
