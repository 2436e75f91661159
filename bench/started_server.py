"""A server that a bench starts and ends: its process, its log, and the wait until it answers."""

import contextlib
import subprocess
import sys
import time


class StartedServer:
    """Runs until the end of a `with` statement. Subclasses say in is_ready() whether it answers; an OSError there means not yet."""

    def begin(self, command, log, timeout, start=subprocess.Popen):
        """Starts the command, whose output goes to the file `log`, and waits until it is ready; ends the bench after `timeout` seconds."""
        with open(log, "wb") as output:
            self.process = start(command, stdout=output, stderr=output)
        until = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError):
                if self.is_ready():
                    return
            if time.monotonic() > until or self.process.poll() is not None:
                self.process.kill()
                sys.exit(f"{command[0]} is not ready; it says:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
