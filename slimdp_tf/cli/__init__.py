"""Command-line programs, installed as slimdp-train and so on; in a checkout, tools/train."""
