"""The client of a model: one request at a time to an OpenAI-compatible endpoint, streamed.

Everything that can go wrong comes back as a named failure in a `Reply`; only cancellation is raised. The key is taken
from the environment when the client is made, and is cut out of whatever a server says.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.proposing.prices import OPENAI_URL
from engine.proposing.replies import (
    CONTEXT_WORDS,
    MAX_ANSWER_CHARACTERS,
    NOTHING_USED,
    Reply,
    Stream,
    TooLong,
    Wrong,
    estimated,
    message_of,
    read_chat_chunk,
    read_chat_document,
    read_responses_document,
    read_responses_event,
)
from engine.records import CallFailure, Usage
from engine.settings import LlmSettings, SettingsError

if TYPE_CHECKING:
    import openai

_QUOTED = 300
"""How many characters of a server's own words are quoted."""

_CONTEXT_LIMIT = re.compile(
    r"(?:maximum context length|context window|context size|n_ctx)\D{0,20}(\d{3,8})",
    re.IGNORECASE,
)
_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error")


def key_for(llm: LlmSettings, environment: Mapping[str, str] = os.environ) -> str:
    """The key for the endpoint that the settings name; a server of one's own may need none.

    Raises:
        SettingsError: the variable that should hold it is not set.
    """
    if llm.azure_endpoint:
        if key := environment.get("AZURE_OPENAI_API_KEY"):
            return key
        raise SettingsError(f"set AZURE_OPENAI_API_KEY to the key for {llm.azure_endpoint}")
    if key := environment.get("OPENAI_API_KEY"):
        return key
    if llm.base_url and llm.base_url.rstrip("/") != OPENAI_URL:
        return ""
    raise SettingsError(
        "set OPENAI_API_KEY to your key for api.openai.com, or name a server of your own with --base-url"
    )


def destination(llm: LlmSettings) -> str:
    """Where requests go."""
    return llm.azure_endpoint or llm.base_url or OPENAI_URL


class ModelClient:
    """One model, asked through the openai package; to be closed.

    Args:
        llm: the model, its address and how it is asked.
        environment: where the key is.

    Raises:
        SettingsError: there is no key.
    """

    def __init__(self, llm: LlmSettings, environment: Mapping[str, str] = os.environ) -> None:
        self._llm = llm
        self._key = key_for(llm, environment)
        self._opened: openai.AsyncOpenAI | None = None
        self._limit_name = "max_completion_tokens" if self._is_openai() else "max_tokens"
        self._left_out: set[str] = set()

    def _is_openai(self) -> bool:
        return bool(self._llm.azure_endpoint) or destination(self._llm).rstrip("/") == OPENAI_URL

    async def close(self) -> None:
        """Closes the connections."""
        if self._opened is not None:
            await self._opened.close()

    async def ask(
        self, messages: Sequence[tuple[str, str]], max_output_tokens: int, on_text: Callable[[str], None]
    ) -> Reply:
        """Sends a prompt and returns what it brought; `on_text` is given the whole text at each piece of it.

        Args:
            messages: role and text of each message; the first may be the system's.
            max_output_tokens: where the server is to stop.
            on_text: called with everything that has been written so far.
        """
        import openai

        stream = Stream(on_text)
        try:
            async with asyncio.timeout(self._llm.deadline):
                while True:
                    try:
                        if self._llm.api == "responses":
                            await self._responses(messages, max_output_tokens, stream)
                        else:
                            await self._chat(messages, max_output_tokens, stream)
                        break
                    except openai.BadRequestError as error:
                        if not self._adapted(error):
                            raise
        except TimeoutError:
            seconds = f"{self._llm.deadline:g} s"
            return self._failed(stream, CallFailure.DEADLINE, f"the answer was not complete within {seconds}", None)
        except openai.APIStatusError as error:
            return self._refused_request(stream, error)
        except openai.APITimeoutError:
            said = f"the server was silent for {self._llm.silence:g} s"
            return self._failed(stream, CallFailure.TIMEOUT, said, None)
        except openai.APIConnectionError as error:
            if not stream.began:
                said = f"{destination(self._llm)} cannot be reached: {self._cause(error)}"
                return self._failed(stream, CallFailure.UNREACHABLE, said)
            said = f"the connection broke in the middle of the answer: {self._cause(error)}"
            return self._failed(stream, CallFailure.DROPPED, said, None)
        except openai.APIError as error:
            return self._error_within(stream, error)
        except TooLong:
            said = f"the answer does not end within {MAX_ANSWER_CHARACTERS} characters"
            return self._failed(stream, CallFailure.CUT_OFF, said, None)
        except Wrong as wrong:
            return self._failed(stream, wrong.failure, str(wrong), None if stream.text else NOTHING_USED)
        except (ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
            said = f"the server's answer cannot be read: {type(error).__name__}: {error}"
            return self._failed(stream, CallFailure.MALFORMED, said, None if stream.text else NOTHING_USED)
        return self._reply(stream, messages)

    # Asking

    def _client(self) -> openai.AsyncOpenAI:
        if self._opened is None:
            import openai

            timeout = openai.Timeout(connect=10.0, read=self._llm.silence, write=60.0, pool=60.0)
            if self._llm.azure_endpoint:
                self._opened = openai.AsyncAzureOpenAI(
                    azure_endpoint=self._llm.azure_endpoint,
                    api_version=self._llm.azure_api_version,
                    api_key=self._key,
                    timeout=timeout,
                    max_retries=self._llm.retries,
                )
            else:
                # The address is given even where it is the library's own, so that no variable redirects a run.
                self._opened = openai.AsyncOpenAI(
                    base_url=destination(self._llm),
                    api_key=self._key or "none",
                    timeout=timeout,
                    max_retries=self._llm.retries,
                )
        return self._opened

    def _options(self, **options: Any) -> dict[str, Any]:
        if self._llm.temperature is not None:
            options["temperature"] = self._llm.temperature
        return {name: value for name, value in options.items() if name not in self._left_out}

    async def _chat(self, messages: Sequence[tuple[str, str]], limit: int, stream: Stream) -> None:
        options = self._options(
            model=self._llm.model,
            messages=[{"role": role, "content": text} for role, text in messages],
            stream=True,
            stream_options={"include_usage": True},
            **{self._limit_name: limit},
        )
        if self._llm.reasoning_effort is not None:
            options["reasoning_effort"] = self._llm.reasoning_effort
        chunks = await self._client().chat.completions.create(**options)
        async with chunks:
            if await self._whole(chunks.response, stream, read_chat_document):
                return
            async for chunk in chunks:
                stream.began = True
                read_chat_chunk(chunk, stream)

    async def _responses(self, messages: Sequence[tuple[str, str]], limit: int, stream: Stream) -> None:
        options = self._options(
            model=self._llm.model,
            instructions="\n\n".join(text for role, text in messages if role == "system"),
            input=[{"role": role, "content": text} for role, text in messages if role != "system"],
            stream=True,
            store=False,
            max_output_tokens=limit,
        )
        if self._llm.reasoning_effort is not None:
            options["reasoning"] = {"effort": self._llm.reasoning_effort}
        events = await self._client().responses.create(**options)
        async with events:
            if await self._whole(events.response, stream, read_responses_document):
                return
            async for event in events:
                stream.began = True
                read_responses_event(event, stream)

    async def _whole(self, response: Any, stream: Stream, read: Callable[[Any, Stream], None]) -> bool:
        """Reads an answer that came in one piece; returns whether it did. Some servers do not stream.

        Raises:
            Wrong: it is neither a stream nor a JSON document.
        """
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return False
        body = (await response.aread()).decode(errors="replace")
        if not kind.endswith("json"):
            raise Wrong(
                CallFailure.WRONG_CONTENT_TYPE,
                f"the server sent {kind or 'something without a type'} and no event stream: {self._quote(body)}",
            )
        stream.began = True
        read(json.loads(body), stream)
        return True

    def _adapted(self, error: openai.BadRequestError) -> bool:
        """Whether a parameter that the server does not know was replaced or left out, so that asking again helps."""
        said = f"{error.param or ''} {error.message}"
        if self._limit_name in said:
            other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[self._limit_name]
            if re.search(rf"unsupported|not supported|unknown|unrecognized|extra|{other}", said, re.IGNORECASE):
                self._left_out.add(self._limit_name)
                self._limit_name = other
                return other not in self._left_out
        for name in ("stream_options", "temperature"):
            if name in said and name not in self._left_out:
                self._left_out.add(name)
                return True
        return False

    # Answering

    def _reply(self, stream: Stream, messages: Sequence[tuple[str, str]]) -> Reply:
        """What an answer that ended in order amounts to."""
        if stream.refusal or stream.finish == "content_filter":
            said = f"the model refused: {self._quote(stream.refusal or 'its content filter took the answer back')}"
            return self._failed(stream, CallFailure.REFUSED, said, stream.usage)
        if stream.text and stream.finish is None and stream.usage is None:
            return self._failed(stream, CallFailure.DROPPED, "the answer ended in the middle", None)
        if stream.usage is None:
            stream.usage = estimated(messages, stream)
        if not stream.text.strip():
            if stream.finish == "length":
                said = "all tokens of the answer went into reasoning; raise max_output_tokens"
                return self._failed(stream, CallFailure.CUT_OFF, said, stream.usage)
            # Some servers end the stream like this where a prompt is too long for them.
            silent = "the stream ended before its first event; the server's log may say why, a prompt too long for one"
            said = "the model answered with nothing" if stream.began else silent
            return self._failed(stream, CallFailure.EMPTY, said, stream.usage)
        if stream.finish == "length":
            said = "the answer was cut off at max_output_tokens"
            return self._failed(stream, CallFailure.CUT_OFF, said, stream.usage)
        return Reply(self._safe(stream.text), stream.usage)

    def _failed(
        self,
        stream: Stream,
        failure: CallFailure,
        detail: str,
        usage: Usage | None = NOTHING_USED,
        context_limit: int | None = None,
    ) -> Reply:
        text, said = self._safe(stream.text), self._safe(detail)
        return Reply(text, stream.usage or usage, failure, said, context_limit, stream.began)

    def _refused_request(self, stream: Stream, error: openai.APIStatusError) -> Reply:
        """What a status of 400 and above means."""
        said = self._quote(message_of(error.body) or error.message)
        code, status = error.code or "", error.status_code
        if code in _CONTEXT_CODES or CONTEXT_WORDS.search(said):
            return self._overflow(stream, said)
        tries = f" after {self._llm.retries} retries" if self._llm.retries else ""
        match status:
            case 429 if code == "insufficient_quota" or "quota" in (error.type or ""):
                return self._failed(stream, CallFailure.NO_QUOTA, f"the account's credit is used up: {said}")
            case 429:
                return self._failed(stream, CallFailure.RATE_LIMITED, f"too many requests (429){tries}: {said}")
            case 401 | 403:
                return self._failed(stream, CallFailure.NO_ACCESS, f"the key is not accepted ({status}): {said}")
            case 404:
                known = (
                    f"{destination(self._llm)} does not know {self._llm.model}, or is no such endpoint (404): {said}"
                )
                return self._failed(stream, CallFailure.NOT_FOUND, known)
            case 408:
                return self._failed(stream, CallFailure.TIMEOUT, f"the server gave up waiting (408){tries}: {said}")
            case _ if status >= 500:
                return self._failed(stream, CallFailure.SERVER_ERROR, f"the server failed ({status}){tries}: {said}")
            case _ if code == "content_filter":
                return self._failed(stream, CallFailure.REFUSED, f"the server's filter refused the prompt: {said}")
            case _:
                return self._failed(stream, CallFailure.BAD_REQUEST, f"the request is not accepted ({status}): {said}")

    def _error_within(self, stream: Stream, error: openai.APIError) -> Reply:
        """What an error in the middle of a stream means."""
        said = self._quote(message_of(error.body) or error.message)
        if (error.code or "") in _CONTEXT_CODES or CONTEXT_WORDS.search(said):
            return self._overflow(stream, said)
        said = f"the server failed in the middle of the answer: {said}"
        return self._failed(stream, CallFailure.SERVER_ERROR, said, None)

    def _overflow(self, stream: Stream, said: str) -> Reply:
        found = _CONTEXT_LIMIT.search(said)
        limit = int(found.group(1)) if found else None
        detail = f"prompt and answer do not fit into the model's context: {said}"
        return self._failed(stream, CallFailure.CONTEXT_OVERFLOW, detail, context_limit=limit)

    def _cause(self, error: BaseException) -> str:
        cause = error.__cause__ or error
        return self._quote(str(cause) or type(cause).__name__)

    def _quote(self, text: str) -> str:
        return " ".join(self._safe(text).split())[:_QUOTED]

    def _safe(self, text: str) -> str:
        """A text without the key, which some servers quote when they refuse it."""
        return text.replace(self._key, "[key]") if self._key else text
