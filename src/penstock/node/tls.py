"""TLS on the node's side: its certificate, and whether clients must show one."""

from __future__ import annotations

import ssl

from penstock.model.errors import BadConfig
from penstock.node.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What the listener uses; None where nothing is said of TLS."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificates(context, settings)
    return context


def load_certificates(context: ssl.SSLContext, settings: Settings) -> None:
    """Reads the files, at the start and again on SIGHUP; connections that are open go on with the old ones."""
    at = settings.tls_cert
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
        if settings.tls_client_ca:
            at = settings.tls_client_ca
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # of which ssl's errors are
        raise BadConfig(
            f"cannot use {at} for TLS: {error.strerror or error}",
            hint="--tls-cert and --tls-client-ca are PEM files, --tls-key the key of the first.",
        ) from error
