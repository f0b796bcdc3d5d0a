"""What is wrong on a host is said there, in one line, before Flower is started."""

from __future__ import annotations

import email.utils
import importlib.util
import re
import socket
import ssl
import time
from pathlib import Path

import numpy as np

from cgpfl.data.local import files_of
from cgpfl.data.tables import read_table
from cgpfl.errors import CgpflError

NEEDED = ("flwr", "httpx", "cryptography")
AHEAD, BEHIND = 4.0, 240.0
"""Seconds that a node's clock may differ from the server's: Flower refuses more than 5 ahead, and about 300 behind."""
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]+")


def check_extras() -> None:
    """Raise where a package of the extra ``deploy`` is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CgpflError(f"deploy: needs {', '.join(missing)}; install it by: pip install 'cgpfl[deploy]'")


def check_address(host: str, port: int) -> None:
    """Raise where nothing can be reached by these; both are written into scripts."""
    if not HOST.fullmatch(host):
        raise CgpflError(f"--host {host!r}: must be a name or an address, such as fl.example.org")
    if not 1 <= port <= 65534:
        raise CgpflError(f"--port {port}: must be 1..65534; the SuperLink has the next one")


def check_data(data: Path) -> None:
    """Raise where a node's own files cannot be read; whether they fit is known when the server has asked."""
    for path in files_of(data):
        if path is None:
            continue
        if not path.exists():
            raise CgpflError(f"--data {path}: no such file or folder")
        if path.suffix.lower() != ".npz":
            read_table(path)
            continue
        try:
            with np.load(path, allow_pickle=False) as file:
                names = set(file.files)
        except Exception as error:
            raise CgpflError(f"--data {path}: cannot be read as NumPy arrays ({type(error).__name__})") from error
        if not {"x", "y"} <= names:
            raise CgpflError(f"--data {path}: has arrays {', '.join(sorted(names)) or 'none'}; must have x and y")


def check_server(server: str, ca: Path, seconds: float = 5) -> str | None:
    """Raise where ``server`` (HOST:PORT) has no certificate of ``ca``, or another time; a line where it is away."""
    host, colon, port = server.rpartition(":")
    if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise CgpflError(f"--server {server}: must be HOST:PORT")
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (ssl.SSLError, OSError) as error:
        raise CgpflError(f"--ca {ca}: holds no certificate that can be read") from error
    try:
        with (
            socket.create_connection((host, int(port)), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as line,
        ):
            said = _date(line, host)
    except ssl.SSLCertVerificationError as error:
        raise CgpflError(f"--server {server}: its certificate is not one of {ca} ({error.verify_message})") from error
    except OSError as error:
        return f"{server} cannot be reached now ({error.strerror or error}); the node will go on trying"
    if said is not None:
        check_clock(time.time() - said, server)
    return None


def check_clock(ahead: float, server: str) -> None:
    """Raise where this machine's clock is so many seconds ahead of the server's that Flower would answer 401."""
    if ahead > AHEAD or ahead < -BEHIND:
        how = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{-ahead:.0f} s behind"
        raise CgpflError(f"this machine's clock is {how} that of {server}, which would refuse it (401); set the clock")


def _date(line: ssl.SSLSocket, host: str) -> float | None:
    """What time it is there, as far as the server says."""
    try:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("ascii", "ignore"))
        answer = line.recv(1 << 14).decode("latin-1")
        found = re.search(r"^date: (.*?)\r?$", answer, re.IGNORECASE | re.MULTILINE)
        return None if found is None else email.utils.parsedate_to_datetime(found[1]).timestamp()
    except (OSError, ValueError, TypeError):
        return None


def check_key(key: Path) -> None:
    """Raise where a node's private key cannot be used."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        found = load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CgpflError(f"--key {key}: is no private key that can be read") from error
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise CgpflError(f"--key {key}: must be a P-384 key, as cgpfl deploy keys makes them")


def check_port(port: int) -> None:
    """Raise where a port of this machine is taken, or is none."""
    if not 0 <= port <= 65535:
        raise CgpflError(f"--port {port}: must be 1..65535")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError as error:
            raise CgpflError(f"--port {port}: cannot be used: {error.strerror or error}") from error
