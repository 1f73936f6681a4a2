"""The README's code is run as it stands."""

import re
import subprocess
import sys

from reprise.nb import paths


def test_the_import_lines_and_the_call_work():
    code = re.search(r"```python\n(.*?)```", (paths.root() / "README.md").read_text(), re.S)[1]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    share, nbytes = ran.stdout.split()
    assert float(share) == 0.02
    assert int(nbytes) < 1000
