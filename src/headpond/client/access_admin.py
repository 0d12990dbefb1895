"""Questions about tokens and rights, and the log of administration."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.arguments import checked_methods
from headpond.client.link import Link
from headpond.model.token_text import without_secret
from headpond.wire.access import (
    AccessInfo,
    AdminRecord,
    CreateToken,
    ListAdminLog,
    ListTokens,
    RevokeToken,
    ShowAccess,
    ShowToken,
    TokenCreated,
    TokenInfo,
)
from headpond.wire.control import read_result


@checked_methods
class AccessAdmin:
    """The part of ``client.admin`` that is about who may do what."""

    _link: Link

    async def create_token(
        self,
        name: str,
        *,
        rights: Sequence[str],
        scopes: Sequence[str],
        producer: str = "",
        subscription: str = "",
        lasts: float | None = None,
    ) -> TokenCreated:
        """Makes a token; its ``secret`` is shown here and never again.

        ``rights`` are of ``produce``, ``consume`` and ``admin``; ``scopes`` are written from the tenant down
        (``acme/shop``, ``*`` for everything). ``producer`` and ``subscription`` bind it to one name; ``lasts``
        are seconds.
        """
        ask = CreateToken(name, list(rights), list(scopes), producer, subscription, lasts)
        return read_result(await self._link.request(ask), TokenCreated)

    async def list_tokens(self) -> list[TokenInfo]:
        """The tokens within the scope of this one, revoked ones too."""
        return read_result(await self._link.request(ListTokens(), retry=True), list[TokenInfo])

    async def show_token(self, token: str) -> TokenInfo:
        """One token, by its id or its name."""
        return read_result(await self._link.request(ShowToken(without_secret(token)), retry=True), TokenInfo)

    async def revoke_token(self, token: str) -> None:
        """Ends a token, and at once every connection that was opened with it."""
        await self._link.request(RevokeToken(without_secret(token)))

    async def show_access(self) -> AccessInfo:
        """What this connection may do, and the node's clock."""
        return read_result(await self._link.request(ShowAccess(), retry=True), AccessInfo)

    async def list_admin_log(self, count: int = 100) -> list[AdminRecord]:
        """What was administered, the latest ``count``, oldest first."""
        return read_result(await self._link.request(ListAdminLog(count), retry=True), list[AdminRecord])
