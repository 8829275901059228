"""`gridengine page`: a dispatcher live in a browser, for its user alone. Wants `gridengine[page]`.

In: what a dispatcher answers who watches it (`source`), and requests of a browser on this machine
(`access` says which are answered). Out: tables a window at a time (`rows`), graph, timeline, logs
and metrics, as JSON and events (`app`, which to read first), and the files in `static` that show
them. Only the command line imports this room.
"""
