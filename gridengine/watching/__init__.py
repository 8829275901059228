"""Watch dispatchers from other processes, and put what they report into words.

    dispatcher --Answer (JSON)--> Watched (a Unix socket) or RemoteWatched (TCP, the watcher's key)
                                     |
    names, lookup: which dispatcher  v
    a word names               explanation: why calls wait; frames: `top`; report: a page of HTML

Read `dispatchers` first; the messages are `dispatcher/watch_messages`. `names` has the one rule by
which a word names a dispatcher or run; `lookup` and `run_lookup` list what there is. `explanation`,
`oddities` and `next_steps` make sentences of a status. `frames` makes the tables of `top` and of
the page, `timeline` the bars of the report and the page.

Everything that makes words is pure: it takes a status, and can be tested on played cores.

Keep in step: `frames.VIEWS` with the fields of `core/status`, and the dispatcher's `Answer` with
older versions, because another version may answer.

Rejected:

- Words made by the dispatcher. It reports facts (a job, its state, the batch system's reason), and
  the watcher makes sentences of them, at no cost to the run. The exception are hints: an error that
  the dispatcher knows has its hint from whoever raised it, such as the schedulers' tables of
  refusals; a second table here was worse.
- Unpickling what is shown. Arguments are read with a stand-in for every class that is not one of a
  few plain ones, exceptions by the texts at the beginning of their pickle.
- Another protocol for watchers on other machines. They use the messages of clients, with the
  watcher's key, and get the same JSON as at the socket.
- A slope as the sign of a memory leak. Reported is a process whose last five calls all had half as
  much memory again as any of its first five: calls that need much now and then are no leak, nor are
  the imports of the first calls.
"""
