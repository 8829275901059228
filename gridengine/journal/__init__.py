"""The journals: SQLite files on disk. A named run has one with its results; a stand-alone
dispatcher has one with everything that a restart needs.

    client                       run_file                         writer (a thread)
    call -> key (call_keys) ---> known_calls: an outcome? ---> yes: answered from the file
                                     | no
                                     v
    outcome of the call -------> add_result ---> rows ---> one commit each 0.25 s ---> disk

Nothing here runs a call. Read `run_file` first, then `writer`, then `known_calls`.

- `run_reader` reads a run's file without the code that made it, and `handed_calls` records which
  calls a stand-alone dispatcher was handed.
- `dispatcher_file` is the dispatcher's journal.
- `lock_file` lets one process at a time use a file.

Keep in step:

- The numbers of sessions, blocks and functions are counted in memory and written later. So one
  process at a time may write, which the lock ensures.
- `RunFile._has_blocks` with the writer: `read` flushes before it looks up what this process wrote.
- `DispatcherFile._later` with `settle_later`: acts that wait behind a deferred write run when the
  write is durable, or when the row that supersedes it is. Who uses the file calls `write_due` by
  its `deadline`.
- `APPLICATION`, `VERSION` and the tables with every older file.

Rejected: keeping results of named runs in the dispatcher's journal. On the client's side the file
works with every scheduler, and known calls need not be handed over at all. A layer between the
client's submissions and the dispatcher (`client/named_run_calls`) answers them from the file.
"""
