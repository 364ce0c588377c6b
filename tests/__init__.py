"""The tests: they mirror slimdp_tf/ path by path."""
