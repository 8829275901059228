"""The process of a stand-alone dispatcher, and the folder in which it keeps its files.

`background` starts and ends such processes, `process` is what one runs, `serve` is its dispatcher,
`dispatcher_folder` says where its files are and whether it runs.
"""
