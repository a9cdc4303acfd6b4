"""The command line: a module for each command, which parses its options and calls the packages that do the work.

`command_line` finds the command of a call and turns errors into messages and an exit status. A command's module is
imported when the command runs, because most need packages that rendering does not (torch, triton).
"""

#: The subcommands; `main` of the module of that name in this package runs it. The first four need torch and triton.
COMMANDS = ("verify", "prepare", "bench", "tune", "schema", "new", "explain", "package")
