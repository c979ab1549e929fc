"""Lets every test import the modules that lie beside this file (`from credit_reference import ...`)."""

import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A suite started in the background inherits an ignored SIGINT and would hand it on to the programs whose Ctrl-C is tested.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
