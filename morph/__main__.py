"""`morph` and `python -m morph`: the command line, ended in good order from its first import on."""

import signal
import sys
from typing import NoReturn

from morph.errors import INTERRUPTED


def main() -> NoReturn:
    """Run the command line; Ctrl-C, or a request to terminate, while it loads is one line too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from morph.cli import main as run

        run()
    except KeyboardInterrupt:
        print("morph: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
