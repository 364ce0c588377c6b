"""Command-line programs: train, compare, launch. Installed as slimdp-train and so on; in a checkout, tools/train."""
