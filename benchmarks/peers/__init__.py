"""One class for each way to run calls. The modules are imported one at a time: what one brings in
must not slow the start of another.
"""
