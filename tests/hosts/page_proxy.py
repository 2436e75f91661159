"""A port in front of a service that gives pages (src/engine/pages/page_link.h), which holds what comes from it until the test says go."""

import contextlib
import socket
import struct
import threading

PAGE = 8  # PageFrame::page
GREETINGS = 2  # frames of the handshake that the service sends


class PageProxy:
    """Passes frames on, but from the service no more than `pages` pages of each connection until release().

    0: not even its consent to the prompt passes; None: all do. `held` is set once a frame waits. A client takes a silence
    of 5 s, so a test acts as soon as frames are held."""

    def __init__(self, target, pages):
        self._target, self._pages = target, pages
        self.held, self._go = threading.Event(), threading.Event()
        if pages is None:
            self.release()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self):
        self._go.set()

    def close(self):
        self.release()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        host, port = self._target.rsplit(":", 1)
        with contextlib.suppress(OSError), client, socket.create_connection((host, int(port)), 5) as service:
            service.settimeout(None)
            back = threading.Thread(target=self._pass_on, args=(service, client), daemon=True)
            back.start()
            while some := client.recv(1 << 16):
                service.sendall(some)
            service.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, service, client):
        """Passes the frames of one connection on."""
        num_frames = num_pages = 0
        with contextlib.suppress(OSError):
            while frame := self._frame(service):
                num_frames += 1
                num_pages += num_frames > GREETINGS and frame[4] == PAGE
                if not self._go.is_set() and num_frames > GREETINGS + 1 and (num_pages > self._pages or self._pages == 0):
                    self.held.set()
                    self._go.wait()
                client.sendall(frame)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _frame(service):
        """Returns the next frame with its length; nothing at the end."""
        frame, wanted = b"", 4
        while len(frame) < wanted:
            some = service.recv(wanted - len(frame))
            if not some:
                return b""
            frame += some
            if len(frame) == 4:
                wanted = 4 + struct.unpack("<I", frame)[0]
        return frame
