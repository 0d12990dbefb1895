"""The health check of the container: ends with 0 if its node answers `/livez`.

Without HTTP, or if clients need certificates, the node's port must accept a connection. The ports are those of
the variables; settings of a file are not read here.
"""

from __future__ import annotations

import os
import socket
import ssl
import urllib.request

TIMEOUT_S = 4.0


def main() -> None:
    http, listen = os.environ.get("HEADPOND_HTTP", ""), os.environ["HEADPOND_LISTEN"]
    if not http or os.environ.get("HEADPOND_TLS_CLIENT_CA"):
        socket.create_connection(("127.0.0.1", _port(listen)), TIMEOUT_S).close()
        return
    scheme = "https" if os.environ.get("HEADPOND_TLS_CERT") else "http"
    tls = ssl._create_unverified_context() if scheme == "https" else None  # it has no name for 127.0.0.1
    url = f"{scheme}://127.0.0.1:{_port(http)}/livez"
    urllib.request.urlopen(url, timeout=TIMEOUT_S, context=tls).close()  # raises unless the status is good


def _port(place: str) -> int:
    return int(place.rpartition(":")[2])


if __name__ == "__main__":
    main()
