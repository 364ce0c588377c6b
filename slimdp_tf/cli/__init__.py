"""Command-line programs: train, compare, launch, bench_network. Installed as slimdp-train and so on; in a checkout, tools/train."""
