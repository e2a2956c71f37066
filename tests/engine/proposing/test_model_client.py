"""The client against a real server that misbehaves in every way it can: each way has its name, none is an exception."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engine.proposing.model import ModelClient, key_for
from engine.proposing.replies import Reply
from engine.records import CallFailure, Usage
from engine.settings import LlmSettings, SettingsError
from tests.engine.proposing.model_server import (
    Answer,
    ModelServer,
    drops,
    events,
    is_silent,
    refuses,
    responds,
    says,
    sends,
    status,
    trickles,
)

KEY = "sk-a-secret-of-some-length"
MESSAGES = [("system", "Be brief."), ("user", "Write a kernel.")]

Ask = Callable[..., Any]


@pytest.fixture
async def ask(server: ModelServer) -> AsyncIterator[Ask]:
    clients: list[ModelClient] = []

    async def ask(on_text: Callable[[str], None] = lambda text: None, **settings: Any) -> Reply:
        values = {"model": "tiny", "base_url": server.url, "retries": 0, **settings}
        if values.get("azure_endpoint"):
            del values["base_url"]
        clients.append(ModelClient(LlmSettings(**values), {"OPENAI_API_KEY": KEY, "AZURE_OPENAI_API_KEY": KEY}))
        return await clients[-1].ask(MESSAGES, 100, on_text)

    yield ask
    for client in clients:
        await client.close()


async def test_an_answer_is_streamed_and_its_tokens_are_counted(server: ModelServer, ask: Ask) -> None:
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 40,
        "completion_tokens_details": {"reasoning_tokens": 30},
        "prompt_tokens_details": {"cached_tokens": 100},
    }
    server.script = [says("import triton", piece=3, usage=usage)]
    seen: list[str] = []
    reply = await ask(seen.append)
    assert reply == Reply("import triton", Usage(120, 40, reasoning=30, cached=100))
    assert seen[0] == "imp"
    assert seen[-1] == "import triton"
    sent = server.requests[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write a kernel."},
    ]
    assert (sent.body["max_tokens"], sent.body["stream"], "temperature" in sent.body) == (100, True, False)
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_the_responses_interface(server: ModelServer, ask: Ask) -> None:
    usage = {
        "input_tokens": 120,
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 30},
        "input_tokens_details": {"cached_tokens": 7},
    }
    server.script = [responds("import triton", usage=usage)]
    reply = await ask(api="responses", reasoning_effort="low")
    assert reply == Reply("import triton", Usage(120, 40, reasoning=30, cached=7))
    body = server.requests[0].body
    assert server.requests[0].path == "/v1/responses"
    assert (body["instructions"], body["max_output_tokens"], body["store"]) == ("Be brief.", 100, False)
    assert body["reasoning"] == {"effort": "low"}


async def test_azure_is_asked_for_its_deployment_with_its_own_header(server: ModelServer, ask: Ask) -> None:
    server.script = [says("import triton")]
    reply = await ask(azure_endpoint=server.url.removesuffix("/v1"), azure_api_version="2024-10-21")
    assert reply.text == "import triton"
    (sent,) = server.requests
    assert sent.path == "/openai/deployments/tiny/chat/completions?api-version=2024-10-21"
    assert sent.headers["api-key"] == KEY
    assert sent.body["max_completion_tokens"] == 100


async def test_a_reasoning_model_is_sent_its_effort_and_no_temperature(server: ModelServer, ask: Ask) -> None:
    server.script = [says("import triton", thoughts="let me think " * 30, usage={})]
    reply = await ask(reasoning_effort="high")
    assert server.requests[0].body["reasoning_effort"] == "high"
    assert "temperature" not in server.requests[0].body
    assert reply.usage is not None
    assert not reply.usage.reported
    assert reply.usage.reasoning > 50
    assert reply.usage.output > reply.usage.reasoning
    with pytest.raises(ValueError, match="takes no temperature"):
        LlmSettings(model="tiny", reasoning_effort="high", temperature=0.5)


async def test_parameters_that_a_server_does_not_know_are_replaced_or_left_out(server: ModelServer, ask: Ask) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    server.script = [
        status(400, said, error={"param": "max_tokens"}),
        status(400, "temperature does not support 0.2 with this model", error={"param": "temperature"}),
        status(400, "extra field stream_options"),
        says("import triton"),
    ]
    reply = await ask(temperature=0.2)
    assert reply.text == "import triton"
    last = server.requests[-1].body
    assert last["max_completion_tokens"] == 100
    assert not {"max_tokens", "temperature", "stream_options"} & set(last)


async def test_a_request_that_is_wrong_otherwise_is_not_sent_again(server: ModelServer, ask: Ask) -> None:
    server.script = [status(400, "max_tokens is too large: 100. This model supports at most 50 completion tokens")]
    reply = await ask()
    assert reply.failure is CallFailure.BAD_REQUEST
    assert "at most 50" in reply.detail


async def test_429_is_retried_after_the_time_the_server_names(server: ModelServer, ask: Ask) -> None:
    server.script = [status(429, "slow down", retry_after="0.3"), says("import triton")]
    reply = await ask(retries=2)
    assert reply.text == "import triton"
    assert server.requests[1].at - server.requests[0].at >= 0.3


async def test_500_is_retried(server: ModelServer, ask: Ask) -> None:
    server.script = [status(500, "oops", retry_after_ms="1"), says("import triton")]
    assert (await ask(retries=2)).text == "import triton"


NOT_SSE = "<html>sign in to the network first</html>"
WHOLE = {"choices": [{"message": {"content": "import triton"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}


@pytest.mark.parametrize(
    ("answer", "failure", "words"),
    [
        (status(429, "slow down"), CallFailure.RATE_LIMITED, "slow down"),
        (status(429, "no credit", error={"code": "insufficient_quota"}), CallFailure.NO_QUOTA, "credit is used up"),
        (status(500, "oops"), CallFailure.SERVER_ERROR, "the server failed (500): oops"),
        (status(401, f"Incorrect API key provided: {KEY}"), CallFailure.NO_ACCESS, "provided: [key]"),
        (status(403, "not you"), CallFailure.NO_ACCESS, "(403): not you"),
        (status(404, "no such model"), CallFailure.NOT_FOUND, "does not know tiny"),
        (is_silent(), CallFailure.TIMEOUT, "silent for 0.3 s"),
        (is_silent("import tri"), CallFailure.TIMEOUT, "silent for 0.3 s"),
        (trickles(), CallFailure.DEADLINE, "not complete within 0.6 s"),
        (drops(), CallFailure.DROPPED, "broke in the middle"),
        (says("import tri", finish=None, usage={}), CallFailure.DROPPED, "ended in the middle"),
        (says(""), CallFailure.EMPTY, "answered with nothing"),
        (says("   \n"), CallFailure.EMPTY, "answered with nothing"),
        (events({"id": "c", "choices": []}), CallFailure.EMPTY, "answered with nothing"),
        (events(), CallFailure.EMPTY, "ended before its first event; the server's log may say why"),
        (refuses("I cannot"), CallFailure.REFUSED, "I cannot"),
        (says("half", finish="content_filter"), CallFailure.REFUSED, "content filter"),
        (says("import tri", finish="length"), CallFailure.CUT_OFF, "cut off at max_output_tokens"),
        (says("", finish="length"), CallFailure.CUT_OFF, "went into reasoning"),
        (events('{"choices": [{"delta": {"con'), CallFailure.MALFORMED, "cannot be read"),
        (events({"choices": [{"message": 3}]}), CallFailure.MALFORMED, "cannot be read"),
        (events({"choices": None}), CallFailure.MALFORMED, "cannot be read"),
        (sends("{ not json"), CallFailure.MALFORMED, "cannot be read"),
        (sends('["a", "list"]'), CallFailure.MALFORMED, "cannot be read"),
        (sends('{"error": {"message": "busy"}}'), CallFailure.SERVER_ERROR, "busy"),
        (sends(NOT_SSE, "text/html"), CallFailure.WRONG_CONTENT_TYPE, "text/html and no event stream: <html>sign in"),
        (events({"error": {"message": "overloaded"}}), CallFailure.SERVER_ERROR, "overloaded"),
        (
            status(400, "too long", error={"code": "context_length_exceeded"}),
            CallFailure.CONTEXT_OVERFLOW,
            "do not fit into the model's context",
        ),
        (
            status(500, "Requested tokens (900) exceed context window of 512"),
            CallFailure.CONTEXT_OVERFLOW,
            "context window of 512",
        ),
    ],
)
async def test_each_failure_has_a_name_and_a_sentence(
    server: ModelServer, ask: Ask, answer: Answer, failure: CallFailure, words: str
) -> None:
    server.script = [answer]
    reply = await ask(silence=0.3, deadline=0.6 if failure is CallFailure.DEADLINE else 20)
    assert reply.failure is failure, reply.detail
    assert words in reply.detail
    assert KEY not in reply.detail
    assert "\n" not in reply.detail


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (responds("", state="incomplete", incomplete_details={"reason": "max_output_tokens"}), CallFailure.CUT_OFF),
        (responds("x", state="incomplete", incomplete_details={"reason": "content_filter"}), CallFailure.REFUSED),
        (
            responds("x", state="failed", error={"code": "server_error", "message": "oops"}),
            CallFailure.SERVER_ERROR,
        ),
        (events({"type": "response.refusal.delta", "delta": "I cannot"}), CallFailure.REFUSED),
        (events({"type": "error", "message": "overloaded", "code": None, "param": None}), CallFailure.SERVER_ERROR),
        (responds(""), CallFailure.EMPTY),
    ],
)
async def test_failures_of_the_responses_interface_have_the_same_names(
    server: ModelServer, ask: Ask, answer: Answer, failure: CallFailure
) -> None:
    server.script = [answer]
    reply = await ask(api="responses")
    assert reply.failure is failure, reply.detail


async def test_the_length_of_the_context_is_read_from_the_servers_words(server: ModelServer, ask: Ask) -> None:
    said = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the messages)"
    )
    server.script = [status(400, said)]
    assert (await ask()).context_limit == 4096


async def test_a_server_that_does_not_stream_is_understood(server: ModelServer, ask: Ask) -> None:
    server.script = [sends(json.dumps(WHOLE))]
    reply = await ask()
    assert (reply.text, reply.failure) == ("import triton", None)
    assert reply.usage == Usage(9, 0)


async def test_a_server_that_is_not_there_is_named(server: ModelServer, ask: Ask) -> None:
    reply = await ask(base_url="http://127.0.0.1:9/v1")
    assert reply.failure is CallFailure.UNREACHABLE
    assert reply.detail.startswith("http://127.0.0.1:9/v1 cannot be reached")
    assert reply.usage == Usage()


async def test_what_broke_off_may_have_cost_anything_and_what_was_refused_nothing(
    server: ModelServer, ask: Ask
) -> None:
    server.script = [drops(), status(500, "oops")]
    assert (await ask()).usage is None
    assert (await ask()).usage == Usage()


async def test_cancelling_is_not_a_failure(server: ModelServer, ask: Ask) -> None:
    server.script = [trickles()]
    begun = asyncio.Event()
    asked = asyncio.create_task(ask(lambda text: begun.set()))
    await begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_half_a_character_can_be_stored(server: ModelServer, ask: Ask) -> None:
    server.script = [events('{"choices": [{"delta": {"content": "a\\ud800b"}, "finish_reason": "stop"}]}')]
    assert (await ask()).text.encode() == b"a?b"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "set OPENAI_API_KEY"),
        ({"base_url": "https://api.openai.com/v1/"}, "set OPENAI_API_KEY"),
        ({"azure_endpoint": "https://x.openai.azure.com"}, "set AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_missing_key_is_said_before_anything_is_sent(settings: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        key_for(LlmSettings.model_validate({"model": "tiny", **settings}), {})


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert key_for(LlmSettings(model="tiny", base_url="http://localhost:8000/v1"), {}) == ""
