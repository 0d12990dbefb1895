"""Questions about tokens and rights, and the log of administration."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.admin import Admin as AsyncAdmin
from headpond.sync.background import Background
from headpond.wire.access import AccessInfo, AdminRecord, TokenCreated, TokenInfo


class AccessAdmin:
    """The part of ``client.admin`` that is about who may do what."""

    _admin: AsyncAdmin
    _background: Background

    def create_token(
        self,
        name: str,
        *,
        rights: Sequence[str],
        scopes: Sequence[str],
        producer: str = "",
        subscription: str = "",
        lasts: float | None = None,
    ) -> TokenCreated:
        """Makes a token; its ``secret`` is shown here and never again."""
        made = self._admin.create_token(
            name, rights=rights, scopes=scopes, producer=producer, subscription=subscription, lasts=lasts
        )
        return self._background.run(made)

    def list_tokens(self) -> list[TokenInfo]:
        """The tokens within the scope of this one, revoked ones too."""
        return self._background.run(self._admin.list_tokens())

    def show_token(self, token: str) -> TokenInfo:
        """One token, by its id or its name."""
        return self._background.run(self._admin.show_token(token))

    def revoke_token(self, token: str) -> None:
        """Ends a token, and at once every connection that was opened with it."""
        self._background.run(self._admin.revoke_token(token))

    def show_access(self) -> AccessInfo:
        """What this connection may do, and the node's clock."""
        return self._background.run(self._admin.show_access())

    def list_admin_log(self, count: int = 100) -> list[AdminRecord]:
        """What was administered, the latest ``count``, oldest first."""
        return self._background.run(self._admin.list_admin_log(count))
