"""`python -m bridge.cli`."""

import sys

from bridge.cli import main, remove_working_directory

remove_working_directory()
sys.exit(main())
