"""Cron expressions, intervals and time zones: tables of cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.errors import InvalidSchedule
from penstock.queue import schedules

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def runs(text: str, after: str, count: int = 1, zone: str = "UTC") -> list[str]:
    """The next times after a local time, in the zone's own time with its offset."""
    timing, place = schedules.parse(text), schedules.zone_of(zone)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moment = datetime.fromisoformat(after)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=place)
    found = []
    for _ in range(count):
        following = schedules.next_after(timing, moment.astimezone(UTC), place, start=start)
        assert following is not None
        assert following > moment
        moment = following
        found.append(moment.astimezone(place).strftime("%Y-%m-%d %H:%M %z"))
    return found


def short(times: list[str]) -> list[str]:
    return [time[:16] for time in times]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # Every field: a value, a list, a range, steps, names.
        ("5 * * * *", "2026-03-01T00:05", ["2026-03-01 01:05", "2026-03-01 02:05"]),
        ("0,30 * * * *", "2026-03-01T00:05", ["2026-03-01 00:30", "2026-03-01 01:00"]),
        ("*/20 * * * *", "2026-03-01T00:39", ["2026-03-01 00:40", "2026-03-01 01:00"]),
        ("10-12 * * * *", "2026-03-01T00:11", ["2026-03-01 00:12", "2026-03-01 01:10"]),
        ("50/4 * * * *", "2026-03-01T00:51", ["2026-03-01 00:54", "2026-03-01 00:58"]),
        ("0 3 * * *", "2026-03-01T03:00", ["2026-03-02 03:00", "2026-03-03 03:00"]),
        ("0 8-10/2 * * *", "2026-03-01T08:01", ["2026-03-01 10:00", "2026-03-02 08:00"]),
        ("0 */12 * * *", "2026-03-01T13:00", ["2026-03-02 00:00", "2026-03-02 12:00"]),
        ("0 0 1,15 * *", "2026-03-02T00:00", ["2026-03-15 00:00", "2026-04-01 00:00"]),
        ("0 0 31 * *", "2026-01-31T00:00", ["2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 30 * *", "2026-01-30T00:00", ["2026-03-30 00:00", "2026-04-30 00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "2096-03-01T00:00", ["2104-02-29 00:00"]),
        ("0 0 */10 * *", "2026-03-02T00:00", ["2026-03-11 00:00", "2026-03-21 00:00"]),
        ("0 0 1 jan,JUL *", "2026-02-01T00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        ("0 0 1 nov-dec *", "2026-02-01T00:00", ["2026-11-01 00:00", "2026-12-01 00:00"]),
        ("0 0 1 */6 *", "2026-02-01T00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        ("0 9 * * 1", "2026-03-01T00:00", ["2026-03-02 09:00", "2026-03-09 09:00"]),
        ("0 9 * * mon-fri", "2026-03-06T10:00", ["2026-03-09 09:00", "2026-03-10 09:00"]),
        ("0 9 * * sat-sun", "2026-03-06T10:00", ["2026-03-07 09:00", "2026-03-08 09:00"]),
        ("0 9 * * 0", "2026-03-06T10:00", ["2026-03-08 09:00", "2026-03-15 09:00"]),
        ("0 9 * * 7", "2026-03-06T10:00", ["2026-03-08 09:00", "2026-03-15 09:00"]),
        ("0 9 * * 5-7", "2026-03-06T10:00", ["2026-03-07 09:00", "2026-03-08 09:00", "2026-03-13 09:00"]),
        # Both days restricted: one of them is enough. One with a star: both have to match.
        ("0 0 13 * fri", "2026-02-07T00:00", ["2026-02-13 00:00", "2026-02-20 00:00"]),
        ("0 0 1 * mon", "2026-02-24T00:00", ["2026-03-01 00:00", "2026-03-02 00:00"]),
        ("0 0 */2 * mon", "2026-03-01T00:00", ["2026-03-09 00:00", "2026-03-23 00:00"]),
        ("0 0 31 2 mon", "2026-02-01T00:00", ["2026-02-02 00:00", "2026-02-09 00:00"]),
        # Names.
        ("@yearly", "2026-01-01T00:00", ["2027-01-01 00:00"]),
        ("@monthly", "2026-01-31T00:00", ["2026-02-01 00:00"]),
        ("@weekly", "2026-03-02T00:00", ["2026-03-08 00:00"]),
        ("@daily", "2026-02-28T00:00", ["2026-03-01 00:00"]),
        ("@Hourly", "2026-02-28T23:30", ["2026-03-01 00:00"]),
        # Intervals, counted from the start.
        ("every 15m", "2026-01-01T00:14:59", ["2026-01-01 00:15", "2026-01-01 00:30"]),
        ("@every 1h30m", "2026-01-01T01:30", ["2026-01-01 03:00", "2026-01-01 04:30"]),
        ("every 2d", "2025-12-01T00:00", ["2026-01-01 00:00", "2026-01-03 00:00"]),
    ],
)
def test_the_next_times(text: str, after: str, expected: list[str]):
    assert expected == short(runs(text, after, len(expected)))


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        # Spring, the hour from 2 to 3 does not exist: a time of day counts right after the gap, once.
        (BERLIN, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"]),
        (BERLIN, "0,30 2 * * *", "2026-03-28T12:00", ["2026-03-29 03:00 +0200", "2026-03-30 02:00 +0200"]),
        (BERLIN, "0 2,3 * * *", "2026-03-28T12:00", ["2026-03-29 03:00 +0200", "2026-03-30 02:00 +0200"]),
        (BERLIN, "30 1 * * *", "2026-03-28T12:00", ["2026-03-29 01:30 +0100", "2026-03-30 01:30 +0200"]),
        (BERLIN, "0 4 * * *", "2026-03-28T12:00", ["2026-03-29 04:00 +0200", "2026-03-30 04:00 +0200"]),
        (NEW_YORK, "15 2 * * *", "2026-03-07T12:00", ["2026-03-08 03:00 -0400", "2026-03-09 02:15 -0400"]),
        # A rhythm follows the real time.
        (BERLIN, "30 * * * *", "2026-03-29T00:45", ["2026-03-29 01:30 +0100", "2026-03-29 03:30 +0200"]),
        (NEW_YORK, "*/30 * * * *", "2026-03-08T01:15", ["2026-03-08 01:30 -0500", "2026-03-08 03:00 -0400"]),
        (BERLIN, "*/15 2 * * *", "2026-03-28T12:00", ["2026-03-30 02:00 +0200", "2026-03-30 02:15 +0200"]),
        # Autumn, the hour from 2 to 3 happens twice: a time of day counts the first time, once.
        (BERLIN, "30 2 * * *", "2026-10-24T12:00", ["2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"]),
        (NEW_YORK, "30 1 * * *", "2026-10-31T12:00", ["2026-11-01 01:30 -0400", "2026-11-02 01:30 -0500"]),
        (
            BERLIN,
            "0 * * * *",
            "2026-10-25T01:30",
            ["2026-10-25 02:00 +0200", "2026-10-25 02:00 +0100", "2026-10-25 03:00 +0100"],
        ),
        (
            NEW_YORK,
            "*/30 * * * *",
            "2026-11-01T00:45",
            [
                "2026-11-01 01:00 -0400",
                "2026-11-01 01:30 -0400",
                "2026-11-01 01:00 -0500",
                "2026-11-01 01:30 -0500",
                "2026-11-01 02:00 -0500",
            ],
        ),
        # Half an hour, a whole day that was skipped, and midnight that does not exist.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", ["2026-10-04 02:30 +1100"]),
        (
            "Pacific/Apia",
            "0 9 * * *",
            "2011-12-29T12:00",
            ["2011-12-31 00:00 +1400", "2011-12-31 09:00 +1400"],
        ),
        (
            "America/Havana",
            "0 0 * * *",
            "2026-03-07T12:00",
            ["2026-03-08 01:00 -0400", "2026-03-09 00:00 -0400"],
        ),
        # Intervals know no zone.
        (BERLIN, "every 6h", "2026-03-28T19:00", ["2026-03-29 01:00 +0100", "2026-03-29 08:00 +0200"]),
    ],
)
def test_days_on_which_the_clocks_change(zone: str, text: str, after: str, expected: list[str]):
    assert expected == runs(text, after, len(expected), zone)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected 5 fields"),
        ("* * * *", "expected 5 fields (minute hour day month weekday), got 4"),
        ("0 0 3 * * *", "got 6"),
        ("60 * * * *", "minute '60': expected 0 to 59"),
        ("* 24 * * *", "hour '24': expected 0 to 23"),
        ("* * 0 * *", "day of the month '0': expected 1 to 31"),
        ("* * 32 * *", "day of the month '32'"),
        ("* * * 13 *", "month '13': expected 1 to 12 or jan, feb"),
        ("* * * * 8", "day of the week '8': expected 0 to 7 or sun, mon"),
        ("* * * foo *", "month 'foo'"),
        ("*/0 * * * *", "minute '*/0': a step is a number from 1 to 59"),
        ("*/x * * * *", "a step is a number"),
        ("5-1 * * * *", "a range goes from the smaller to the larger value"),
        ("1, * * * *", "minute ''"),
        ("-5 * * * *", "minute '-5'"),
        ("* * L * *", "day of the month 'L'"),
        ("* * ? * *", "day of the month '?'"),
        ("٣ * * * *", "minute"),
        ("0 0 30 2 *", "there is no such day, it would never run"),
        ("0 0 31 apr,jun,sep,nov *", "there is no such day"),
        ("@reboot", "unknown; known are @yearly"),
        ("every", "unknown"),
        ("every 0s", "expected an interval of 1 second to 366 days"),
        ("every 9999d", "expected an interval"),
        ("every 5 minutes", "unknown"),
    ],
)
def test_timings_that_make_no_sense_are_refused(text: str, reason: str):
    with pytest.raises(InvalidSchedule) as refusal:
        schedules.parse(text)
    assert reason in refusal.value.message


@pytest.mark.parametrize("name", ["Europe/Berlun", "", "../etc/passwd", "/etc/localtime", "a\0b", 3])
def test_an_unknown_zone_is_refused(name: str):
    with pytest.raises(InvalidSchedule, match="time zone"):
        schedules.zone_of(name)


def test_each_time_is_later_than_the_one_before_over_two_years_of_minutes_and_days():
    """Two years with four changes of the clock: strictly growing, and no day without its time."""
    for zone in (BERLIN, NEW_YORK, "Australia/Lord_Howe"):
        times = runs("30 2 * * *", "2026-01-01T00:00", 730, zone)
        assert 730 == len({time[:10] for time in times})


@pytest.mark.parametrize(
    ("text", "hours"),
    [("* * * * *", 3), ("*/30 1-3 * * *", 120), ("30 2 * * *", 120), ("0 0 * * 1", 400), ("every 90s", 1)],
)
@pytest.mark.parametrize("begin", ["2026-03-28T23:30", "2026-10-24T23:30", "2026-06-01T12:00"])
def test_counted_times_are_those_found_one_by_one(text: str, hours: float, begin: str):
    """Also over the days on which the clocks change."""
    timing, zone = schedules.parse(text), schedules.zone_of(BERLIN)
    start = datetime.fromisoformat(f"{begin}+00:00")
    first = schedules.next_after(timing, start, zone, start=start)
    assert first is not None
    last = first + timedelta(hours=hours)
    times = [first]
    while (following := schedules.next_after(timing, times[-1], zone, start=start)) and following <= last:
        times.append(following)

    assert len(times) == schedules.times_until(timing, first, last, zone, start=start)
