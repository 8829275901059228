"""What launchers tell."""

from __future__ import annotations

from gridengine.schedulers.launcher import LaunchPlan


def test_a_plan_reads_as_lines_with_the_script_below() -> None:
    assert str(
        LaunchPlan(2, {"argv": ["sbatch", "a b"], "joinFiles": True}, "#!/bin/bash\ntrue\n")
    ) == ("count: 2\nargv: sbatch 'a b'\njoinFiles: True\n\n#!/bin/bash\ntrue")
