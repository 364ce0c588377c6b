"""Running a command-line program so that a user's mistake is answered in words and not by a traceback."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from absl import app, flags, logging

from slimdp_tf.distribute.calls import ClusterError

_EXIT_CODE = 2


def run_program(
    main: Callable[[Sequence[str]], int | None], read: Callable[[list[str]], None] | None = None
) -> NoReturn:
    """Reads the flags, runs `main` with what is left of the arguments, and exits with what it returns.

    Args:
        main: the program; it is given its name and the arguments that are no flags.
        read: called with the arguments before they are parsed; it may replace some in place.
    """

    def parse(argv: list[str]) -> list[str]:
        questions = [argument for argument in argv[1:] if argument.lstrip("-") in ("help", "helpfull")]
        argv = [argv[0], *questions] if questions else list(argv)
        with explaining():
            if read is not None and not questions:
                read(argv)
            sys.argv[:] = argv  # where config flags look for what they override
            rest = app.parse_flags_with_usage(argv)
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # libraries tell much that no user asked for
        return rest

    app.run(main, flags_parser=parse)
    raise SystemExit(0)  # absl's run does not come back


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """Turns an error about what the user gave into one message and exit code 2; -v=1 shows the traceback, too."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, ClusterError, flags.Error) as error:
        logging.debug("where it came from:", exc_info=True)
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Prints a message on stderr and exits with code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(_EXIT_CODE)


def check_no_arguments(arguments: Sequence[str]) -> None:
    """Refuses arguments that are no flags, after the program's name."""
    if arguments[1:]:
        refuse(f"only flags are allowed, as --name=value. Received: {' '.join(arguments[1:])}")


def check_folder(path: str | None) -> None:
    """Raises a ValueError when the folder that `path` is to be written into is not there; nothing for None."""
    if path is not None and not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"The folder of {path!r} does not exist. Make it, or name another file.")


def read_sizes(words: Sequence[str]) -> list[int]:
    """Entries from words such as 1e6.

    Raises:
        ValueError: a word is no number from 1 to 2^31 - 1.
    """
    sizes = []
    for word in words:
        try:
            sizes.append(int(float(word)))
        except ValueError:
            sizes.append(0)
        if not 1 <= sizes[-1] < 2**31:
            raise ValueError(f"sizes must be numbers from 1 to 2^31 - 1, such as 1e6. Received: {word!r}")
    return sizes
