"""Watching dispatchers from other processes, and saying what is seen in words.

In: what dispatchers of this user answer at their Unix sockets, or tell unasked (`dispatchers`,
which to read first; the messages are `dispatcher/watch_messages`). Out: who is there, and why
something waits (`explanation`), for the command line and for Python.
"""
