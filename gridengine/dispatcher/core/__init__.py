"""What the dispatcher decides, sans-I/O: which call runs where and when, how often, and on how many
workers.

In come events (`events`): what clients ask, what workers and the scheduler say, that time has
passed. Out go effects: messages to send, workers to launch, outcomes of calls. Everything is kept
in one plain object (`state.CoreState`), which every other module takes; the event table stands
above them all. Read `state_machine` first, then `calls` and `model`.
"""
