"""Keras's side: the bridge to its trainer, and experiments (data, models, configs, TensorBoard)."""
