"""The live page: the report, served on this machine alone, that fetches what is new by itself."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError
from cgpfl.report.events import Follower
from cgpfl.report.files import newest
from cgpfl.report.page import fragments, html, plotly

LOOK = 0.5
"""Seconds between two looks at the run folders."""
BEAT = 10.0
"""Seconds after which a silent connection is written to, to notice that it is gone."""
PORTS = range(8765, 8785)
PLAIN = "text/plain; charset=utf-8"
MOST = 64
"""Connections at once; a page takes one or two."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
IDLE = 60
"""Seconds after which a connection that asks for nothing is closed."""
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What a browser is told about every answer."""


class Watch(ThreadingHTTPServer):
    """Serves ``/`` (the page), ``/data`` (what is on it) and ``/events`` (a line whenever that has changed)."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, runs: Sequence[Path], port: int) -> None:
        self.runs = list(runs)
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(MOST)
        self._following = {run: Follower(run) for run in runs}
        self._made: tuple[Any, bytes] | None = None
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def state(self) -> tuple[Any, ...]:
        """Something that is different whenever there is something new."""
        return tuple(newest(run) for run in self.runs)

    def data(self) -> bytes:
        """What is on the page, as JSON; made once for all who ask until something changes."""
        with self._lock:
            state = self.state()
            if self._made is None or self._made[0] != state:
                self._made = state, json.dumps(fragments(self.runs, self._following), allow_nan=False).encode()
            return self._made[1]

    def page(self) -> bytes:
        with self._lock:
            return html(self.runs, self._following).encode()

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more connection, if there are not too many."""
        if self._free.acquire(blocking=False):
            return super().process_request(request, client_address)
        with suppress(OSError):
            request.sendall(BUSY)
        return self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def server_close(self) -> None:
        self.ended.set()
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    timeout = IDLE
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in ("127.0.0.1", "localhost"):  # a page elsewhere must not read this through a name it controls
            return self._send(403, PLAIN, b"only from this machine\n")
        answer: tuple[int, str, bytes] | None
        try:
            match self.path:
                case "/":
                    answer = 200, "text/html; charset=utf-8", self.server.page()
                case "/data":
                    answer = 200, "application/json", self.server.data()
                case "/events":
                    answer = None
                case "/favicon.ico":
                    answer = 204, "image/x-icon", b""
                case _:
                    answer = 404, PLAIN, b"there are /, /data and /events\n"
        except CgpflError as error:
            answer = 500, PLAIN, f"{error}\n".encode()
        except Exception as error:  # a page that others look at says what is wrong, and goes on
            answer = 500, PLAIN, f"{type(error).__name__}: {' '.join(str(error).split())}\n".encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # whoever asked has gone
            return self._events() if answer is None else self._send(*answer)

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """With what is the same in every answer."""
        for name, value in {**SAFE, "Cache-Control": "no-store"}.items():
            self.send_header(name, value)
        super().end_headers()

    def _events(self) -> None:
        """Server-sent events: browsers reconnect to them without being told."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"retry: 1000\n\n")
        told: tuple[Any, ...] | None = None
        spoke = 0.0
        while not self.server.ended.is_set():
            state = self.server.state()
            if state != told or time.monotonic() - spoke > BEAT:
                self.wfile.write(b"data: news\n\n" if state != told else b": still here\n\n")
                self.wfile.flush()
                told, spoke = state, time.monotonic()
            self.server.ended.wait(LOOK)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business."""


def serve(runs: Sequence[Path], port: int | None = None) -> Watch:
    """A server of the live page of some run folders, bound to a port; call its ``serve_forever``.

    A folder that is not there yet is waited for, on the page. ``port``: None takes the first free one from 8765 on.
    """
    fragments([run for run in runs if os.path.lexists(run)])  # whatever is wrong is said now
    plotly()
    for candidate in PORTS if port is None else [port]:
        try:
            return Watch(runs, candidate)
        except OSError as error:
            reason = error.strerror
    where = f"--port {port}" if port is not None else f"ports {PORTS.start} to {PORTS.stop - 1}"
    raise CgpflError(f"{where}: cannot be used ({reason}); choose another with --port")
