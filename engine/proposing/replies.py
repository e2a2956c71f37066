"""What comes back from a model's server: the pieces of an answer, read from either of OpenAI's interfaces.

Servers deviate; what cannot be read raises one of the usual errors (KeyError, TypeError, ...), or `Wrong` with a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.proposing.tokens import estimate_tokens
from engine.records import CallFailure, Usage

MAX_ANSWER_CHARACTERS = 1_000_000
"""An answer is cut off here, whatever the server was told."""

NOTHING_USED = Usage()
"""What a request used that a server did not begin to answer."""

CONTEXT_WORDS = re.compile(
    r"context[ _](length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|exceeds? the (available )?context",
    re.IGNORECASE,
)
"""How servers say that prompt and answer are too long together."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request brought. `usage` is None where nobody knows what the server counted, and it may have been much.

    `context_limit` is the model's own, in tokens, where a failure for lack of room told it; `begun` whether the server
    had begun to answer, so that the library has not tried again.
    """

    text: str
    usage: Usage | None
    failure: CallFailure | None = None
    detail: str = ""
    context_limit: int | None = None
    begun: bool = False


@dataclass(slots=True)
class Stream:
    """What has come of an answer so far. `hidden` counts the characters of reasoning that stay beside it."""

    on_text: Callable[[str], None]
    text: str = ""
    hidden: int = 0
    refusal: str = ""
    finish: str | None = None
    usage: Usage | None = None
    began: bool = False

    def add(self, piece: str | None) -> None:
        """Takes in a piece of the text.

        Raises:
            TooLong: there is no end to it.
        """
        if piece:
            # Half a character, which JSON can hold, can be neither stored nor sent.
            self.text += piece.encode("utf-8", "replace").decode()
            self.on_text(self.text)
            if len(self.text) > MAX_ANSWER_CHARACTERS:
                raise TooLong


class TooLong(Exception):
    """The answer does not end."""


class Wrong(Exception):
    """The answer is not one that the protocol allows."""

    def __init__(self, failure: CallFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


def message_of(body: object) -> str:
    """What an error's document says, in the shapes that servers use."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        found = inner.get("message") or inner.get("detail") if isinstance(inner, Mapping) else inner
        return found if isinstance(found, str) else json.dumps(found) if found else ""
    return body if isinstance(body, str) else ""


def estimated(messages: Sequence[tuple[str, str]], stream: Stream) -> Usage:
    """The tokens of a request whose server does not count them."""
    hidden = estimate_tokens("x" * stream.hidden)
    prompt = sum(estimate_tokens(text) for _, text in messages)
    return Usage(prompt, estimate_tokens(stream.text) + hidden, reasoning=hidden, reported=False)


# Chat completions


def read_chat_chunk(chunk: Any, stream: Stream) -> None:
    """Takes in a piece of a chat completion."""
    if chunk.usage is not None:
        stream.usage = _chat_usage(chunk.usage.model_dump())
    for choice in chunk.choices:
        delta = choice.delta
        # Several servers put a reasoning model's thoughts beside the answer.
        extra = delta.model_extra or {}
        stream.hidden += len(extra.get("reasoning_content") or extra.get("reasoning") or "")
        stream.refusal += delta.refusal or ""
        stream.finish = choice.finish_reason or stream.finish
        stream.add(delta.content)


def read_chat_document(document: Any, stream: Stream) -> None:
    """Takes in a chat completion that came as a whole."""
    if "error" in document:
        raise Wrong(CallFailure.SERVER_ERROR, f"the server failed: {message_of(document)}")
    choices = document["choices"]
    stream.usage = _chat_usage(document["usage"]) if document.get("usage") else None
    if not choices:
        stream.finish = "stop"
        return
    stream.finish = choices[0].get("finish_reason") or "stop"
    stream.refusal = choices[0]["message"].get("refusal") or ""
    stream.add(choices[0]["message"].get("content"))


def _chat_usage(usage: Mapping[str, Any]) -> Usage:
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        input=usage.get("prompt_tokens") or 0,
        output=usage.get("completion_tokens") or 0,
        reasoning=completion.get("reasoning_tokens") or 0,
        cached=prompt.get("cached_tokens") or 0,
        cache_written=prompt.get("cache_write_tokens") or 0,
    )


# Responses


def read_responses_event(event: Any, stream: Stream) -> None:
    """Takes in an event of the responses interface."""
    match event.type:
        case "response.output_text.delta":
            stream.add(event.delta)
        case "response.refusal.delta":
            stream.refusal += event.delta
        case "response.completed" | "response.incomplete" | "response.failed":
            read_responses_document(event.response.model_dump(warnings=False), stream)
        case "error":
            raise Wrong(CallFailure.SERVER_ERROR, f"the server failed in the middle of the answer: {event.message}")


def read_responses_document(document: Any, stream: Stream) -> None:
    """Takes in a response that came as a whole, or the end of one that was streamed."""
    if document.get("error"):
        said = message_of(document)
        overflow = CONTEXT_WORDS.search(said)
        cause = CallFailure.CONTEXT_OVERFLOW if overflow else CallFailure.SERVER_ERROR
        raise Wrong(cause, f"the server failed in the middle of the answer: {said}")
    if document.get("usage"):
        stream.usage = _responses_usage(document["usage"])
    reason = (document.get("incomplete_details") or {}).get("reason")
    stream.finish = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(reason or "", "stop")
    if stream.text:
        return
    for item in document["output"]:
        for content in item.get("content") or () if item.get("type") == "message" else ():
            stream.refusal += content.get("refusal") or ""
            stream.add(content.get("text"))


def _responses_usage(usage: Mapping[str, Any]) -> Usage:
    prompt = usage.get("input_tokens_details") or {}
    return Usage(
        input=usage.get("input_tokens") or 0,
        output=usage.get("output_tokens") or 0,
        reasoning=(usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
        cached=prompt.get("cached_tokens") or 0,
        cache_written=prompt.get("cache_write_tokens") or 0,
    )
