"""What a candidate's process may read and write, as two lists of paths for Landlock.

Everything that is on no list is out of reach: databases, home folders, other candidates' files, the
judge's. Standard library only.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import pwd
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from engine.judging import sandbox_kernel as kernel
from engine.judging.sandbox_kernel import Access, Ruleset

_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/sys", "/proc"),
    # Where distributions without /usr keep libraries and drivers.
    *("/nix/store", "/gnu/store", "/run/opengl-driver"),
)
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf"),
    *("/etc/passwd", "/etc/group", "/etc/nvidia", "/etc/OpenCL"),
)
_SOURCES = ("/dev/zero", "/dev/random", "/dev/urandom")
_SINKS = ("/dev/null", "/dev/full")
_DRIVER_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dxg", "/dev/shm")
"""Files of the CUDA driver, and the folder in which torch counts who holds shared memory."""

_PATH_VARIABLES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_COMPILERS = ("cc", "gcc", "g++", "clang", "nvcc")
_PACKAGES = ("torch", "triton", "numpy")
_NEVER = ("/", "/home", "/root", "/tmp", "/var", "/etc", "/mnt", "/srv", "/opt", "/run", "/dev")
"""Top folders that are never allowed as a whole, whatever variable names them."""


@cache
def _readable() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths that every child of this process may read, and folders that it may only list."""
    whole = {sys.prefix, sys.base_prefix, sys.exec_prefix, *_SYSTEM, *_SETTINGS}
    whole |= set(sysconfig.get_paths().values())
    whole.add(str(Path(__file__).parents[1]))
    if site.ENABLE_USER_SITE:
        whole.add(site.getusersitepackages())
    found = {*_named_by_variables(), *_of_loaded_libraries(), *_of_compilers()}
    whole |= {path for path in map(os.path.realpath, found) if not _too_wide(path)}
    listed: set[str] = set()
    for entry in sys.path:
        if os.path.basename(entry) in ("site-packages", "dist-packages") or entry.endswith(".zip"):
            whole.add(entry)
        elif os.path.isdir(entry) and not any(_beneath(entry, folder) for folder in whole):
            # A project's own folder may hold a database or keys beside its packages.
            listed.add(entry)
            whole |= set(_modules_in(entry))
    for name in _PACKAGES:
        whole |= set(_folders_of(name))
    for folder in [path for path in whole if os.path.basename(path) in ("site-packages", "dist-packages")]:
        whole |= set(_linked_from(folder))
    return tuple(sorted({os.path.realpath(path) for path in whole if path})), tuple(sorted(listed))


def _too_wide(path: str) -> bool:
    """Whether a folder holds whatever people keep: a top folder, or the user's home, such as `bin/gcc` in it names."""
    homes: list[str] = []
    # Some containers run users that have no entry; HOME is a private folder here.
    with contextlib.suppress(KeyError):
        homes.append(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    return path in {os.path.realpath(folder) for folder in _NEVER} or any(_beneath(home, path) for home in homes)


def _beneath(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _named_by_variables() -> Iterable[str]:
    for name, value in os.environ.items():
        if name in _PATH_VARIABLES or (name.startswith("TRITON_") and name.endswith("_PATH")):
            yield from (entry for entry in value.split(os.pathsep) if entry.startswith("/"))


def _of_loaded_libraries() -> Iterable[str]:
    """The folders of the libraries in this process, and of those that the system's loader looks through."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[5:]
            if path and path[0].startswith("/") and ".so" in path[0]:
                yield os.path.dirname(path[0])
    for name in glob.glob("/etc/ld.so.conf.d/*.conf"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            yield from (line.strip() for line in Path(name).read_text().splitlines() if line.startswith("/"))


def _of_compilers() -> Iterable[str]:
    """Where the compilers that Triton may call are installed."""
    for name in (*_COMPILERS, os.environ.get("CC", "")):
        found = shutil.which(name) if name else None
        if found is not None:
            yield str(Path(os.path.realpath(found)).parents[1])


def _modules_in(folder: str) -> Iterable[str]:
    """The Python modules and packages right beneath a folder."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith((".py", ".so")) or os.path.isfile(os.path.join(entry.path, "__init__.py")):
                yield entry.path


def _folders_of(package: str) -> Iterable[str]:
    """The folders of a package, wherever it is installed; it is not imported."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package)
        yield from (spec.submodule_search_locations or ()) if spec is not None else ()


def _linked_from(folder: str) -> Iterable[str]:
    """Where the symbolic links in a folder of packages lead: some installers keep the files elsewhere."""
    with contextlib.suppress(OSError):
        yield from (os.path.realpath(entry.path) for entry in os.scandir(folder) if entry.is_symlink())


def ruleset(abi: int, scratch: str, *, gpu: bool, signals: bool, sockets: bool, network: bool) -> Ruleset:
    """The lists for one candidate's process; `allow_itself` completes them in the process itself.

    Args:
        abi: the version of Landlock.
        scratch: the one folder that the process may write.
        gpu: whether the process uses a GPU.
        signals: forbid signals to other processes.
        sockets: forbid abstract sockets of other processes; CUDA needs those to take over memory.
        network: forbid TCP.

    Raises:
        OSError: the kernel refuses.
    """
    rules = Ruleset(abi, signals=signals, sockets=sockets and not gpu, network=network)
    try:
        whole, listed = _readable()
        rules.allow(whole, kernel.READ)
        rules.allow(listed, Access.READ_DIR)
        rules.allow((scratch,), kernel.READ | kernel.WRITE)
        rules.allow(_SOURCES, Access.READ_FILE)
        rules.allow(_SINKS, Access.READ_FILE | Access.WRITE_FILE | Access.TRUNCATE)
        if gpu:
            rules.allow(("/dev",), Access.READ_DIR)
            nodes = [path for pattern in _DRIVER_FILES for path in glob.glob(pattern)]
            rules.allow(nodes, kernel.READ | kernel.WRITE | Access.IOCTL_DEV)
    except OSError:
        rules.close()
        raise
    return rules


def allow_itself(rules: Ruleset) -> None:
    """Lets the calling process write its own entry in /proc, where CUDA names its threads."""
    rules.allow((f"/proc/{os.getpid()}",), kernel.READ | Access.WRITE_FILE | Access.TRUNCATE)
