"""Runs the programs in a page of the documentation, and compares what they print.

page.py PAGE.md DTLRUN     each block of Python after a line <!-- python: dtlrun -n 2 -->
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = re.compile(
    r"<!-- python: dtlrun (.*?) -->\n```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL
)


def main() -> int:
    page, dtlrun = sys.argv[1:3]
    found = PROGRAM.findall(pathlib.Path(page).read_text())
    assert found, f"{page} has no program"
    failed = 0
    for number, (options, text, wanted) in enumerate(found):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program.py")
            pathlib.Path(program).write_text(text)
            command = [dtlrun, *options.split(), sys.executable, program]
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=300, check=False
            )
        if result.returncode != 0 or result.stdout != wanted:
            failed = 1
            print(f"program {number}: status {result.returncode}, printed {result.stdout!r}, "
                  f"expected {wanted!r}\n{result.stderr}")  # fmt: skip
    print(f"{len(found)} programs of {page}", "failed" if failed else "print what it says")
    return failed


if __name__ == "__main__":
    sys.exit(main())
