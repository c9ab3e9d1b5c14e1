"""Serves examples/agents in the environment of a framework: `python serve.py SITE CONFIG PORT`.

The framework's own packages come first; SITE has those of the bridge that the framework does not bring along.
"""

import sys
from pathlib import Path

sys.path[:1] = [str(Path(__file__).parents[3])]
sys.path.append(sys.argv[1])

from bridge.cli import main  # noqa: E402

main(["serve", sys.argv[2], "--port", sys.argv[3]])
