"""Memory that judge and contestant share: one arena for inputs, one for weights, one for outputs.

The judge allocates every arena and alone hands out handles, so that nothing it maps or opens comes
from a candidate: a memfd where there is no GPU, CUDA IPC where there is one. On a GPU each arena has a
memory pool of its own, because IPC opens whole allocator segments to the other side. Whatever the
contestant wrote is copied into the judge's private memory before it is looked at; memfds are read
with `pread` and sealed against shrinking, since a mapping could be cut off under the judge.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engine.judging.workers.values import dtype_name, dtype_of

_ALIGNMENT = 256
"""Bytes between tensors: what torch's own allocators promise, so that kernels specialise alike."""


MARGIN = 256 << 10
"""Bytes around inputs and allocations on a GPU that a checked call must leave alone."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one tensor lies in an arena: byte offset, shape, strides in elements, dtype."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """The size of the tensor's memory."""
        count = 1
        for length in self.shape:
            count *= length
        return count * self.dtype.itemsize

    def to_json(self) -> list[Any]:
        """The slot as it travels."""
        return [self.offset, list(self.shape), list(self.stride), dtype_name(self.dtype)]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Slot:
        """The slot in a message from the judge."""
        return cls(fields[0], tuple(fields[1]), tuple(fields[2]), dtype_of(fields[3]))


def _dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """The tensor's own strides where it fills its memory without gaps or overlaps, else contiguous ones."""
    expected = 1
    for length, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if length != 1 and stride != expected:
            return tuple(torch.empty(tensor.shape, device="meta").stride())
        expected *= length
    return tuple(tensor.stride())


def lay_out(tensors: Sequence[torch.Tensor], margin: int = 0) -> tuple[list[Slot], int]:
    """Slots for copies of `tensors`, and the size in bytes of the arena that holds them.

    `margin` bytes are left free before the first slot and behind each one.
    """
    slots, offset = [], margin
    for tensor in tensors:
        slot = Slot(offset, tuple(tensor.shape), _dense_stride(tensor), tensor.dtype)
        slots.append(slot)
        offset += -(-max(slot.bytes, 1) // _ALIGNMENT) * _ALIGNMENT + margin
    return slots, max(offset, _ALIGNMENT)


class Arena(Protocol):
    """The judge's side of one piece of shared memory."""

    slots: list[Slot]
    size: int

    def handle(self) -> dict[str, Any]:
        """What the contestant needs to map the arena, beside `descriptors`."""

    def descriptors(self) -> list[int]:
        """File descriptors to send along with the handle."""

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """Puts the tensors into their slots; done when it returns."""

    def read(self) -> list[torch.Tensor]:
        """Private copies of what the slots hold now."""

    def overrun(self) -> bool:
        """Whether anything outside the slots has changed since the last `write`, as far as that is watched."""

    def poison(self) -> None:
        """Overwrites everything with bytes that are NaN in every float dtype."""

    def close(self) -> None:
        """Gives the memory back."""


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy; the tensor must outlive the view."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


class MemfdArena:
    """Shared memory on a machine without a GPU."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.slots, self.size = lay_out(tensors)
        self._descriptor = os.memfd_create("kernelgrove", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, self.size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)

    def handle(self) -> dict[str, Any]:
        """See Arena."""
        return {"kind": "memfd", "size": self.size, "slots": [slot.to_json() for slot in self.slots]}

    def descriptors(self) -> list[int]:
        """See Arena."""
        return [self._descriptor]

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """See Arena."""
        for slot, tensor in zip(self.slots, tensors, strict=True):
            ordered = torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype)
            ordered.copy_(tensor.detach())
            self._put(slot.offset, memory_of(ordered))

    def _put(self, offset: int, view: memoryview) -> None:
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def read(self) -> list[torch.Tensor]:
        """See Arena."""
        copies = []
        for slot in self.slots:
            copy = torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype)
            view, offset = memory_of(copy), slot.offset
            while view:
                count = os.preadv(self._descriptor, [view], offset)
                view, offset = view[count:], offset + count
            copies.append(copy)
        return copies

    def overrun(self) -> bool:
        """See Arena; interpreted kernels are kept inside their tensors by `bounds`."""
        return False

    def poison(self) -> None:
        """See Arena."""
        for slot in self.slots:
            self._put(slot.offset, memoryview(b"\xff" * slot.bytes))

    def close(self) -> None:
        """See Arena."""
        os.close(self._descriptor)


_PATTERNS = (0xFF, 0x3F)
"""What margins hold in turn, byte by byte: NaN or a small positive number in every float dtype."""


class CudaArena:
    """Shared memory on a GPU: one flat allocation in a pool of its own, since IPC opens a whole segment.

    An arena is lent to one process after another: torch keeps memory that it has exported until every
    receiver said that it is done, and a killed one never says so.
    """

    def __init__(self, size: int, device: torch.device, owner: CudaArenas) -> None:
        from torch.multiprocessing.reductions import reduce_tensor

        self.slots: list[Slot] = []
        self.size = size
        self.margin = 0
        self._pattern = 0
        self._owner = owner
        self._pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pool, device):
            self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        _, arguments = reduce_tensor(self._memory)  # type: ignore[no-untyped-call]
        self._handle = [_packed(argument) for argument in arguments]

    def handle(self) -> dict[str, Any]:
        """See Arena."""
        return {"kind": "cuda", "handle": self._handle, "slots": [slot.to_json() for slot in self.slots]}

    def descriptors(self) -> list[int]:
        """See Arena."""
        return []

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """See Arena; margins hold something else each time, so that no answer may depend on them."""
        if self.margin:
            self._pattern = _PATTERNS[self._pattern == _PATTERNS[0]]
            self._memory.fill_(self._pattern)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            _view(self._memory, slot).copy_(tensor.detach())
        torch.cuda.synchronize(self._memory.device)

    def read(self) -> list[torch.Tensor]:
        """See Arena."""
        copies = [_view(self._memory, slot).clone() for slot in self.slots]
        torch.cuda.synchronize(self._memory.device)
        return copies

    def overrun(self) -> bool:
        """See Arena."""
        if not self.margin:
            return False
        ends = [0, *(slot.offset + slot.bytes for slot in self.slots)]
        starts = [*(slot.offset for slot in self.slots), ends[-1] + self.margin]
        changed = [(self._memory[end:start] != self._pattern).any() for end, start in zip(ends, starts, strict=True)]
        return bool(torch.stack(changed).any())

    def poison(self) -> None:
        """See Arena."""
        self._memory.fill_(0xFF)
        torch.cuda.synchronize(self._memory.device)

    def close(self) -> None:
        """See Arena; the memory itself stays for the next process. The last one must have ended."""
        self._owner.give_back(self)


class CudaArenas:
    """Lends arenas on one GPU and takes them back. Safe to use from several threads."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[CudaArena] = []
        self._lock = threading.Lock()

    def lend(self, tensors: Sequence[torch.Tensor], margin: int = 0) -> CudaArena:
        """The smallest free arena that holds copies of `tensors` without wasting more than half, or a new one."""
        slots, size = lay_out(tensors, margin)
        with self._lock:
            fitting = [arena for arena in self._free if size <= arena.size <= max(2 * size, 2 << 20)]
            if fitting:
                arena = min(fitting, key=lambda arena: arena.size)
                self._free.remove(arena)
            else:
                arena = CudaArena(size, self._device, self)
        arena.slots, arena.margin = slots, margin
        return arena

    def give_back(self, arena: CudaArena) -> None:
        """Takes an arena whose process has ended, and leaves nothing in it for the next one."""
        arena.poison()
        with self._lock:
            self._free.append(arena)


def _view(memory: torch.Tensor, slot: Slot) -> torch.Tensor:
    flat = memory[slot.offset : slot.offset + slot.bytes].view(slot.dtype)
    return flat.as_strided(slot.shape, slot.stride, flat.storage_offset())


# torch's reduction of a CUDA tensor is a tuple of numbers, bytes, sizes, a dtype and two classes.
def _packed(argument: Any) -> Any:
    if isinstance(argument, bytes):
        return {"bytes": base64.b64encode(argument).decode()}
    if isinstance(argument, torch.Size):
        return {"size": list(argument)}
    if isinstance(argument, torch.dtype):
        return {"dtype": dtype_name(argument)}
    if isinstance(argument, torch.device):
        return {"device": str(argument)}
    if argument is torch.Tensor:
        return {"class": "tensor"}
    if isinstance(argument, type):
        return {"class": "storage", "typed": issubclass(argument, torch.storage.TypedStorage)}
    return list(argument) if isinstance(argument, tuple) else argument


def _unpacked(form: Any) -> Any:
    if not isinstance(form, dict):
        return tuple(form) if isinstance(form, list) else form
    if "bytes" in form:
        return base64.b64decode(form["bytes"])
    if "size" in form:
        return torch.Size(form["size"])
    if "dtype" in form:
        return dtype_of(form["dtype"])
    if "device" in form:
        return torch.device(form["device"])
    if form["class"] == "tensor":
        return torch.Tensor
    return torch.storage.TypedStorage if form["typed"] else torch.UntypedStorage


def map_arena(handle: dict[str, Any], descriptors: Sequence[int]) -> list[torch.Tensor]:
    """The tensors of an arena in the contestant, on the judge's memory. Takes over the descriptors."""
    slots = [Slot.from_json(fields) for fields in handle["slots"]]
    if handle["kind"] == "cuda":
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        rebuild: Any = rebuild_cuda_tensor
        memory = rebuild(*[_unpacked(form) for form in handle["handle"]])
        return [_view(memory, slot) for slot in slots]
    (descriptor,) = descriptors
    mapping = mmap.mmap(descriptor, handle["size"])
    os.close(descriptor)
    tensors = []
    for slot in slots:
        if slot.bytes == 0:
            tensors.append(torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype))
            continue
        flat = torch.frombuffer(mapping, dtype=torch.uint8, count=slot.bytes, offset=slot.offset)
        tensors.append(flat.view(slot.dtype).as_strided(slot.shape, slot.stride))
    return tensors
