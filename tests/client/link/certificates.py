"""Certificates made for a test: an authority, a node's certificate, a client's; each a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    folder: Path
    authority: trustme.CA
    ca: str
    node: str
    """Certificate and key of 127.0.0.1, in one file."""
    client: str

    @classmethod
    def made(cls, folder: Path) -> Certificates:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "node.pem"))
        authority.issue_cert("client@here").private_key_and_cert_chain_pem.write_to_path(
            str(folder / "client.pem")
        )
        return cls(folder, authority, *(str(folder / f"{name}.pem") for name in ("ca", "node", "client")))

    def replace_node(self) -> None:
        """Another certificate in the same file."""
        self.authority.issue_cert("127.0.0.1", "renewed.example").private_key_and_cert_chain_pem.write_to_path(
            self.node
        )
