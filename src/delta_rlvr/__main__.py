"""`python -m delta_rlvr`: the command line, for torchrun and accelerate."""

import sys

from delta_rlvr.cli import main

sys.exit(main())
