"""TLS on the node's side: its certificate, and whether clients must show one."""

from __future__ import annotations

import ssl

from headpond.broker.settings import Settings
from headpond.model.errors import BadConfig


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What the files say now; None where nothing is said of TLS."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
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
    return context


class Certificates:
    """The files as they were last read well; connections that are open go on with what they began with.

    They are read into a context of their own, and each handshake takes the newest: a context that is in use
    would keep the authorities that were taken out of the file, and would be left with half of a pair of
    certificate and key that do not fit.
    """

    def __init__(self, settings: Settings, listening: ssl.SSLContext) -> None:
        self._settings = settings
        self._newest = listening
        listening.sni_callback = self._choose  # it is asked with every handshake, with a name in it or not

    def read_again(self) -> None:
        """``BadConfig`` where they cannot be used; then all stays as it was."""
        context = tls_context(self._settings)
        assert context is not None
        self._newest = context

    def _choose(self, tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if self._newest is not context:
            tls.context = self._newest
