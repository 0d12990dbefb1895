"""TLS on the client's side: which authorities it trusts, and which certificate it presents."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headpond.model.errors import TlsFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """PEM files; None takes the file that the environment names."""

    ca: str | None = None
    """The authorities to trust (HEADPOND_CA); default: the system's."""
    cert: str | None = None
    """The client's certificate, if the node asks for one (HEADPOND_CERT)."""
    key: str | None = None
    """Its key, unless that is in the same file (HEADPOND_KEY)."""

    def context(self) -> ssl.SSLContext:
        """Reads the files for each connection, so that they may be replaced while a program runs."""
        ca = self.ca or os.environ.get("HEADPOND_CA") or None
        cert = self.cert or os.environ.get("HEADPOND_CERT") or None
        key = self.key or os.environ.get("HEADPOND_KEY") or None
        at = ca
        try:
            context = ssl.create_default_context(cafile=ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if cert is not None:
                at = cert
                context.load_cert_chain(cert, key)
        except OSError as error:  # of which ssl's errors are
            raise TlsFailed(f"cannot use {at}: {error.strerror or error}") from error
        return context


@dataclass(frozen=True, slots=True)
class Certificate:
    """A node's certificate."""

    subject: str
    issuer: str
    names: list[str]
    """The hosts that it is valid for."""
    ends_at: float
    """Seconds since 1970."""

    @property
    def ends_in_s(self) -> float:
        return self.ends_at - time.time()

    def as_object(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "issuer": self.issuer,
            "names": self.names,
            "ends_in_s": round(self.ends_in_s, 3),
        }


def shown_certificate(shown: Mapping[str, Any] | None) -> Certificate | None:
    """A certificate from the dict that ``ssl`` makes of it; None without TLS."""
    if not shown:
        return None

    def name(parts: Any) -> str:
        return ", ".join(f"{key}={value}" for part in parts for key, value in part)

    names = [value for _, value in shown.get("subjectAltName", ())]
    ends_at = float(ssl.cert_time_to_seconds(shown["notAfter"]))
    return Certificate(name(shown.get("subject", ())), name(shown.get("issuer", ())), names, ends_at)


def tls_failure(error: ssl.SSLError) -> TlsFailed:
    """The error of a failed TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(f"the node's certificate is not trusted: {error.verify_message}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason:
        return TlsFailed(
            "the node does not speak TLS here",
            hint="Is it the right port? Without TLS it is headpond://, where others may read the token.",
        )
    if "certificate required" in reason:
        return TlsFailed(
            "the node asks for a client certificate",
            hint="Give one with HEADPOND_CERT and HEADPOND_KEY, cert= and key=, or `headpond context add`.",
        )
    return TlsFailed(f"TLS failed: {reason}")
