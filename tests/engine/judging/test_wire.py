"""Frames arrive whole, with their descriptors, and a hostile sender cannot exceed what is accepted."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from engine.judging.wire import AsyncChannel, Channel, WireClosed, WireError


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    channels = Channel(one), Channel(other)
    yield channels
    for channel in channels:
        channel.close()


def test_a_message_larger_than_the_socket_buffer_arrives_whole(pair: tuple[Channel, Channel]) -> None:
    sender, receiver = pair
    message = {"text": "x" * 3_000_000, "number": 1.5, "none": None}
    thread = threading.Thread(target=sender.send, args=(message,))
    thread.start()
    received, descriptors = receiver.receive()
    thread.join()
    assert received == message
    assert descriptors == []


def test_descriptors_travel_with_their_own_frame(pair: tuple[Channel, Channel]) -> None:
    sender, receiver = pair
    read_end, write_end = os.pipe()
    sender.send({"first": 1})
    sender.send({"second": 2}, [write_end])
    os.close(write_end)
    assert receiver.receive(max_descriptors=1) == ({"first": 1}, [])
    message, (descriptor,) = receiver.receive(max_descriptors=1)
    assert message == {"second": 2}
    os.write(descriptor, b"through")
    os.close(descriptor)
    assert os.read(read_end, 100) == b"through"
    os.close(read_end)


def test_a_frame_above_the_accepted_size_is_refused(pair: tuple[Channel, Channel]) -> None:
    sender, receiver = pair
    sender.send({"text": "x" * 1000})
    with pytest.raises(WireError, match="larger"):
        receiver.receive(max_bytes=100)


def test_descriptors_that_nobody_asked_for_are_dropped(pair: tuple[Channel, Channel]) -> None:
    sender, receiver = pair
    before = len(os.listdir("/proc/self/fd"))
    sender.send({"gift": True}, [0, 1, 2])
    with pytest.raises(WireError, match="announced 3"):
        receiver.receive()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("body", [b"[]", b"not json", b"[" * 100_000, b'"text"'])
def test_bytes_that_are_no_object_are_refused(body: bytes) -> None:
    one, other = socket.socketpair()
    threading.Thread(target=one.sendall, args=(len(body).to_bytes(4, "big") + b"\0" + body,)).start()
    channel = Channel(other)
    with pytest.raises(WireError):
        channel.receive()
    channel.close()
    one.close()


def test_the_end_of_the_connection_is_told_apart_from_a_bad_frame(pair: tuple[Channel, Channel]) -> None:
    sender, receiver = pair
    sender.shutdown()
    with pytest.raises(WireClosed):
        receiver.receive()


async def test_the_engines_end_talks_to_a_blocking_end() -> None:
    one, other = socket.socketpair()
    engine, worker = AsyncChannel(one), Channel(other)
    read_end, write_end = os.pipe()
    big = {"text": "y" * 2_000_000}

    def answer() -> None:
        message, descriptors = worker.receive(max_descriptors=4)
        for descriptor in descriptors:
            os.write(descriptor, b"got it")
            os.close(descriptor)
        worker.send({"length": len(message["text"])})
        worker.send(big)

    thread = threading.Thread(target=answer)
    thread.start()
    await engine.send(big, [write_end])
    assert await engine.receive() == {"length": 2_000_000}
    assert await engine.receive() == big
    await asyncio.to_thread(thread.join)
    assert os.read(read_end, 10) == b"got it"
    worker.close()
    with pytest.raises(WireClosed):
        await engine.receive()
    engine.close()
    for descriptor in (read_end, write_end):
        os.close(descriptor)
