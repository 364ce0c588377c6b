"""The variables that processes which train are given."""

from slimdp_tf.bench.setting import clean_environment
from slimdp_tf.environment import LARGE_PAGES


def test_programs_of_the_bench_ask_for_large_pages_unless_the_user_says_otherwise(monkeypatch):
    (name, value) = next(iter(LARGE_PAGES.items()))
    monkeypatch.delenv(name, raising=False)
    assert clean_environment()[name] == value
    monkeypatch.setenv(name, "glibc.malloc.hugetlb=0")
    assert clean_environment()[name] == "glibc.malloc.hugetlb=0"
