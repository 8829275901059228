"""How callers reach a dispatcher that has no thread in their own process: one in another process
(`remote`), the one whose worker runs the caller (`nested`), or none at all (`inline`).

Comes in: tasks, from `client`, by the interface `dispatcher.interface`. Goes out: requests over a
connection, or a runner's channel; outcomes, to the listeners of the tasks. Read `requesting` first.
"""
