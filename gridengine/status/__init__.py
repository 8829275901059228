"""A dispatcher's reports on itself, as plain data and words: no decision, no I/O.

    core --records--> watch_events, run_log, figures       while calls run
    dispatcher/status_views --makes--> rows                only on request
    watching, cli, page, api --read--> rows, snapshot      in any process

`snapshot` holds the counts that the dispatcher's own process reads after each event. `rows` holds
the data that watchers are sent: a `Status` with its samples of workers, runs and failures, and the
graph. `watch_events` records events while somebody follows; `run_log` has the lines of the log;
`figures` measures how long calls take and how much memory they use.

**Below the core.** The core records events and measures calls as it handles them, so this room
cannot import the core: it takes plain values (a host, a number of calls) and returns data or lines.
The functions that read the core's tables, `dispatcher/status_views` and `dispatcher/task_views`,
stand above the core for the same reason. One room for both would be a circle. A third way, views
that read any object with the right attributes, was rejected: mypy would check nothing of them.

The errors of calls are made in the core (`dispatcher/core/outcomes`), although they are words too.
An error is an outcome, and which one a call gets decides whether the call runs again.
"""
