"""The commands of the shell, one file each: a file here with a `register(app)` is a command, and `cli` finds it."""
