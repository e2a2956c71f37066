from __future__ import annotations

from tui.keys import KEYS, Scope, bindings, help_sections, key_line

FORBIDDEN = {"ctrl+a", "ctrl+b", "ctrl+s", "ctrl+h"}


def test_no_key_that_multiplexers_and_terminals_take_is_bound() -> None:
    bound = {name for key in KEYS for name in key.keys}
    assert not bound & FORBIDDEN
    assert not any(name.startswith("alt+") for name in bound)


def test_capital_letters_are_bound_in_both_spellings() -> None:
    for key in KEYS:
        for name in key.keys:
            if len(name) == 1 and name.isupper():
                assert f"shift+{name.lower()}" in key.keys


def test_no_key_means_two_things_where_it_works() -> None:
    for scopes in (
        (Scope.RUN, Scope.TREE, Scope.MOVE, Scope.EVERYWHERE),
        (Scope.RUN, Scope.DIFF, Scope.MOVE, Scope.EVERYWHERE),
        (Scope.RUN, Scope.LOG, Scope.MOVE, Scope.EVERYWHERE),
        (Scope.QUEUE, Scope.MOVE, Scope.EVERYWHERE),
        (Scope.SKILLS, Scope.MOVE, Scope.EVERYWHERE),
        (Scope.RUNS, Scope.MOVE, Scope.EVERYWHERE),
    ):
        names = [name for key in KEYS if key.scope in scopes for name in key.keys]
        assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_escape_never_destroys() -> None:
    assert {key.action for key in KEYS if "escape" in key.keys} == {"clear"}


def test_bindings_help_and_line_of_keys_come_from_the_registry() -> None:
    assert len(bindings(Scope.RUN)) == sum(key.scope is Scope.RUN for key in KEYS)
    assert all(key.help for _, keys in help_sections(list(Scope)) for key in keys)
    assert [key.rank for key in key_line([Scope.RUN, Scope.EVERYWHERE])] == sorted(
        key.rank for key in KEYS if key.rank and key.scope in (Scope.RUN, Scope.EVERYWHERE)
    )
