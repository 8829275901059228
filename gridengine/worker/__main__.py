"""Start a worker: `python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]`."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # importing makes no garbage; looking for it takes a tenth of the time
    from gridengine.worker.main import main

    sys.exit(main(sys.argv[1:]))
