"""Who may begin another round."""

import math

from slimdp_tf.distribute.lanes import Course, Lane, soonest


def may_begin(course: Course, *lanes: Lane) -> list[int]:
    return list(course.may_begin(dict(enumerate(lanes))))


def test_nobody_before_the_chief_asks():
    course = Course(staleness=2)
    assert may_begin(course, Lane()) == []
    course.ask(3, 0)
    assert may_begin(course, Lane()) == [0]
    assert course.left(Lane(steps=1)) == 2
    assert may_begin(course, Lane(turns=0, steps=3)) == []


def test_those_ahead_wait_for_the_slowest():
    course = Course(staleness=2)
    for left in (4, 3, 2):
        course.ask(1, left)
    assert may_begin(course, Lane(turns=2, steps=2), Lane()) == [0, 1]
    assert may_begin(course, Lane(turns=3, steps=3), Lane()) == [1]
    assert may_begin(course, Lane(turns=3, steps=3), Lane(turns=1, steps=1)) == [0, 1]


def test_who_waits_for_a_server_has_more_time():
    busy, idle = Lane(give_up=5.0), Lane()
    for lane in (busy, idle):
        lane.excuse(9.0)
        lane.excuse(7.0)
    assert (busy.give_up, idle.give_up) == (9.0, None)


def test_those_whose_data_has_ended_keep_nobody():
    course = Course(staleness=0)
    course.ask(1, 1), course.ask(1, 0)
    assert may_begin(course, Lane(turns=1, steps=1), Lane()) == [1]
    assert may_begin(course, Lane(turns=1, steps=1), Lane(is_ended=True)) == [0]


def test_nobody_is_further_ahead_of_what_was_asked_than_the_bound():
    course = Course(staleness=2)
    course.ask(1, 9)
    assert may_begin(course, Lane(turns=2, steps=2)) == [0]
    assert may_begin(course, Lane(turns=3, steps=3)) == []


def test_the_busy_and_the_held_begin_nothing():
    course = Course(staleness=1)
    course.ask(1, 0)
    assert may_begin(course, Lane(give_up=5.0), Lane(is_held=True), Lane()) == [2]


def test_a_lost_worker_comes_back_beside_another():
    lane = Lane(turns=1, steps=4, ticket=3, give_up=7.0, has_answer=True, is_ended=True)
    lane.forsake()
    assert (lane.ticket, lane.lost_ticket, lane.is_busy, lane.has_answer) == (4, 3, False, False)
    lane.welcome(Lane(turns=5, steps=20), merges=9)
    assert (lane.lost_ticket, lane.turns, lane.steps, lane.pulled_at, lane.is_ended) == (-1, 5, 20, 9, False)


def test_the_first_deadline():
    assert soonest([Lane(), Lane(give_up=9.0), Lane(give_up=4.0)]) == 4.0
    assert soonest([Lane()]) == math.inf
