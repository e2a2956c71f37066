"""Tries what no candidate may do, prints how each attempt ended, and then answers honestly.

The test fills in `TOLD`: where things are that a candidate could guess or find out.
"""

import ctypes
import errno
import json
import os
import socket
import sys

import torch
import triton
import triton.language as tl
from torch import nn

TOLD = {}


def ended(action):
    """`done`, or the name of the error that ended an attempt."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "done"


def read(path):
    with open(path, "rb") as file:
        return file.read(1)


def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(5)
        connection.connect(address)


def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.sendto(b"x", address)


def through_link():
    os.symlink(TOLD["database"], "link")
    read("link")


def make_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def others():
    """Every other process that can be named: those in /proc, and those that the test told of."""
    visible = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    return sorted((visible | set(TOLD["processes"])) - {os.getpid()})


def descriptors():
    """What each open file but the standard streams is."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found += [os.readlink(f"/proc/self/fd/{name}")] if int(name) > 2 else []
        except OSError:
            continue
    return sorted(found)


def overwrite(path):
    """Only opens it: where nothing stops this, nothing may come of it either."""
    os.close(os.open(path, os.O_WRONLY))


def open_files(pid):
    names = os.listdir(f"/proc/{pid}/fd")
    if not names:
        raise FileNotFoundError(errno.ENOENT, "a thread of the kernel has none")
    for name in names:
        os.close(os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY | os.O_NONBLOCK))


def move_out():
    write("mine")
    os.rename("mine", TOLD["database"] + "-moved")


def of_others(action):
    """How an attempt ended with each other process; those that are not there are left out."""
    found = {str(pid): ended(lambda pid=pid: action(pid)) for pid in others()}
    return {pid: result for pid, result in found.items() if result not in ("ESRCH", "ENOENT")}


ATTEMPTS = {
    "environment": lambda: sorted(os.environ),
    "descriptors": descriptors,
    "input": lambda: sys.stdin.read() if sys.stdin else "",
    "others environ": lambda: of_others(lambda pid: read(f"/proc/{pid}/environ")),
    "others memory": lambda: of_others(lambda pid: read(f"/proc/{pid}/mem")),
    "others files": lambda: of_others(open_files),
    "others signal": lambda: of_others(lambda pid: os.kill(pid, 0)),
    "read database": lambda: ended(lambda: read(TOLD["database"])),
    "read database through a link": lambda: ended(through_link),
    "list the database's folder": lambda: ended(lambda: os.listdir(os.path.dirname(TOLD["database"]))),
    "link the database": lambda: ended(lambda: os.link(TOLD["database"], "linked")),
    "read the judge's log": lambda: ended(lambda: read(TOLD["log"])),
    "write database": lambda: ended(lambda: write(TOLD["database"])),
    "write beside the database": lambda: ended(lambda: write(TOLD["database"] + "-new")),
    "write beside the scratch folder": lambda: ended(lambda: os.mkdir("../mine")),
    "move out of the scratch folder": lambda: ended(move_out),
    "write packages": lambda: ended(lambda: overwrite(torch.__file__)),
    "write system settings": lambda: ended(lambda: overwrite("/proc/sys/kernel/core_pattern")),
    "write scratch": lambda: ended(lambda: (os.makedirs("a/b"), write("a/b/c"), os.rename("a/b/c", "d"))),
    "connect": lambda: ended(lambda: connect(socket.AF_INET, ("127.0.0.1", TOLD["port"]))),
    "send": lambda: ended(lambda: send(("127.0.0.1", TOLD["port"]))),
    "abstract socket": lambda: ended(lambda: connect(socket.AF_UNIX, TOLD["abstract"])),
    "named socket": lambda: ended(lambda: connect(socket.AF_UNIX, TOLD["named"])),
    "new namespace": lambda: ended(make_namespace),
}

print("FOUND", json.dumps({name: attempt() for name, attempt in ATTEMPTS.items()}), flush=True)


@triton.jit
def scale_kernel(x_ptr, bias_ptr, y_ptr, factor, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    tl.store(y_ptr + row * columns + column, x * factor + bias, mask=mask)


def snapshot():
    """Everything that this process could write to, as it is now."""
    pieces = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.read().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw") and end - start < 1 << 29:
                try:
                    memory.seek(start)
                    pieces.append(memory.read(end - start))
                except OSError:
                    continue
    return pieces


def bytes_of(x):
    """The bytes of a tensor's first four values."""
    return bytes(x[0, :4].contiguous().view(torch.uint8).tolist())


class ModelNew(nn.Module):
    def __init__(self, factor, columns):
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.zeros(columns))
        self.looked = False

    def forward(self, x):
        if not self.looked and x.shape[0] == 7:
            self.looked = True
            pieces = snapshot()
            # Only now, so that the search cannot find what it computed itself.
            wanted = {"given": bytes_of(x), "expected": bytes_of(x * self.factor + self.bias)}
            counts = {name: sum(piece.count(text) for piece in pieces) for name, text in wanted.items()}
            print("MEMORY", json.dumps(counts), flush=True)
        y = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, self.bias, y, self.factor, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
