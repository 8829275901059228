"""The messages that dispatcher, worker, client and runner exchange: `client` has those between a
client and its dispatcher, `worker` those of workers, agents and runners. This package exports all
names.

A message is a small header, a struct of the modules here, and a list of *buffers*: pickled
functions, arguments and results, which only the caller and the runner ever decode. A header says
how many buffers belong to each of its items. `framing` turns both into frames.

`tools/protocol_vectors.py` makes docs/protocol/messages.md and the test vectors from these
definitions; written by hand, both would be out of date within a week. A test compares them.

The modules do without `from __future__ import annotations`: with it, msgspec would evaluate the
text of each field at import, and every first call and every worker would wait for that.
"""
# ruff: noqa: I001 - isort would split each `name as name` into a statement of its own

from __future__ import annotations

from typing import TypeAlias

from gridengine.wire.messages.common import (
    Beat as Beat,
    CallerState as CallerState,
    DETACHED as DETACHED,
    Goodbye as Goodbye,
    input_name as input_name,
    NAME_BYTES as NAME_BYTES,
    OLDEST as OLDEST,
    portions as portions,
    Refuse as Refuse,
    Rejoin as Rejoin,
    TERMINATED as TERMINATED,
    VERSION as VERSION,
)
from gridengine.wire.messages.client import (
    Attempt as Attempt,
    CheckDemand as CheckDemand,
    Checked as Checked,
    ClientCancel as ClientCancel,
    ClientForget as ClientForget,
    ClientHello as ClientHello,
    ClientRecall as ClientRecall,
    ClientWelcome as ClientWelcome,
    Control as Control,
    Controlled as Controlled,
    Durable as Durable,
    EncodedDemand as EncodedDemand,
    Finished as Finished,
    FinishedItem as FinishedItem,
    FromClient as FromClient,
    FunctionItem as FunctionItem,
    JOURNALED as JOURNALED,
    MOST_FAILURES as MOST_FAILURES,
    NestedEnded as NestedEnded,
    NestedHello as NestedHello,
    NUMBER_BITS as NUMBER_BITS,
    OutcomesTaken as OutcomesTaken,
    Resumed as Resumed,
    Resumes as Resumes,
    SharedItem as SharedItem,
    Submit as Submit,
    Supply as Supply,
    TaskStarted as TaskStarted,
    TaskItem as TaskItem,
    TaskPushed as TaskPushed,
    Tell as Tell,
    ToClient as ToClient,
    Waits as Waits,
    Want as Want,
    WantAnswer as WantAnswer,
    WATCHER as WATCHER,
)
from gridengine.wire.messages.worker import (
    Allocate as Allocate,
    Assign as Assign,
    Assignment as Assignment,
    Cancel as Cancel,
    CANCELLED as CANCELLED,
    CRASH as CRASH,
    Crashed as Crashed,
    Define as Define,
    Deliver as Deliver,
    Fetch as Fetch,
    Fetched as Fetched,
    Forget as Forget,
    Held as Held,
    HeldBatch as HeldBatch,
    HeldRun as HeldRun,
    Hello as Hello,
    Input as Input,
    INTERRUPTED as INTERRUPTED,
    Keep as Keep,
    large_inputs as large_inputs,
    LeaveBy as LeaveBy,
    Leaving as Leaving,
    LoggedRecord as LoggedRecord,
    Measured as Measured,
    MEMORY as MEMORY,
    NO_INPUT as NO_INPUT,
    OUT_OF_MEMORY as OUT_OF_MEMORY,
    Output as Output,
    OutputTaken as OutputTaken,
    PROCESS_LEFT as PROCESS_LEFT,
    Pushed as Pushed,
    RAISED as RAISED,
    Recall as Recall,
    Release as Release,
    Reload as Reload,
    Result as Result,
    Results as Results,
    RETRYABLE as RETRYABLE,
    Returned as Returned,
    RunnerFigures as RunnerFigures,
    Saved as Saved,
    Shortened as Shortened,
    Started as Started,
    Stop as Stop,
    TIMEOUT as TIMEOUT,
    VALUES as VALUES,
    Welcome as Welcome,
)

Message: TypeAlias = (
    Hello
    | ClientHello
    | OutcomesTaken
    | Durable
    | Control
    | Controlled
    | Welcome
    | Rejoin
    | Refuse
    | Define
    | Forget
    | Keep
    | Fetch
    | Fetched
    | Reload
    | Allocate
    | Release
    | Assign
    | Cancel
    | Recall
    | Deliver
    | Stop
    | Beat
    | Measured
    | Started
    | Pushed
    | Output
    | OutputTaken
    | Results
    | Crashed
    | Returned
    | Shortened
    | Saved
    | Leaving
    | LeaveBy
    | Goodbye
    | FromClient
    | ToClient
    | NestedEnded
)
