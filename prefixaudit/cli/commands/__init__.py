"""Commands, one file a command; the file's name is the name that users type.

A module defines a function whose parameters are typer options (shared ones come from
`prefixaudit.cli.options`), whose docstring is the help text with examples, and which returns the
exit code. It ends in `COMMAND = Command(run=function)`, or `Command(group=typer.Typer(...))` for
commands with subcommands. Nothing but typer and light modules is imported at the top: `--help`
imports all of them. Results are written with `streams.write_result`, everything else with
`streams.note`; errors are raised.
"""
