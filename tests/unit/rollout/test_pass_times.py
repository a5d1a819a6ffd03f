"""Stretches of like passes."""

from statistics import fmean

from flexfloor.rollout.pass_times import STRETCH, PassTimes


def timed(seconds):
    """Passes of one rank with as many rows as their number."""
    times = PassTimes()
    for rows, each in enumerate(seconds):
        times.note(ranks=2, rows=rows, joining=0, context=10 * rows, seconds=each)
    return times


def test_a_stretch_has_the_mean_load_and_the_median_time():
    [sample] = timed([1.0, 2.0, 9.0]).samples()
    assert (sample.load.ranks, sample.load.rows, sample.load.context) == (2, 1.0, 10.0)
    assert sample.seconds == 2.0


def test_the_first_half_leaves_out_later_stretches():
    for stretches, kept in ((1, 1), (2, 1), (3, 2)):
        every = timed([1.0] * STRETCH * stretches).samples()
        half = timed([1.0] * STRETCH * stretches).samples(first_half=True)
        assert len(every) == stretches
        assert half == every[:kept]
    assert PassTimes().samples(first_half=True) == ()


def test_ranks_that_take_turns_on_a_core_are_timed_by_their_mean():
    times, usual = PassTimes(fmean), PassTimes()
    for seconds in (1.0, 1.0, 1.0, 5.0):
        for each in (times, usual):
            each.note(ranks=3, rows=2, joining=0, context=9, seconds=seconds)
    assert [sample.seconds for sample in (*times.samples(), *usual.samples())] == [2.0, 1.0]
