from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.proposing.model_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
        assert server.untold == 0, "the server was asked more than it was told to answer"
        assert not server.script, "the server was not asked for all that it was told"
