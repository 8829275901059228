"""Tests of calls' context set the variables of this very process, as those of runners do."""

from tests.unit.worker.conftest import process_as_before as process_as_before
