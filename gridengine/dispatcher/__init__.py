"""Acts on what `core` decides: one I/O thread per scheduler, shared by all that use it.

In come tasks, cancellations and releases of clients, by the methods of `interface.Dispatcher`; out
go outcomes, to their `Listener`, and snapshots. Towards the workers there are two links: an
encrypted socket (`remote_workers`) or a function call (`local_workers`).

Read `interface` first, then `io_loop`.
"""
