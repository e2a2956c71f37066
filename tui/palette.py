"""The palette's commands: every key of the registry that works on the present screen, by its name."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode

from tui.keys import KEYS, Key
from tui.screens.base import CockpitScreen


class KeyCommands(Provider):
    """Finds actions by words of their names and explanations."""

    def _wanted(self) -> list[tuple[Key, DOMNode]]:
        screen = self.screen
        if not isinstance(screen, CockpitScreen):
            return []
        nodes: list[DOMNode | None] = [self.focused, screen, self.app]
        found = []
        for key in KEYS:
            if key.scope not in screen.scopes() or key.action == "command_palette":
                continue
            name = f"action_{key.action.partition('(')[0]}"
            node = next((node for node in nodes if node is not None and hasattr(node, name)), None)
            if node is not None:
                found.append((key, node))
        return found

    async def discover(self) -> Hits:
        """All of them."""
        for key, node in self._wanted():
            yield DiscoveryHit(_display(key), partial(self._run, key, node), text=key.word, help=key.help)

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for key, node in self._wanted():
            text = f"{key.word} {key.help}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, _display(key), partial(self._run, key, node), text=text, help=key.help)

    async def _run(self, key: Key, node: DOMNode) -> None:
        await self.app.run_action(key.action, node)


def _display(key: Key) -> Content:
    return Content(f"{key.word}  ({key.shown})")
