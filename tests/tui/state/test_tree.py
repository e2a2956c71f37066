from __future__ import annotations

import random
import time
from dataclasses import replace

from engine.records import Candidate, CandidateState, ProposerKind, Step, Verdict
from tui.state.filters import parse_filter
from tui.state.tree import RunTree


def candidate(number: int, parent: int | None = None, depth: int = 1, speedup: float | None = None) -> Candidate:
    return Candidate(
        1,
        number,
        parent,
        Step.LOCAL,
        ProposerKind.COMPILER,
        CandidateState.EVALUATED if speedup else CandidateState.QUEUED,
        f"idea {number}",
        depth,
        verdict=Verdict.CORRECT if speedup else None,
        time_us=10 / speedup if speedup else None,
        speedup=speedup,
    )


def small_tree() -> RunTree:
    """1 (2 (4), 3), 5."""
    tree = RunTree()
    tree.fold_in(
        [
            candidate(1, speedup=1.0),
            candidate(2, 1, 2, 1.5),
            candidate(3, 1, 2),
            candidate(4, 2, 3, 1.2),
            candidate(5, speedup=0.9),
        ]
    )
    return tree


def test_children_stand_below_their_parent_in_the_order_they_came() -> None:
    assert small_tree().rows == [1, 2, 4, 3, 5]


def test_the_cursor_stays_on_its_candidate_when_rows_arrive_above() -> None:
    tree = small_tree()
    tree.move_to(5)
    change = tree.fold_in([candidate(6, 2, 3), candidate(7)])
    assert tree.rows == [1, 2, 4, 6, 3, 5, 7]
    assert change.inserted == (3, 6)
    assert (tree.cursor, tree.cursor_row) == (5, 5)
    assert tree.unseen == 2


def test_what_repaints_begins_at_the_sibling_whose_guide_changes() -> None:
    tree = small_tree()
    assert tree.fold_in([candidate(6, 1, 2)]).repaint_from == tree.rows.index(3)


def test_following_takes_the_cursor_to_the_newest() -> None:
    tree = small_tree()
    tree.follow(True)
    assert tree.cursor == 5
    tree.fold_in([candidate(6, 4, 4)])
    assert (tree.cursor, tree.unseen) == (6, 0)


def test_folding_hides_a_subtree_and_takes_the_cursor_out_of_it() -> None:
    tree = small_tree()
    tree.move_to(4)
    assert tree.fold(1)
    assert tree.rows == [1, 5]
    assert tree.cursor == 1
    tree.fold_in([candidate(6, 2, 3)])
    assert tree.rows == [1, 5]
    assert tree.unfold(1)
    assert tree.rows == [1, 2, 4, 6, 3, 5]


def test_going_to_a_hidden_candidate_unfolds_what_hides_it() -> None:
    tree = small_tree()
    tree.fold(2)
    tree.fold(1)
    assert tree.move_to(4)
    assert tree.rows == [1, 2, 4, 3, 5]


def test_h_folds_then_goes_to_the_parent_and_l_unfolds_then_goes_to_the_child() -> None:
    tree = small_tree()
    tree.move_to(2)
    tree.fold_or_parent()
    assert tree.rows == [1, 2, 3, 5]
    tree.fold_or_parent()
    assert tree.cursor == 1
    tree.unfold_or_child()
    assert tree.cursor == 2
    tree.unfold_or_child()
    tree.unfold_or_child()
    assert tree.cursor == 4


def test_the_best_below_counts_only_what_may_be_best() -> None:
    tree = small_tree()
    assert tree.row(0).best_below == 1.5
    tree.fold_in([replace(candidate(2, 1, 2, 1.5), pruned=True)])
    assert tree.row(0).best_below == 1.2
    tree.fold_in([replace(candidate(3, 1, 2, 9.0), labels=("fallback",))])
    assert tree.row(0).best_below == 1.2
    tree.fold_in([candidate(6, 4, 4, 3.0)])
    assert tree.row(0).best_below == 3.0


def test_guides_tell_which_branches_go_on() -> None:
    tree = small_tree()
    assert tree.row(0).last == ()
    assert tree.row(tree.rows.index(2)).last == (False,)
    assert tree.row(tree.rows.index(4)).last == (False, True)
    assert tree.row(tree.rows.index(3)).last == (True,)
    assert tree.row(tree.rows.index(4), levels=1).hidden_levels == 1


def test_a_filter_shows_matches_with_what_they_grew_from() -> None:
    tree = small_tree()
    tree.set_filter(parse_filter("speedup<1.3 depth:3"))
    assert tree.rows == [1, 2, 4]
    assert [tree.matches(number) for number in tree.rows] == [False, False, True]
    assert tree.cursor == 4
    tree.fold_in([candidate(6, 3, 3, 1.1)])
    assert tree.rows == [1, 2, 4, 3, 6]
    tree.set_filter(None)
    assert tree.rows == [1, 2, 4, 3, 6, 5]
    assert tree.cursor == 4


def test_rows_equal_a_walk_of_the_tree_whatever_is_folded_and_added() -> None:
    random_ = random.Random(7)
    tree = RunTree()
    depths: dict[int, int] = {}
    for number in range(1, 400):
        parent = random_.choice(list(depths)) if depths and random_.random() < 0.9 else None
        depths[number] = depths[parent] + 1 if parent else 1
        tree.fold_in([candidate(number, parent, depths[number], random_.choice([None, 1.0, 2.0]))])
        if random_.random() < 0.2:
            tree.fold(random_.choice(tree.rows))
        if random_.random() < 0.2:
            tree.unfold(random_.choice(list(depths)))
        if random_.random() < 0.3:
            tree.move_to_row(random_.randrange(len(tree.rows)))
        assert tree.rows[tree.cursor_row] == tree.cursor
    assert tree.rows == list(tree._visible(tree._top))


def test_a_chain_of_any_depth_is_no_problem() -> None:
    tree = RunTree()
    tree.fold_in([candidate(number, number - 1 or None, number, 1.0 + number / 1e4) for number in range(1, 5001)])
    assert len(tree.rows) == 5000
    assert tree.row(4999, levels=8).hidden_levels == 4991
    tree.fold(1)
    assert tree.rows == [1]
    tree.move_to(5000)
    assert len(tree.rows) == 5000


def test_adding_one_candidate_to_ten_thousand_is_quick() -> None:
    random_ = random.Random(1)
    tree = RunTree()
    depths = {0: 0}
    for number in range(1, 10_001):
        parent = random_.choice([0, *list(depths)[-50:]])
        depths[number] = depths[parent] + 1
        tree.fold_in([candidate(number, parent or None, depths[number], 1.0)])
    started = time.process_time()
    for number in range(10_001, 10_021):
        tree.fold_in([candidate(number, 5000, depths[5000] + 1, 1.0)])
    assert (time.process_time() - started) / 20 < 0.010
