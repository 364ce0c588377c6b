"""The only impure layer: variables, devices, the cluster, TensorFlow's internals (in `_tf` alone)."""
