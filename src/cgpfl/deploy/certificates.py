"""Keys: a certificate authority of the federation's own, the server's certificate, a key a node.

The authority's key and the server's never leave the server; a node gets ``ca.pem`` and its own key. Nodes prove who
they are by their key (P-384), which the server must know; they know the server by its certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError
from cgpfl.files import write

YEARS = 5
"""That a certificate lasts."""
EARLIER = datetime.timedelta(hours=1)
"""How long before it is made a certificate begins: clocks differ."""


def write_keys(folder: Path, host: str, nodes: int) -> list[Path]:
    """Write what is missing in ``folder`` → the new files. What is there is never replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    new = []
    if not (folder / "ca.key").exists():
        new += _authority(folder)
    if not (folder / "server.key").exists():
        new += _server(folder, host)
    elif host not in names_of(folder / "server.pem"):
        raise CgpflError(
            f"{folder / 'server.pem'}: is of {', '.join(names_of(folder / 'server.pem'))}, not of {host}; "
            "remove server.pem and server.key to have them made anew"
        )
    for i in range(nodes):
        if not (folder / f"node-{i}.key").exists():
            new += _node(folder, i)
    return new


def names_of(certificate: Path) -> list[str]:
    """Names and addresses that a certificate is of."""
    from cryptography import x509

    try:
        made = x509.load_pem_x509_certificate(certificate.read_bytes())
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise CgpflError(f"{certificate}: cannot be read; remove it and its key to have them made anew") from error
    return [str(name.value) for name in found]


def check_dates(keys: Path) -> None:
    """Raise where a certificate of the server's is no longer valid."""
    from cryptography import x509

    for name, rest, then in (
        ("ca.pem", "ca.* and server.*", "give every node the new ca.pem"),
        ("server.pem", "server.*", "reload nginx"),
    ):
        try:
            ends = x509.load_pem_x509_certificate((keys / name).read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise CgpflError(f"{keys / name}: holds no certificate that can be read") from error
        if ends < datetime.datetime.now(datetime.UTC):
            raise CgpflError(
                f"{keys / name}: expired on {ends:%Y-%m-%d}; remove {rest} there, run certificates.sh and {then}"
            )


def _authority(folder: Path) -> list[Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("cgpfl federation")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    made = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return [_public(folder / "ca.pem", _pem(made)), _secret(folder / "ca.key", _pem_key(key))]


def _server(folder: Path, host: str) -> list[Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        ca_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise CgpflError(f"{folder}: ca.pem and ca.key cannot be read; put them back, or remove both") from error
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    names = [n for i, n in enumerate(names) if n not in names[:i]]
    made = (
        _certificate(_name(host), ca.subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    return [_public(folder / "server.pem", _pem(made)), _secret(folder / "server.key", _pem_key(key))]


def _node(folder: Path, i: int) -> list[Path]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return [_public(folder / f"node-{i}.pub", public + b"\n"), _secret(folder / f"node-{i}.key", private)]


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _certificate(subject: Any, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    begins = datetime.datetime.now(datetime.UTC) - EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=365 * YEARS))
    )


def _pem(made: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return made.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _secret(path: Path, content: bytes) -> Path:
    """Written last of a pair: a key that is there has its other half."""
    write(path, content, mode=0o600)
    return path


def _public(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
