"""`python -m generator`."""

import sys

from generator.commands.command_line import main

if __name__ == "__main__":
    sys.exit(main())
