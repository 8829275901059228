"""Objects to bytes and back: functions, calls, results and exceptions.

In: a user's objects, on the caller's side calls, in a runner their outcomes. Out: payloads (see
`payload`), which everybody else passes on unread; and from payloads the objects again. Read
`pickling` first, which is what other rooms call, then `encoding` and `by_value`: how what cannot be
imported travels (`functions`, `classes`, `annotation_code`, `exceptions`, `type_parameters`,
`lazy_imports`, `sentinels`, `descriptors`).
`shared_memory` holds large buffers once on a machine, `shared_objects` what many calls use;
`references` stand for the results of others.
`main_module` and `module_changes` are about the modules that user code sees.
"""
