"""Changed paths wait until they are written."""

from __future__ import annotations

from penstock.watch import LONGEST_S, MOST_PATHS, QUIET_S, PendingChanges


def test_a_path_is_taken_once_it_is_quiet():
    pending = PendingChanges()
    pending.add(["/a"], 0.0)
    pending.add(["/a"], 0.4)

    assert [] == pending.take(0.4 + QUIET_S / 2)
    assert ["/a"] == pending.take(0.4 + QUIET_S)
    assert [] == pending.take(10.0)


def test_a_path_that_is_written_all_the_time_is_taken_in_the_end():
    pending = PendingChanges()
    times = [step * QUIET_S / 2 for step in range(int(8 * LONGEST_S))]
    taken = []
    for now in times:
        pending.add(["/log"], now)
        taken += [now for _ in pending.take(now)]

    assert LONGEST_S == taken[0]


def test_two_halves_of_a_move_are_taken_together_beside_a_busy_path():
    pending = PendingChanges()
    pending.add(["/old", "/new", "/log"], 0.0)
    pending.add(["/log"], 0.3)

    assert ["/old", "/new"] == pending.take(QUIET_S)


def test_a_storm_of_events_is_not_kept():
    pending = PendingChanges()
    pending.add((f"/{number}" for number in range(MOST_PATHS + 1)), 0.0)

    assert pending.overflow
    assert [] == pending.take(100.0)
