"""The bench: contenders that do the same work, one after another, on a network of this machine's own."""
