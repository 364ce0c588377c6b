"""Settings for every test."""

import hypothesis
import pytest

# A first example may trace a tf.function, which takes seconds: pytest-timeout watches the time instead.
hypothesis.settings.register_profile("slimdp", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("slimdp")

_SLOW_OF_CONTRACTS = ("test_traced_and_eager_agree", "test_is_right_on_average")  # each traces functions, or draws much


def pytest_collection_modifyitems(items):
    for item in items:
        if getattr(item, "originalname", "") in _SLOW_OF_CONTRACTS:
            item.add_marker(pytest.mark.slow)
