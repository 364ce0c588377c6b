"""What a method will gain on a network, told before it is tried."""
