"""Framed messages between the engine and the judge's processes, over local sockets.

A frame is a four-byte big-endian length, a one-byte count of file descriptors, and that many bytes
of JSON; the descriptors travel with the header (SCM_RIGHTS). Nothing is ever unpickled, and a
receiver names the largest frame and the number of descriptors it accepts, because the other side
may be a candidate's process. Only the standard library is imported here.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

MAX_FRAME_BYTES = 64 << 20
"""The largest frame taken from a trusted process."""

MAX_DESCRIPTORS = 16
"""The most file descriptors that one frame may carry."""

_HEADER = struct.Struct(">IB")


class WireError(Exception):
    """What arrived is no frame, or a larger one than the receiver accepts."""


class WireClosed(Exception):
    """The other side is gone."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message; ValueError for numbers that JSON cannot express (NaN, infinity)."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def decode(body: bytes | bytearray) -> Message:
    """The message in `body`; WireError when it is not a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame holds no JSON: {type(error).__name__}") from error
    if not isinstance(message, dict):
        raise WireError("a frame holds JSON that is no object")
    return message


def _header(body: bytes, descriptors: Sequence[int]) -> bytes:
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a message of {len(body)} bytes is larger than a frame may be")
    if len(descriptors) > MAX_DESCRIPTORS:
        raise WireError(f"{len(descriptors)} descriptors are more than a frame may carry")
    return _HEADER.pack(len(body), len(descriptors))


def _ancillary(descriptors: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]


class Channel:
    """A blocking end of a connection. Sending is safe from several threads, receiving from one."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._socket = connection
        self._send_lock = threading.Lock()

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        """The channel on an inherited socket, which it owns from now on."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The socket's descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one message; the descriptors stay open here. Raises WireClosed when nobody listens."""
        body = encode(message)
        header = _header(body, descriptors)
        try:
            with self._send_lock:
                sent = self._socket.sendmsg([header, body], _ancillary(descriptors))
                rest = (header + body)[sent:]
                if rest:
                    self._socket.sendall(rest)
        except OSError as error:
            raise WireClosed(str(error)) from error

    def receive(self, max_bytes: int = MAX_FRAME_BYTES, max_descriptors: int = 0) -> tuple[Message, list[int]]:
        """Waits for one message and its descriptors, which the caller owns.

        Raises WireClosed at the end of the connection and WireError for anything that is no frame.
        """
        descriptors: list[int] = []
        try:
            header = self._receive_header(max_descriptors, descriptors)
            length, count = _HEADER.unpack(header)
            if length > max_bytes:
                raise WireError(f"a frame of {length} bytes is larger than the {max_bytes} accepted")
            if count != len(descriptors):
                raise WireError(f"a frame announced {count} descriptors and carried {len(descriptors)}")
            body = bytearray(length)
            view = memoryview(body)
            while view:
                view = view[self._checked(self._socket.recv_into(view)) :]
            return decode(body), descriptors
        except BaseException as error:
            for descriptor in descriptors:
                os.close(descriptor)
            if isinstance(error, OSError):
                raise WireClosed(str(error)) from error
            raise

    def _receive_header(self, max_descriptors: int, descriptors: list[int]) -> bytes:
        header = b""
        while len(header) < _HEADER.size:
            if max_descriptors:
                space = socket.CMSG_SPACE(max_descriptors * array.array("i").itemsize)
                chunk, ancillary, _, _ = self._socket.recvmsg(
                    _HEADER.size - len(header), space, socket.MSG_CMSG_CLOEXEC
                )
                for level, kind, payload in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        received = array.array("i")
                        received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                        descriptors.extend(received)
            else:
                # Without room for them the kernel drops descriptors that were sent along.
                chunk = self._socket.recv(_HEADER.size - len(header))
            self._checked(len(chunk))
            header += chunk
        return header

    @staticmethod
    def _checked(count: int) -> int:
        if count == 0:
            raise WireClosed("the other side closed the connection")
        return count

    def shutdown(self) -> None:
        """Ends the connection for both sides, also where other processes still hold it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._socket.close()


class AsyncChannel:
    """The engine's end of a connection, on the running event loop; it takes no descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._send_lock = asyncio.Lock()

    async def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one message; the descriptors stay open here. Raises WireClosed when nobody listens."""
        body = encode(message)
        pending = memoryview(_header(body, descriptors) + body)
        loop = asyncio.get_running_loop()
        async with self._send_lock:
            try:
                while descriptors:
                    try:
                        sent = self._socket.sendmsg([pending], _ancillary(descriptors))
                    except BlockingIOError:
                        await self._writable()
                    else:
                        pending = pending[sent:]
                        break
                await loop.sock_sendall(self._socket, pending)
            except OSError as error:
                raise WireClosed(str(error)) from error

    async def receive(self, max_bytes: int = MAX_FRAME_BYTES) -> Message:
        """Waits for one message. Raises WireClosed at the end of the connection, WireError for no frame."""
        length, count = _HEADER.unpack(await self._exactly(_HEADER.size))
        if count:
            raise WireError("a frame carried descriptors to a side that takes none")
        if length > max_bytes:
            raise WireError(f"a frame of {length} bytes is larger than the {max_bytes} accepted")
        return decode(await self._exactly(length))

    async def _exactly(self, count: int) -> bytearray:
        loop = asyncio.get_running_loop()
        body = bytearray(count)
        view = memoryview(body)
        while view:
            try:
                received = await loop.sock_recv_into(self._socket, view)
            except OSError as error:
                raise WireClosed(str(error)) from error
            if received == 0:
                raise WireClosed("the other side closed the connection")
            view = view[received:]
        return body

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def announce() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(self._socket, announce)
        try:
            await ready
        finally:
            loop.remove_writer(self._socket)

    def close(self) -> None:
        """Gives the descriptor back; a pending receive must have been cancelled."""
        self._socket.close()
