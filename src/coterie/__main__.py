"""`python -m coterie` is the `coterie` command."""

import sys

INTERRUPTED = 20
"""The exit code of a run that was stopped by hand, see `coterie exit-codes`."""


def main() -> None:
    """Run the command line; one that is stopped while it is still being loaded says so."""
    try:
        from coterie.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped by hand before the end\n")
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
