"""The command line: `gridengine settings`, `gridengine up`, `gridengine doctor`.

In: words. Out: words and an exit status. Read `main` first: it parses and prints. `doctor` looks at
this machine and its schedulers, `up` starts workers for a dispatcher that runs already.
"""
