"""Children that a script forks while the library's own threads import."""

from __future__ import annotations

from tests.support.script_driver import MakeScript

AT_EACH_IMPORT = """
    import os, queue, sys, threading
    import gridengine

    class Stop:
        '''Holds up each import of another thread until the script forks.'''

        def __init__(self):
            self.imports = queue.SimpleQueue()
            self.forking = threading.Event()

        def find_spec(self, name, path=None, target=None):
            if threading.current_thread() is not main:
                self.imports.put(name)
                self.forking.wait()

    def half_imported():
        specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
        return [spec.name for spec in specs if getattr(spec, "_initializing", False)]

    main, stop = threading.current_thread(), Stop()
    gridengine.map(abs, [-1, 2])
    os.register_at_fork(before=stop.forking.set, after_in_parent=stop.forking.clear)
    sys.meta_path.insert(0, stop)
    left = {"gridengine.dispatcher.watch_server", "psutil", "psutil._psutil_linux"}
    left.difference_update(sys.modules)  # a busy machine may have got that far meanwhile
    while left:
        name = stop.imports.get(timeout=60)
        left.discard(name)
        if not (pid := os.fork()):
            os._exit(len(half_imported()))
        if os.waitpid(pid, 0)[1]:
            print("half imported in a child:", name)
    sys.meta_path.remove(stop)
    stop.forking.set()
    print("forked at each")
"""


def test_a_child_forked_at_any_import_after_the_first_map_finds_no_module_half_imported(
    script: MakeScript,
) -> None:
    ran = script(AT_EACH_IMPORT).run(seconds=100)
    assert ran.stdout == "forked at each\n", ran.stderr
