"""What users' calls have in common on their way to a dispatcher and back.

In come a function, arguments and options, as `gridengine.api` takes them. Tasks of pickled calls go
out to the dispatcher of a scheduler (`gridengine.dispatcher.interface`); its events come back, in
its I/O thread, and become results and exceptions in the threads that ask for them.

There are three ways. Many calls of one function are a `submission`, which a `map_run` fills and
reads. Single calls are a `future` each, gather in the `batcher`, and travel as a `batch`. A
`graph` is read into calls, which a `graph_submission` hands over at once, each with what it is to
wait for. The `submitter` offers them all. Begin with `submission`.
"""
