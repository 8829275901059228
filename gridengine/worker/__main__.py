"""What a scheduler starts: `python -P -m gridengine.worker CONNECTION_FILE`."""

import sys

from gridengine.worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
