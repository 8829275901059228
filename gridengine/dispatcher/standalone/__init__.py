"""The process of a stand-alone dispatcher, and the folder in which its files are.

    gridengine dispatcher start NAME
      background.start --lock, pipe--> process.main
                 |                        |- supervise: starts the next, after each death
                 |                        `- _Process -> serve -> io_thread.DispatcherThread
                 '<------- READY ---------'

Read `dispatcher_folder` first (names, files, state, lock), then `background` (starts and ends such
processes), `process` (what one runs) and `serve` (its dispatcher, and the actions of clients).
`tunnel` reaches a dispatcher of another machine by an `ssh_link`.

State machines:

- A dispatcher, by its folder (`dispatcher_folder.DispatcherState`): running while the lock is held,
  ended if the lock names nobody, died if the lock still names a process. On another machine, where
  locks may be invisible, it runs if the lock file has just been touched or somebody answers. Where
  it is reached by a tunnel: running while the tunnel's lock is held, else disconnected.
- The process: not ready (errors go to the process that started it), ready, stopped. An exit status
  of `NOT_AGAIN` means that a restart would fail in the same way.
- `gridengine dispatcher stop`: drains first, so that running calls end, nested calls included;
  `stop --now` and signals end it at once.

Keep in step:

- The lock is inherited: whoever starts the process holds it before, so that no other process can
  begin between the two.
- A process that another machine has replaced ends by `os._exit`, without touching the folder: all
  files there belong to the other process.
- The files by which clients and workers connect exist only while the dispatcher runs; the keys in
  `server.json`, the options and the journal survive.

Rejected:

- Letting `stop` end everything, as a service manager's does. A user who stops a dispatcher by hand
  has calls there that took hours. Calls that wait are not waited for: there may be a million.
- Deleting the folder at the end. With its keys and options, a start on any machine with the same
  home is the same dispatcher; only its user deletes it.
- Defaults for options that a second `start NAME` does not give. Calls that were meant for a cluster
  ran on the login node, without a word. `start` takes the options that the name had, unless
  `--scheduler` is given: that describes a whole dispatcher.
"""
