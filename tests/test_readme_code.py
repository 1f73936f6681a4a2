"""The README's code is run as it stands."""

import re
import subprocess
import sys

import pytest

from reprise.nb import paths

BLOCKS = re.findall(r"```python\n(.*?)```", (paths.root() / "README.md").read_text(), re.S)


def output(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_delta_of_one_element_in_fifty():
    share, nbytes = output(BLOCKS[0])
    assert float(share) == 0.02
    assert int(nbytes) < 1000


@pytest.mark.parametrize("code, said", zip(BLOCKS[1:], (["True"], ["0.255"]), strict=True))
def test_every_other_block_says_what_it_should(code, said):
    assert output(code) == said
