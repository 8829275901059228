"""Workers as tasks of a real Slurm: started, watched, explained and cancelled, whatever happens to
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.launching import run

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm


def test_a_task_that_is_forgotten_before_it_is_asked_for_is_no_success(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
launcher = make_launcher("exit 0")
handles = launcher.launch(1)
until = time.monotonic() + 60
while launcher.runner.run(launcher.system.listing(launcher.name)):
    assert time.monotonic() < until
    time.sleep(0.5)
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(state=report.state.value, reason=report.reason, deleted=report.deleted)
""",
        seconds=100,
    )
    assert told["state"] == "failed"
    assert "Slurm no longer knows it" in told["reason"]
    assert not told["deleted"]


def test_a_task_that_slurm_starts_again_starts_no_worker(slurm: Slurm) -> None:
    told = run(
        slurm,
        """
import subprocess
launcher = make_launcher("echo worker")
launcher.prepare()
again = {**os.environ, "SLURM_RESTART_COUNT": "1"}
done = subprocess.run([launcher.script], env=again, capture_output=True, text=True, check=True)
launcher.close()
tell(said=done.stdout, told=done.stderr)
""",
    )
    assert told["said"] == ""
    assert "another has taken its place" in told["told"]


BROKEN = """
try:
    launcher = make_launcher()
    launcher.launch(1)
except Exception as error:
    tell(kind=type(error).__name__, words=str(error))
launcher.close()
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("SlurmctldPort=6999", "Unable to contact slurm controller"),
        ("AuthInfo=socket=/nosuch/munge", "munged runs"),
    ],
)
def test_a_slurm_that_does_not_answer_is_an_error_with_a_remedy(
    slurm: Slurm, line: str, words: str
) -> None:
    text = f"""
lines = Path("/etc/slurm/slurm.conf").read_text() + {line!r} + "\\n"
Path("slurm.conf").write_text(lines)
os.environ["SLURM_CONF"] = str(Path("slurm.conf").absolute())
"""
    told = run(slurm, text + BROKEN, seconds=100)
    assert told["kind"] == "SchedulerUnavailable"
    assert words in told["words"]
