"""Start a worker: `python -P -m gridengine.worker CONNECTION_FILE [RESOURCES]`."""

import sys

from gridengine.worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
