"""Settings for every test."""

import hypothesis

# A first example may trace a tf.function, which takes seconds: pytest-timeout watches the time instead.
hypothesis.settings.register_profile("slimdp", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("slimdp")
