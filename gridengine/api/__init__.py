"""What users call: `map` and its kin, `Job` and `JobDispatcher`, `Executor`, `Pool`, `share`.

Each module checks what it is given, has `gridengine.client` send it, and gives results and errors
as the interface that it stands for does: `concurrent.futures`, `multiprocessing`, or our own.
Nothing here decides where a call runs. Begin with `map` and `map_results`.
"""
