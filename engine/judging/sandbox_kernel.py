"""The kernel's own interface for confining processes, where Python has none: Landlock, namespaces, capabilities.

Thin and policy-free; what is allowed to whom is decided in `sandbox_files` and `sandbox_namespaces`.
Linux only; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable
from enum import IntFlag

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# The numbers of system calls added since Linux 5.0 are the same on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

CAP_DAC_OVERRIDE = 1
"""The capability to pass over a file's owner and mode."""

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


class Access(IntFlag):
    """What Landlock can forbid on files (`linux/landlock.h`)."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
WRITE = (
    Access.WRITE_FILE
    | Access.REMOVE_DIR
    | Access.REMOVE_FILE
    | Access.MAKE_DIR
    | Access.MAKE_REG
    | Access.MAKE_SOCK
    | Access.MAKE_FIFO
    | Access.MAKE_SYM
    | Access.REFER
    | Access.TRUNCATE
)
_ON_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV

_FIRST_ABI = {2: Access.REFER, 3: Access.TRUNCATE, 5: Access.IOCTL_DEV}
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_NETWORK = 0b11
_SCOPE_SOCKETS, _SCOPE_SIGNALS = 0b01, 0b10


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def landlock_abi() -> int:
    """The version of Landlock that the kernel offers; 0 where it has none or it is switched off."""
    version = ctypes.c_uint32(_LANDLOCK_CREATE_RULESET_VERSION)
    return max(0, int(_libc.syscall(ctypes.c_long(_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), version)))


def abi_confines_signals(abi: int) -> bool:
    """Whether this version of Landlock keeps signals and abstract sockets inside."""
    return abi >= _SCOPE_ABI


def abi_confines_network(abi: int) -> bool:
    """Whether this version of Landlock can forbid TCP."""
    return abi >= _NETWORK_ABI


class Ruleset:
    """A list of what remains allowed; everything else that the kernel's Landlock knows is forbidden once entered.

    Every method raises OSError where the kernel refuses.
    """

    def __init__(self, abi: int, *, signals: bool, sockets: bool, network: bool) -> None:
        """Makes an empty list.

        Args:
            abi: what `landlock_abi` gave.
            signals: forbid signals to processes outside.
            sockets: forbid abstract sockets of processes outside.
            network: forbid TCP.
        """
        self._known = Access((1 << 13) - 1)
        for first, access in _FIRST_ABI.items():
            if abi >= first:
                self._known |= access
        scoped = (_SCOPE_SIGNALS if signals else 0) | (_SCOPE_SOCKETS if sockets else 0)
        attributes = _RulesetAttributes(
            self._known,
            _NETWORK if network and abi_confines_network(abi) else 0,
            scoped if abi_confines_signals(abi) else 0,
        )
        # An older kernel refuses a structure with fields that it does not know.
        size = 24 if abi_confines_signals(abi) else 16 if abi_confines_network(abi) else 8
        self._descriptor = _checked(
            _libc.syscall(
                ctypes.c_long(_LANDLOCK_CREATE_RULESET),
                ctypes.byref(attributes),
                ctypes.c_size_t(size),
                ctypes.c_uint32(0),
            )
        )

    def fileno(self) -> int:
        """The list's descriptor."""
        return self._descriptor

    def allow(self, paths: Iterable[str], access: Access) -> None:
        """Allows `access` to each path and what lies beneath it; a path that is not there is passed over."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError, OSError):
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    self._allow(descriptor, access)
                finally:
                    os.close(descriptor)

    def _allow(self, descriptor: int, access: Access) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _ON_FILES
        rule = _PathBeneath(access & self._known, descriptor)
        _checked(
            _libc.syscall(
                ctypes.c_long(_LANDLOCK_ADD_RULE),
                ctypes.c_int(self._descriptor),
                ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        )

    def enter(self) -> None:
        """Confines the calling thread, and what it starts from now on, for good; needs `no_new_privileges`."""
        _checked(
            _libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_int(self._descriptor), ctypes.c_uint32(0))
        )

    def close(self) -> None:
        """Gives the list's descriptor back."""
        os.close(self._descriptor)


def unshare(flags: int) -> None:
    """Moves the calling process into new namespaces; OSError where that is not permitted."""
    _checked(_libc.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Attaches a file system at `target`; OSError where that is not permitted."""
    _checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            options.encode() if options else None,
        )
    )


def _prctl(option: int, first: int, second: int = 0) -> None:
    arguments = [ctypes.c_ulong(value) for value in (first, second, 0, 0)]
    _checked(_libc.prctl(ctypes.c_int(option), *arguments))


def no_new_privileges() -> None:
    """Has no program that this process starts gain rights, set-user-id ones included."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_memory(hidden: bool = True) -> None:
    """Keeps memory, environment and descriptors of this process from others of the same user, or shows them again."""
    _prctl(_PR_SET_DUMPABLE, 0 if hidden else 1)


def drop_capabilities(keep: Iterable[int] = ()) -> None:
    """Gives up every capability of this process and of what it starts, but those in `keep`."""
    kept = set(keep)
    with contextlib.suppress(OSError):
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(64):
        # The bounding set needs a capability itself to be changed; an ordinary user has none to lose.
        with contextlib.suppress(OSError):
            if number not in kept:
                _prctl(_PR_CAPBSET_DROP, number)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)()
    _checked(_libc.capget(ctypes.byref(header), data))
    for index in (0, 1):
        mask = sum(1 << (number - 32 * index) for number in kept if number // 32 == index)
        data[index].permitted &= mask
        data[index].effective = data[index].permitted
        data[index].inheritable = 0
    _checked(_libc.capset(ctypes.byref(header), data))
