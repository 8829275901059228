"""What a scheduler starts: a worker, which runs calls for a dispatcher.

In come the dispatcher's messages (functions, batches of runs, cancellations), out go outcomes and
what calls print. A worker has three kinds of processes: the *agent*, which has the connection
(`main` on other machines; on this one it is in the dispatcher's own thread); its *fork server*; and
the *runners* that are forked from that and call user code, whatever that does to them.

Read `agent` first, then `runner_pool` (who is given what), `runner_messages` (what comes of it) and
`runner`, which is the other end.
"""
