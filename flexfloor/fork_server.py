"""What makes the fork server outlive a SIGTERM that goes to every process of a run.

The ranks are its children, and finish their step when they are asked to stop: it has to be there until they
have. It ends by itself when the starting process does. Importing this module has that effect and no other.
"""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
