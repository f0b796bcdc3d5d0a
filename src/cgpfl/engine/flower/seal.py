"""Orders that a node can tell are the server's: signed, each with a nonce that its answer must repeat.

Whoever may post messages to nodes is not therefore the server: the key that signs is on the server alone, its public
half travels with the experiment. A node that cannot verify an order does nothing of it. Nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from cgpfl.errors import CgpflError

SIGNATURE = "signature"
Sign = Callable[[bytes], str]
"""What was asked, as :func:`summed` gives it → its signature, as text."""
Verify = Callable[[bytes, str], bool]
"""What was asked and a signature → whether that is the server's."""


def nonce() -> str:
    """A number that nobody else knows: 128 bits."""
    return secrets.token_hex(16)


def summed(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """All that an order says, in 32 bytes: its facts without the signature, and Flower's arrays as they travel."""
    known = {name: value for name, value in facts.items() if name != SIGNATURE}
    whole = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for name in sorted(arrays):
        for part in (name.encode(), bytes(arrays[name].data)):
            whole.update(hashlib.sha256(part).digest())
    return whole.digest()


def make_key() -> tuple[bytes, str]:
    """A new private key (PEM) and its public half, as text."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, key.public_key().public_bytes_raw().hex()


def signer(pem: bytes, where: str) -> tuple[Sign, str]:
    """What signs with a private key, and the key's public half."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CgpflError(f"{where}: holds no key that can be read") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CgpflError(f"{where}: must be an Ed25519 key, as cgpfl deploy init makes it")
    return lambda content: key.sign(content).hex(), key.public_key().public_bytes_raw().hex()


def verifier(public: str, where: str) -> Verify:
    """What tells whether a signature is of the key whose public half is ``public``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    except ValueError as error:
        raise CgpflError(f"{where}: is no public key; must be the one that cgpfl deploy init wrote") from error

    def verify(content: bytes, signature: str) -> bool:
        try:
            key.verify(bytes.fromhex(signature), content)
        except (InvalidSignature, ValueError):
            return False
        return True

    return verify
