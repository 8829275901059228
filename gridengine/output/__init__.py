"""This process's own standard output and error, to which the output of calls is written.

- `stream_writer` writes without making the writer wait, and bounds what is stored: excerpts in
  memory, and the log of a cluster worker.
- `jobs_output` writes what workers send for jobs, and says how much the streams have taken.

The other end reads the runners' pipes: `worker/runner_output`.
"""
