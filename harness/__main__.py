"""The command `harness`, also as `python -m harness`: light, so that an interrupt is always a sentence."""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its threads spin while they wait for work


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it without a traceback."""
    try:
        from harness.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the first call\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
