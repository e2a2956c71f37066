"""A process in which kernels are compiled: answers one JSON request a line on its standard output."""

from __future__ import annotations

import json
import sys

from engine.judging.workers.compiler import compile_launches

for line in sys.stdin:
    request = json.loads(line)
    reply = compile_launches(request["source"], request["launches"], request["arch"])
    print(json.dumps(reply), flush=True)
