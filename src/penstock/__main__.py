"""``python -m penstock`` is the ``penstock`` command.

Nothing may be imported before the working directory has left the import path, not even ``__future__``.
"""

from penstock.interpreter import collect_rarely, leave_working_directory, skip_last_collection


def main() -> None:
    """Run the command, without modules of the working directory."""
    leave_working_directory()
    collect_rarely()
    from penstock.cli.main import main

    try:
        main()
    finally:
        skip_last_collection()


if __name__ == "__main__":
    main()
