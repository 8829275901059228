"""What is kept on disk: the results of runs that have a name, an SQLite file for each run.

In come calls as they are handed in and outcomes as they arrive, pickled; out go the outcomes of
calls that a run has made before. Nothing here runs a call. Read `run_file` first, then `writer`.
"""
