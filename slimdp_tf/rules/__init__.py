"""Pure tensor mathematics of the methods: what is sent, how it is written, how it is merged, when."""
