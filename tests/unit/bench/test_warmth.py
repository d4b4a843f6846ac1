"""When a warm-up is over: what still falls is not warm, however slowly it does, and noise alone keeps nobody cold."""

import random

from bench.versus.warmth import WarmUp, fell, is_flat, windows

TOLERANCE = WarmUp().tolerance


def pieces_until_flat(costs):
    """How many of them a warm-up takes, None if it does not end."""
    return next((count for count in range(1, len(costs) + 1) if is_flat(costs[:count], TOLERANCE)), None)


def test_windows_are_the_second_half_in_three():
    assert windows([9, 9, 9, 1, 2, 3]) == [1, 2, 3]
    assert windows([9] * 6 + [1, 3, 2, 2, 4, 6]) == [2, 2, 5]


def test_pieces_that_do_not_fill_three_windows_stay_in_the_first_half():
    assert windows([9, 9, 9, 9, 1, 2, 3]) == [1, 2, 3]


def test_a_few_pieces_say_nothing():
    assert windows([1.0] * 5) == []
    assert not is_flat([1.0] * 5, TOLERANCE)


def test_what_costs_the_same_is_warm_as_soon_as_it_can_be_told():
    assert pieces_until_flat([20.0] * 10) == 6


def test_a_jump_in_one_window_is_not_flat():
    assert not is_flat([20, 20, 20, 20, 20, 23], TOLERANCE)
    assert is_flat([20, 20, 20, 20, 20, 21], TOLERANCE)


def test_a_slow_fall_is_not_flat_though_neighbours_hardly_differ():
    falling = [100 * 0.98**number for number in range(60)]
    assert pieces_until_flat(falling[20:]) == 6  # Three single pieces lie within 5 %: what comes later would tell.
    assert not is_flat(falling, TOLERANCE)


def test_a_warm_up_with_a_plateau_ends_after_about_as_long_again():
    curve = [100 * 0.8**number for number in range(10)] + [12.0] * 40
    assert 15 <= pieces_until_flat(curve) <= 24


def test_noise_goes_into_the_means():
    source = random.Random(1)
    noisy = [10 * source.uniform(0.9, 1.1) for _ in range(60)]
    assert pieces_until_flat(noisy) is not None


def test_rounds_that_are_cheaper_than_the_warm_up_ended_are_told():
    costs = [10.0] * 6
    assert fell(costs, [8.5, 8.7, 8.6], 0.1)
    assert not fell(costs, [9.3, 9.5, 9.4], 0.1)
    assert not fell(costs, [14.0], 0.1)
    assert not fell(costs, [], 0.1)


def test_three_brokers_have_longer():
    assert WarmUp().limit_s(1) < WarmUp().limit_s(3)
