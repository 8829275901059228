"""The dispatcher's end of its clients: users' programs, which connect to a socket, and calls that
submit nested calls, whose messages their worker passes on.

    program ---socket---> client_listener --request--> journaled_client --rows--> journal
    runner --by its worker (io_loop)--.         |      (only with a journal)
                                      v         v
                                     clients: request -> events for the core
    core --CallsFinished--> ServedClient.settled -> clients.flush
                                      |
                                      v
              RemoteClient.finish -> journaled_client.finish -> message to the program
              NestedClient.finish ---------------------------> message to the runner

`clients` makes events of the messages, without the tasks and calls that are not the client's own.
`task_decoder` makes tasks of a submission.

Read `clients` first (the table of requests), then `client_process` (one client), `client_listener`
(who is connected) and `journaled_client` (one client's part of the journal). Nothing that a client
sends is unpickled here.

State machines:

- A program, in `client_listener`: heard, silent, gone (its process has ended, or its lease has run
  out), ended. A named run with a journal is never ended by this; it becomes *absent*: its calls go
  on, and the next client of the same name inherits them (`remote_client.AbsentClients`). Silence is
  counted only while the dispatcher itself was awake.
- A message with outcomes, in `journaled_client`: waiting (in `_waiting`; its content is in `_held`
  until it is durable), sent (`_flying`), acknowledged, which removes it. A large one that is sent
  at once is written late (`_later`), because the client may acknowledge it first. One that no row
  can hold stays in memory (`_large`).
- A request's row, in `journaled_requests`: inserted, and deleted when the client has the outcomes
  of all its calls and no other row needs it.

Keep in step:

- `ServedClient.references` is a part of `ServedClient.claims`, and `Clients._claimed` has an entry
  for each claim.
- `ClientRecord.seen` with `taken` in the client's welcome: both ends count the same requests
  (`JOURNALED`).
- `ClientRecord._outcomes` with the table `outcomes`, and `ClientRequests` with the tables
  `requests` and `ended`. The rows that make a call ended and the deletion of its outcome are one
  transaction.
- A row about calls is deleted together with the last of the requests that it is about, and the
  definitions of a name together with the last row that uses it. Whatever prefix of the writes
  survives a kill, the next process comes to the same state.
- The restored core is told of settled calls before it is told of cancellations
  (`ClientListener.restore`).

Rejected:

- One socket for workers and clients. The dispatcher would have to ask of each message whose it is.
  Watchers do share the clients' socket: the greeting shows which key a connection has.
- Taking a broken connection for the end of a client. From afar, a network that fails for ten
  minutes looks like a machine that has died.
- Letting every outcome wait for the disk. A client recognises the outcome of a call that it
  already has. So if the dispatcher is killed before the outcome that it has sent is on disk, the
  call runs a second time, and its user gets one result.
  Outcomes wait only where that does not hold; `ClientRecord.finish` lists the cases.
- Writing a result that no row can hold in several rows. A gigabyte in the journal would delay
  everything behind it, and it is lost only if the dispatcher is killed before the client has it. An
  error stands in its place.
- Deleting a row about calls only when no older request is left. Beside a call of a week,
  cancellations and references would stay for a week.
- Tables of what each row uses, and one `DELETE ... WHERE NOT EXISTS` when the dispatcher is idle. A
  graph would insert and delete three more rows for each call, and rows that are not needed would
  come back after a kill. `ClientRequests` counts instead who holds each row: no row more on disk,
  and each goes at once. Also rejected: looking at all rows when a thousand more have gathered.
- The session's acknowledgements in the place of `Durable` and `OutcomesTaken`. A session counts the
  messages of one connection to one process, in their order, and workers' sessions suffice because a
  returning worker says anew what it holds. A client's requests are counted over all processes of
  the dispatcher, so that none is handled twice. Outcomes are acknowledged in any order: one that
  waits for the file of its named run must not hold back others. Each end would need a table from
  the one count to the other, no shorter than the two messages.
- Letting the core record assignments. The message `Assign` has everything that the journal needs,
  so `journaled_workers` wraps the link to workers, and dispatchers without a journal pay nothing.
- Joining calls that an earlier client left to those of its successor. They may be grouped
  otherwise, or be other calls by now. The successor gets the outcomes first; the price is that
  its new calls wait for calls that still run.
"""
