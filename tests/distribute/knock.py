"""Tries addresses from where it runs: prints those at which something accepts connections, as JSON.

python -m tests.distribute.knock HOST:PORT ...
"""

import json
import sys

from slimdp_tf.distribute.spec import answers

if __name__ == "__main__":
    print(json.dumps([address for address in sys.argv[1:] if answers(address)]))
