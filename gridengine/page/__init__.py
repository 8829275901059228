"""A dispatcher in a browser: live, for its user alone (`gridengine page`), or as a file (`report`).

    browser --requests--> access --> web_server --> source --ask, at most each 0.8 s--> dispatcher
            <--events each second; rows of the visible window; graph, timeline, logs, metrics--
    file: the page's files, with the answers to its requests <-- report <-- Answer, live or stored

Read `web_server` first. `access` decides which requests are answered, `source` asks the dispatcher,
`rows` makes tables a window at a time, `timeline` places calls in the rows of workers,
`drawn_graph` remembers the nodes of a graph, `overview` is the data of each event. The files in
`static` show them; `dom.js` takes answers from the file that it is in, or from the server. Only the
command line imports this room. `web_server` alone needs `gridengine[page]`.

Rejected:

- A server in the dispatcher. The page is a process of its own that asks as the commands do: nothing
  of it is loaded where calls are decided, and however many tabs look, the dispatcher answers one
  question a second.
- Tables of its own. They are those of `top`, with one list of columns, sorted and filtered by one
  function on the server. So a tab holds no more than it shows.
- An index of calls for windows of a million. Only viewers would need it, and rarely. A window is
  found by counting: 1,000,000 tasks of one call each are passed in 0.08 s. So such a window is
  requested only every five seconds; calls of a map are in few tasks, and found at once.
- Ended calls of graphs in the core, which forgets a call when it has ended. The page remembers what
  it has drawn, as done or failed, at no cost to the core.
- A build step or a framework. The page is some 700 lines of modules that browsers read as they are.
  In a report, which is one file, each module is the body of a function.
- A report made by Python. Two renderings of one run would differ in what they say of it.
- A redirect after the token. A cookie that is `SameSite=Strict` is not sent along a redirect that
  another program or site began, so the token's answer is a small page that leads on.
- A check of the run directory's disk by the dispatcher. The viewer checks: on a file server that
  hangs, the viewer waits, and no run does.
"""
