"""A model's server over real HTTP that answers as it is told, request by request, and counts what it was not told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Exchange"], None]

KERNEL = '''"""{title}."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    tl.store(out_ptr + row * columns + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps={warps})
        return out
'''


def kernel(title: str = "One row a program", warps: int = 8) -> str:
    """A module that a model might write; it is right."""
    return KERNEL.format(title=title, warps=warps)


def module_answer(title: str = "One row a program", warps: int = 8) -> str:
    """An answer that holds a module."""
    return f"IDEA: {title.lower()}\n\n```python\n{kernel(title, warps)}```\n"


def edit_answer(search: str, replace: str, idea: str = "other warps") -> str:
    """An answer that holds an edit."""
    return f"IDEA: {idea}\n\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


@dataclass(slots=True)
class Exchange:
    """One request and the means to answer it. `at` is in seconds of a monotonic clock."""

    path: str
    headers: Mapping[str, str]
    body: Any
    handler: BaseHTTPRequestHandler
    closing: threading.Event
    at: float = field(default_factory=time.monotonic)

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        messages = self.body.get("messages") or self.body["input"]
        return str(messages[-1]["content"])

    def send(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        """A whole answer."""
        self.handler.send_response(status)
        self.handler.send_header("content-type", kind)
        self.handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def begin_stream(self) -> None:
        """The head of a stream in chunks."""
        self.handler.send_response(200)
        self.handler.send_header("content-type", "text/event-stream")
        self.handler.send_header("transfer-encoding", "chunked")
        self.handler.end_headers()

    def event(self, data: object, name: str = "") -> None:
        """One event of a stream."""
        text = data if isinstance(data, str) else json.dumps(data)
        line = f"event: {name}\n" if name else ""
        self.chunk(f"{line}data: {text}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        """Some bytes of a stream."""
        self.handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.handler.wfile.flush()

    def end_stream(self) -> None:
        """The end of a stream, as the protocol demands it."""
        self.event("[DONE]")
        self.handler.wfile.write(b"0\r\n\r\n")


class ModelServer:
    """Answers from `script` in order, then with `otherwise`; what neither tells is an error and is counted."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.otherwise: Answer | None = None
        self.requests: list[Exchange] = []
        self.untold = 0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                exchange = Exchange(
                    self.path,
                    {name.lower(): value for name, value in self.headers.items()},
                    body,
                    self,
                    server._closing,
                )
                # A client that has seen enough hangs up.
                with contextlib.suppress(ConnectionError):
                    server._next(exchange)(exchange)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """What `--base-url` takes."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def _next(self, exchange: Exchange) -> Answer:
        with self._lock:
            self.requests.append(exchange)
            if self.script:
                return self.script.pop(0)
            if self.otherwise is not None:
                return self.otherwise
            self.untold += 1
            return status(418, "the server was not told what to answer")

    def stop_listening(self) -> None:
        """No new request gets through any more."""
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.stop_listening()


# Answers


def says(
    text: str,
    *,
    finish: str | None = "stop",
    usage: Mapping[str, Any] | None = None,
    piece: int = 200,
    thoughts: str = "",
) -> Answer:
    """A chat completion, streamed in pieces; without `usage` the server counts characters as tokens."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        if thoughts:
            exchange.event(_delta({"reasoning_content": thoughts}))
        for piece_of in _pieces(text, piece):
            exchange.event(_delta({"content": piece_of}))
        if finish is not None:
            exchange.event(_delta({}, finish))
        counted = (
            usage if usage is not None else {"prompt_tokens": len(exchange.prompt), "completion_tokens": len(text)}
        )
        if counted:
            exchange.event({**_CHUNK, "choices": [], "usage": {"total_tokens": 0, **counted}})
        exchange.end_stream()

    return answer


def refuses(text: str = "I cannot help with that.") -> Answer:
    """A refusal."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.event(_delta({"refusal": text}))
        exchange.event(_delta({}, "stop"))
        exchange.end_stream()

    return answer


def events(*sent: object) -> Answer:
    """A stream of the given events, ended in order."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        for data in sent:
            exchange.event(data)
        exchange.end_stream()

    return answer


def drops(text: str = "IDEA: half of a ke") -> Answer:
    """A stream that breaks off in the middle."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.event(_delta({"content": text}))
        exchange.handler.close_connection = True
        exchange.handler.connection.shutdown(2)

    return answer


def trickles(piece: str = "x", pause_s: float = 0.02) -> Answer:
    """A stream that never ends and is never silent for long."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        while not exchange.closing.wait(pause_s):
            exchange.event(_delta({"content": piece}))

    return answer


def is_silent(after: str = "") -> Answer:
    """Nothing at all, or nothing more after a first piece."""

    def answer(exchange: Exchange) -> None:
        if after:
            exchange.begin_stream()
            exchange.event(_delta({"content": after}))
        exchange.closing.wait(20)

    return answer


def status(code: int, message: str = "", *, error: Mapping[str, Any] | None = None, **headers: str) -> Answer:
    """An error as OpenAI words it."""

    def answer(exchange: Exchange) -> None:
        document = {"error": {"message": message, "type": "error", **(error or {})}}
        exchange.send(code, "application/json", json.dumps(document).encode(), **headers)

    return answer


def sends(body: str, kind: str = "application/json") -> Answer:
    """A whole answer of any kind."""
    return lambda exchange: exchange.send(200, kind, body.encode())


def responds(text: str, *, usage: Mapping[str, Any] | None = None, state: str = "completed", **more: object) -> Answer:
    """An answer of the responses interface, streamed."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        for number, piece in enumerate(_pieces(text, 200)):
            exchange.event(
                {"type": "response.output_text.delta", "delta": piece, "sequence_number": number},
                "response.output_text.delta",
            )
        document = {"id": "r", "object": "response", "status": state, "output": [], "usage": usage, **more}
        exchange.event({"type": f"response.{state}", "response": document, "sequence_number": 99}, f"response.{state}")
        exchange.end_stream()

    return answer


_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "tiny"}


def _delta(delta: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
    return {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _pieces(text: str, size: int) -> Iterator[str]:
    yield from (text[start : start + size] for start in range(0, len(text), size))


def prompts(exchanges: Sequence[Exchange]) -> list[str]:
    """The last message of each request."""
    return [exchange.prompt for exchange in exchanges]
