"""What Triton's autotuner may try in a candidate, what it chose, and keeping to a choice in a fresh process.

Runs in the contestant on a GPU, where nothing of it is wrapped around a call that is timed: the autotuner is
met when it is made and when it tunes. What it tells is information only, since the candidate's code shares
the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

_MOST_CHOICES, _MOST_WORDS, _LONGEST = 64, 64, 200
"""How many choices are taken down, of how many words, and how long a word is."""

_tuners: list[Any] = []
_frozen: dict[tuple[str, tuple[str, ...]], Json] = {}


def install(most: int) -> None:
    """Meets every autotuner made from now on, and lets each try at most so many configurations. Call once."""
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    plain_init, plain_prune = tuner.__init__, tuner.prune_configs

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)
        _tuners.append(self)

    def prune(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        wanted = _frozen.get((_name(self), _key(self, kwargs)))
        kept = [config for config in self.configs if _described(config) == wanted] if wanted is not None else []
        return kept[:1] or list(plain_prune(self, kwargs))[:most]

    tuner.__init__, tuner.prune_configs = init, prune


def freeze(choices: Sequence[Mapping[str, Any]]) -> None:
    """Keeps to what was chosen in another process, as `chosen` told it there."""
    _frozen.clear()
    for choice in choices:
        _frozen[choice["kernel"], tuple(choice["key"])] = dict(choice["config"])


def chosen() -> list[Json]:
    """What the process's autotuners have chosen so far: kernel, key, configuration, and among how many."""
    return [
        {"kernel": _name(tuner), "key": list(map(str, key)), "config": _described(config), "of": len(tuner.configs)}
        for tuner in _tuners
        for key, config in tuner.cache.items()
    ][:_MOST_CHOICES]


def _name(tuner: Any) -> str:
    return str(getattr(tuner.base_fn, "__name__", "kernel"))


def _key(tuner: Any, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """What the autotuner files its choice under, as `Autotuner.run` makes it."""
    arguments = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    key = [arguments[name] for name in tuner.keys if name in arguments]
    key += [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    return tuple(map(str, key))


def _described(config: Any) -> Json:
    return {
        str(name): value if value is None or isinstance(value, bool | int | float | str) else str(value)
        for name, value in config.all_kwargs().items()
    }


def checked(told: Any) -> list[Json]:
    """What a contestant told of its choices, as far as it is of the right form and size; the judge's side."""
    if not isinstance(told, list):
        return []
    return [choice for choice in told[:_MOST_CHOICES] if _is_choice(choice)]


def _is_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or set(choice) != {"kernel", "key", "config", "of"}:
        return False
    key, config = choice["key"], choice["config"]
    if not isinstance(key, list) or not isinstance(config, dict) or not isinstance(choice["of"], int):
        return False
    texts = [choice["kernel"], *key, *config, *(value for value in config.values() if isinstance(value, str))]
    plain = all(value is None or isinstance(value, bool | int | float | str) for value in config.values())
    short = len(texts) <= _MOST_WORDS and all(isinstance(text, str) and len(text) <= _LONGEST for text in texts)
    return plain and short
