"""What tests of security need: a real nginx, and somebody who reads along."""

import select
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

from cgpfl.folders import cache_folder


def nginx():
    """A real nginx: the system's, or Debian's package unpacked in the cache; None where neither can be had."""
    found = shutil.which("nginx")
    place = cache_folder() / "nginx"
    if found is None and not (place / "usr/sbin/nginx").exists() and shutil.which("apt-get"):
        place.mkdir(parents=True, exist_ok=True)
        for step in (["apt-get", "download", "nginx"], ["sh", "-c", "dpkg-deb -x nginx_*.deb ."]):
            subprocess.run(step, cwd=place, capture_output=True, timeout=120, check=False)
    own = place / "usr/sbin/nginx"
    return found or (str(own) if own.exists() else None)


class Reader:
    """A TLS proxy with the server's own key that keeps every byte that passes, in clear."""

    def __init__(self, keys: Path, to: int) -> None:
        self.keys, self.to, self.seen = keys, to, bytearray()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.inside.load_cert_chain(keys / "server.pem", keys / "server.key")
        self.outside = ssl.create_default_context(cafile=str(keys / "ca.pem"))
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                plain, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain):
        try:
            client = self.inside.wrap_socket(plain, server_side=True)
            server = socket.create_connection(("127.0.0.1", self.to))
            server = self.outside.wrap_socket(server, server_hostname="localhost")
        except OSError:
            plain.close()
            return
        with client, server:
            self._copy(client, server)

    def _copy(self, client, server):
        """Both ways in one thread: OpenSSL allows no reading of a connection while somebody else writes to it."""
        other = {client: server, server: client}
        try:
            while True:
                ready = [s for s in other if s.pending()] or select.select(list(other), [], [])[0]
                for s in ready:
                    if (data := self._read(s)) == b"":
                        return
                    with self.lock:
                        self.seen += data or b""
                    other[s].sendall(data or b"")
        except OSError:
            return

    @staticmethod
    def _read(s):
        """What has come; None where that is nothing but TLS's own messages."""
        s.settimeout(0)
        try:
            return s.recv(1 << 16)
        except ssl.SSLWantReadError:
            return None
        finally:
            s.settimeout(60)

    def close(self):
        self.socket.close()
