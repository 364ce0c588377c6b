"""Hours of training under faults: what is done to a cluster, what its processes hold meanwhile, and what came of it."""
