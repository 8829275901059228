"""The command line: a module for each command, by its name, but for those in `main`.

In: words. Out: words and an exit status. Read `main` first: it parses and prints. `doctor` looks at
this machine and its schedulers, `up` starts workers for a dispatcher that runs already.
"""
