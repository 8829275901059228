"""The lines of docs/scientific-libraries.md carry the state of the libraries that are installed."""

from __future__ import annotations

import re

import pytest

from tests.support.script_driver import ROOT, MakeScript

PAGE = (ROOT / "docs/scientific-libraries.md").read_text()
LINES = dict(re.findall(r"^\| (\w+) \| .* \| `(gridengine\.carry.*)` \|$", PAGE, re.MULTILINE))
SET = {
    "jax": "jax.config.update('jax_enable_x64', True)",
    "torch": "torch.set_default_dtype(torch.float64)",
    "sklearn": "sklearn.set_config(transform_output='pandas')",
    "matplotlib": "matplotlib.rcParams['figure.dpi'] = 37",
    "pint": "pint.get_application_registry().define('dog_year = 52 * day')",
    "rdkit": "Chem.SetDefaultPickleProperties(Chem.PropertyPickleOptions.AllProps)",
}
LOOK = {
    "jax": "str(jax.numpy.ones(1).dtype)",
    "torch": "str(torch.ones(1).dtype)",
    "sklearn": "sklearn.get_config()['transform_output']",
    "matplotlib": "matplotlib.rcParams['figure.dpi']",
    "pint": "'dog_year' in pint.get_application_registry()",
    "rdkit": "str(Chem.GetDefaultPickleProperties())",
}


def test_each_library_of_the_page_is_tried() -> None:
    assert LINES.keys() == SET.keys() == LOOK.keys()


@pytest.mark.parametrize("library", SET)
def test_the_line_of_a_library_carries_its_state(library: str, script: MakeScript) -> None:
    pytest.importorskip(library)
    made = script(f"""
        import gridengine
        import {library}
        {"from rdkit import Chem" if library == "rdkit" else ""}

        def look(_=None):
            return {LOOK[library]}

        before = look()
        {SET[library]}
        assert look() != before
        assert gridengine.map(look, [0]) == [before]
        {LINES[library]}
        assert gridengine.map(look, [0]) == [look()]
        """)
    done = made.run()
    assert (done.returncode, done.stderr) == (0, "")
