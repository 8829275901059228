"""Start a worker: `python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]`.

Garbage is not looked for while modules are imported, and msgspec does without typing_extensions:
see `schedulers/local`.
"""

import gc
import sys

if __name__ == "__main__":
    gc.disable()
    there = sys.modules.setdefault("typing_extensions")  # type: ignore[call-arg]
    from gridengine.worker.main import main

    there or sys.modules.pop("typing_extensions")
    sys.exit(main(sys.argv[1:]))
