"""``python -m penstock`` is the ``penstock`` command.

Nothing but built-in modules may be imported before the working directory has left the import path, not even
``__future__``.
"""

import sys

from penstock.interpreter import collect_rarely, leave_working_directory, skip_last_collection


def main() -> None:
    """Run the command, without modules of the working directory."""
    leave_working_directory()
    collect_rarely()
    try:
        from penstock.cli.main import main

        main()
    except KeyboardInterrupt:  # while modules were imported: commands answer it themselves
        sys.exit(_interrupted())
    finally:
        skip_last_collection()


def _interrupted() -> int:
    from penstock.cli.exit_codes import INTERRUPTED

    sys.stderr.write("interrupted\n")
    return INTERRUPTED


if __name__ == "__main__":
    main()
