"""The commands of the shell, one file each: a file is a command of its name, and `cli` finds it."""
