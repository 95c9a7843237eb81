"""Certificates that no authority has signed, for servers on loopback."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that is its own authority.

    Attributes:
        chain: the certificate as PEM text.
        key: its private key as PEM text (PKCS 8).
        ca_file: where clients find the authority: the certificate itself.

    """

    chain: str
    key: str
    ca_file: Path


def make_certificate(folder: Path, name: str = "server") -> Certificate:
    """Make a certificate for 127.0.0.1 and localhost."""
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    form = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    subject = ["-subj", f"/CN={name}", "-addext", names]
    output = ["-out", str(chain), "-keyout", str(key)]
    subprocess.run(
        ["openssl", "req", *form, *subject, *output], check=True, capture_output=True
    )
    return Certificate(
        chain=chain.read_text("ascii"), key=key.read_text("ascii"), ca_file=chain
    )
