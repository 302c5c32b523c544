"""Import this first: the measuring scripts lie in bench/, which is no package.

No conftest.py: there can be only one module of that name where tests import from it.
"""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers"), str(BENCH / "quality")]
