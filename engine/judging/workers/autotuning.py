"""What Triton's autotuner may try in a candidate, what it chose, and keeping to a choice in a fresh process.

Runs in the contestant on a GPU, where nothing of it is wrapped around a call that is timed: the autotuner is
met when it is made and when it tunes. What it tells is information only, since the candidate's code shares
the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch

from engine.judging.workers.timing import flush_buffer
from engine.judging.workers.turns import COMPILING, TUNING, Turns

Json = dict[str, Any]

_MOST_CHOICES, _MOST_WORDS, _LONGEST = 64, 64, 200
"""How many choices are taken down, of how many words, and how long a word is."""

_AT_ONCE = 8
"""Configurations that are compiled at a time."""

_TRIAL_MS, _FEWEST, _MOST = 20.0, 3, 20
"""About how long a configuration is timed, and with how many calls."""

_Event: Any = torch.cuda.Event
_synchronize = torch.cuda.synchronize

_tuners: list[Any] = []
_frozen: dict[tuple[str, tuple[str, ...]], Json] = {}


class _Tuning:
    """How this process tunes: whom it asks for turns, whether it keeps to its choices, trials left in this turn."""

    turns: Turns | None = None
    settled = False
    left = 0
    flush: torch.Tensor | None = None


def install(most: int) -> None:
    """Meets every autotuner made from now on, and lets each try at most so many configurations. Call once."""
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    plain_init, plain_prune, plain_bench = tuner.__init__, tuner.prune_configs, tuner._bench

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)
        _tuners.append(self)

    def prune(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        wanted = _frozen.get((_name(self), _key(self, kwargs)))
        if wanted is None and _Tuning.settled and self.cache:
            wanted = _described(list(self.cache.values())[-1])
        kept = [config for config in self.configs if _described(config) == wanted] if wanted is not None else []
        configs = kept[:1] or list(plain_prune(self, kwargs))[:most]
        if _Tuning.turns is not None and len(configs) > 1:
            _compile(self, configs, kwargs, _Tuning.turns)
            _Tuning.turns.begin(TUNING)
            _Tuning.left = len(configs)
        return configs

    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain_bench(self, *args, **kwargs)
        finally:
            _Tuning.left -= 1
            if _Tuning.turns is not None and _Tuning.left <= 0:
                _Tuning.turns.end(TUNING)

    tuner.__init__, tuner.prune_configs, tuner._bench = init, prune, bench


def take_turns(turns: Turns) -> None:
    """From now on configurations are compiled several at a time, and timed alone and briefly. On a GPU only."""
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    _Tuning.turns = turns
    tuner.do_bench = property(lambda self: _time)


def settle() -> None:
    """Keeps to what was chosen last also for other sizes: they are asked for to see whether they work."""
    _Tuning.settled = True


def _compile(tuner: Any, configs: Sequence[Any], kwargs: Mapping[str, Any], turns: Turns) -> None:
    """Compiles configurations ahead of their trials; one that does not compile fails in its own trial."""
    from triton.runtime._async_compile import AsyncCompileMode

    arguments = list(tuner.nargs.values())
    with (
        turns.taken(COMPILING),
        ThreadPoolExecutor(_AT_ONCE) as pool,
        suppress(Exception),
        AsyncCompileMode(pool, ignore_errors=True),
    ):
        for config in configs:
            with suppress(Exception):
                tuner.fn.run(*arguments, **{**kwargs, **config.all_kwargs(), "warmup": True})


def _time(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
    """Milliseconds of a call at each quantile, the L2 cache being cold, as `triton.testing.do_bench` gives them."""
    if _Tuning.flush is None:
        _Tuning.flush = flush_buffer(torch.device("cuda", torch.cuda.current_device()))
    call()
    first = _milliseconds(call, 1, _Tuning.flush)[0]
    count = min(_MOST, max(_FEWEST, int(_TRIAL_MS / max(first, 1e-3))))
    times = sorted([first, *_milliseconds(call, count, _Tuning.flush)])
    return [times[round(quantile * (len(times) - 1))] for quantile in quantiles]


def _milliseconds(call: Callable[[], Any], count: int, flush: torch.Tensor) -> list[float]:
    events = [(_Event(enable_timing=True), _Event(enable_timing=True)) for _ in range(count)]
    for before, after in events:
        flush.zero_()
        before.record()
        call()
        after.record()
    _synchronize()
    return [float(before.elapsed_time(after)) for before, after in events]


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
