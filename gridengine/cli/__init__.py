"""The command line.

    words --click--> command --> watching, journal or api --> console: words, tables, JSON

Commands parse and print. They decide nothing: `watching` finds dispatchers and explains, `journal`
reads runs. Read `main` first. Commands that belong together share a module (`main.MODULES`), with
`tunnel` beside `dispatcher`. `far_end` is no command: ssh runs it at the other end of a tunnel.

A module imports at its head the modules that most of its commands need. A module that few commands
need, and whose import takes 15 ms or more, is imported inside these commands: ZeroMQ, SQLite, rich,
and everything that runs calls.

Keep in step: a command's `--json` and its users' scripts; the `--help` texts and docs/.

Rejected:

- typer, which is click with more on top. click is small, typed and maintained; only this room
  imports it.
- shiv for the package in one file. It unpacks a folder for `sys.path`: everything that starts
  `sys.executable` again (workers, fork servers, DRMAA's process, calls that use `multiprocessing`)
  would lose the package, or PYTHONPATH would carry it into every other Python. Its lock also waits
  for ever on a file system without locks. pex makes a virtual environment, whose start costs no
  more than that of an installed package, and which sees the interpreter's own packages.
- A command or a variable that turns the one file into an interpreter. It is one whenever Python's
  options or a script come first (`onefile`), so a scheduler's `python=` takes the file as it is.
- `gridengine up` in the background. Somebody must end the workers when they are no longer wanted,
  and report how they end. In the foreground, Ctrl-C does; or they end with the dispatcher.
- `gridengine retry` for runs without a name. A failed call's arguments are not stored, and its
  script has had the error. A named run has the arguments on disk, and the next script with that
  name takes the outcomes.
"""
