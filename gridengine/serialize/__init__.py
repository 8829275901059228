"""Objects to bytes and back: functions, calls, results and exceptions.

In: a user's objects, which are calls on the caller's side and outcomes in a runner. Out: payloads
(`payload`), which all other rooms pass on unread; and from payloads the objects again.

    object -> pickling.dump_... -> encoding.encode -> by_value.Pickler: C pickle with one hook
                                   refused: once more with dill's recipes (encoding),
                                   refused: once more with names for objects of modules
    payload: the pickle, then each large buffer; in blocks where processes share memory
           -> pickling.load_... -> object

Read `pickling` first, which other rooms call, then `encoding` and `by_value`: how objects travel
that cannot be imported (`functions`, `classes`, `exceptions`, `type_parameters`, `lazy_imports`,
`sentinels`, `descriptors`, `mapped_files`). `shared_memory` holds large buffers once on a machine,
`shared_objects` an object that many calls use; `references` stand for the results of other calls.
`users_modules` is about the modules that user code sees, `namespaces` about the global variables of
its functions, `imports_for_effect` about modules that its calls import first, `names_in_texts`
about variables that formulas and queries name. `unpicklable` words the errors.

Four things here have states:

- a class that travels by value is, in one process, unknown, written here (it has a token), or
  received (it has a token and the version of its definition): `classes.KnownClasses`;
- a global variable of a script, in a process that runs its functions, has one value for each of its
  versions, of which one is present: `namespaces`;
- a large array among arguments is seen once, shared, or known to change: `RepeatedArrays`;
- a shared object is held by its handle, released while calls need it, or gone: `SharedObject`.

Keep in step:

- functions whose names stand in pickles (`functions.make_function`, `namespaces.find`,
  `classes.make_class`, `byte_code.load_code`, `by_value.make_lru_cache`,
  `mapped_files.open_again` and others) with the files of named runs: these hold pickles of older
  versions. So such functions keep module and name;
- `classes.MADE_ANEW` and `functions.LOOKED_UP` with the digests of `journal/call_keys`;
- the tables of `itemwise_unpickler` with the operations of pickle's protocol 5;
- `descriptors` with the names of functions of `multiprocessing` that it relies on.

Rejected:

- dill's own pickler. It makes a class anew for each payload, so that `isinstance` fails between a
  function and its arguments; it finds global variables by swapping `sys.stdout`, which other
  threads see; it sends a lock as a new lock; being Python it is some ten times slower. Its recipes
  take apart the rarer types here, and dill is imported only then. cloudpickle: docs/decisions.md.
- Evaluating annotations (Python 3.14), or asking `annotationlib` for their text, which evaluates
  them too. They may name what only a type checker imports. Annotations that were changed in place
  after they were evaluated arrive as they were written.
- Importing a lazy import (Python 3.15) for its pickle. That takes the time that its user saves, and
  fails where only the calls' machine has the module.
- The version of Python beside stored code, checked by each reader. Byte code of another version
  kills the process, so its bytes begin with the version, checked where bytes become code.
- Pickling each call of a task apart, so that one which cannot be loaded fails alone: each call
  would pay. Cutting the pickle loses the parts that a failing call shares with others. So the same
  bytes are loaded once more, item by item.
- Files in `/dev/shm` for large buffers. After a SIGKILL nobody removes them; memory without a name
  (`memfd_create`) goes by itself. Sending its descriptor would cost `recvmsg` for every read.
- One block for each buffer: a list of a thousand arrays would take two thousand descriptors.
- A reference in the place of a shared object, as `ray.put` gives, or always the first argument, as
  with mpire: the function would have to know. Here unpickling the handle looks up the object, so a
  handle may lie in a list, an attribute or a closure.
- Naming shared objects by content. A digest takes longer than the copy; and a random name has one
  lifetime: it ends with the handle, or with the last call that needs it. Functions are named by
  content, since equal functions are made again and again.
- A digest of each array among arguments. To compare an array with its copy takes a fifth of the
  time of a digest, and costs nothing when an array is first seen. An array that was found changed
  once travels with each call from then on. A definition goes to all runners of a worker; an array
  that is used once should not cost that much.
"""
