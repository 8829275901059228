"""The dispatcher's end of its clients: programs in other processes, and calls that make calls.

Comes in: a client's requests. Goes out: tasks for the core, and the client's outcomes. What a
client has asked for is on disk before it is acknowledged (`client_record`). Read `clients` first.
"""
