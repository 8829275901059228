"""Watch dispatchers from other processes, and put their reports into words.

    a word --names, dispatcher_lookup, run_lookup--> a dispatcher, or the file of a named run
                                                         |
         connections (a Unix socket), remote_connections (TCP)
                                                         | Answer (JSON)
                                                         v
         explanation: why calls wait; top_tables: `top`

Read `connections` first; the messages are `dispatcher/watch_messages`.

- Which dispatcher or run? `names` has the one rule by which a word names something;
  `dispatcher_lookup` and `run_lookup` apply it. `runs_on_disk` reads what runs leave on disk.
- Which words? `explanation` says why calls wait and what is unusual, `call_explanation` describes
  one call or worker, `next_steps` says which step may help. `call_descriptions` describes arguments
  and failures; `phrases` formats times, sizes and places. `top_tables` has the tables of `top` and
  of the page, `worker_logs` finds logs.

Everything that makes words is pure: it takes a status, and can be tested on played cores.

Keep in step: `top_tables.VIEWS` with the fields of `status/rows`, and the dispatcher's `Answer`
with older versions, because another version may answer.

Rejected:

- Words made by the dispatcher. It reports facts (a job, its state, the batch system's reason), and
  the watcher makes sentences of them, at no cost to the run. Hints are the exception: an error that
  the dispatcher knows brings its hint along, for example from the schedulers' tables of refusals; a
  second table here would repeat it.
- Unpickling what is shown. Arguments are read with a stand-in for every class that is not one of a
  few plain ones, exceptions by the texts at the beginning of their pickle.
- Another protocol for watchers on other machines. They use the messages of clients, with the
  watcher's key, and get the same JSON as at the socket.
- A slope as the sign of a memory leak. Reported is a process whose last five calls all had half as
  much memory again as any of its first five: calls that need much now and then are no leak, nor are
  the imports of the first calls.
- A report every few seconds, so that a killed process leaves one. The folder of reports may be on a
  slow file server, and the I/O thread, on which all calls depend, would wait for it. A process
  leaves a record beside its socket, which says who it was: without that, the report of an older run
  of the same name would be shown in its place.
"""
