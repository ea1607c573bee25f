"""The embedded engine costs little more than the arithmetic: the benchmark's ratios, with fewer
repetitions.
"""

from benchmarks.engine_overhead import mix_overhead, sum_overhead


def best_ratio(measure, tries=5, **sizes):
    """The least of a few ratios: other tests may be running beside this one."""
    return min(engine / bare for engine, bare in (measure(**sizes) for _ in range(tries)))


def test_a_round_of_sums_costs_at_most_ten_bare_sums():
    assert best_ratio(sum_overhead, repeat=10, number=100) <= 10


def test_a_round_of_mixes_costs_at_most_two_bare_products():
    assert best_ratio(mix_overhead, tries=3, repeat=4) <= 2
