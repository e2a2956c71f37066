"""How every worker process starts: bound to the engine's life, with one channel to it.

The engine runs an interpreter with a few lines (`engine.judging.processes`) that register the
`engine` package by its folder and call `run` here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback

from engine.judging.wire import Channel, WireClosed
from engine.judging.workers import lifetime


def run(module: str, descriptor: int, engine: int) -> None:
    """Runs a worker's `main(channel)`.

    Args:
        module: the worker's module.
        descriptor: the inherited socket to the engine.
        engine: the engine's process id; this process dies with it.
    """
    lifetime.die_with_parent(engine)
    channel = Channel.from_descriptor(descriptor)
    # Children of a worker must not hold the engine's socket open.
    os.set_inheritable(descriptor, False)
    try:
        importlib.import_module(module).main(channel)
    except (WireClosed, KeyboardInterrupt):
        pass
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(WireClosed):
            channel.send({"event": "failed", "kind": "machine", "message": f"{type(error).__name__}: {error}"})
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()
    # Threads of torch or of an unfinished examination must not keep a worker alive.
    os._exit(0)
