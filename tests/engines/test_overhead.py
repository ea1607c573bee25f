"""The embedded engine costs little more than the arithmetic: the benchmark's ratios, with fewer repetitions."""

from benchmarks.engine_overhead import mix_overhead, sum_overhead


def test_a_round_of_sums_costs_at_most_ten_bare_sums():
    engine, bare = sum_overhead(repeat=10, number=200)
    assert engine <= 10 * bare


def test_a_round_of_mixes_costs_at_most_two_bare_products():
    engine, bare = mix_overhead(repeat=6)
    assert engine <= 2 * bare
