"""The errors of access: tokens, rights, TLS and quotas."""

from __future__ import annotations

from penstock.model.error import PenstockError


class AccessRefused(PenstockError):
    """The node does not let this client in."""

    code = "access-refused"
    default_hint = "Give a token with --token, PENSTOCK_TOKEN or `penstock context add`."


class TokenNeeded(AccessRefused):
    """The node asks for a token, and none was given."""

    code = "token-needed"
    default_hint = (
        "Give one with --token, PENSTOCK_TOKEN or `penstock context add`, over HTTP as `Authorization: Bearer "
        "TOKEN`; an admin makes it with `penstock token create`."
    )


class TokenUnknown(AccessRefused):
    """The token is none of this node's."""

    code = "token-unknown"
    default_hint = "Check that it is whole and of this node; an admin makes a new one: `penstock token create`."


class TokenExpired(AccessRefused):
    """The token's time is over."""

    code = "token-expired"
    default_hint = "An admin makes a new one with `penstock token create`."


class TokenRevoked(AccessRefused):
    """The token was revoked."""

    code = "token-revoked"
    default_hint = "An admin makes a new one with `penstock token create`."


class NotAllowed(PenstockError):
    """The token does not have the right that is needed, or not there.

    Whether something of that name exists is not said.
    """

    code = "not-allowed"
    default_hint = (
        "`penstock doctor` shows what the token may do; an admin makes another with `penstock token create`."
    )


class TokenNotFound(PenstockError):
    """There is no token of that id."""

    code = "token-not-found"
    default_hint = "`penstock token list` shows the tokens within the scope of yours."


class BadScope(PenstockError):
    """A scope is not TENANT[/PRODUCT[/COMPONENT[/TOPIC]]] of names and patterns."""

    code = "bad-scope"
    default_hint = (
        "Write it from the tenant down: acme, acme/shop, acme/shop/till/orders-*, or * for everything; "
        "--topic NAME stands for one topic."
    )


class Insecure(PenstockError):
    """A node that others can reach was to be started without tokens or without TLS."""

    code = "insecure"
    default_hint = (
        "Make a first token with `penstock token bootstrap` and give --tls-cert and --tls-key; or listen on "
        "127.0.0.1, or say --insecure if the network itself is safe."
    )


class TlsFailed(PenstockError):
    """The two sides of a connection did not agree on TLS, or one did not trust the other's certificate."""

    code = "tls-failed"
    default_hint = (
        "Use penstocks:// for a node with TLS and penstock:// for one without; give the CA of its certificate "
        "with PENSTOCK_CA, ca= or `penstock context add --ca`."
    )


class QuotaReached(PenstockError):
    """A tenant has as much as it may have; the message names the setting."""

    code = "quota"
    default_hint = "Delete what is not needed, or have the setting named in the message raised: `tenant set`."
    retryable = True


class BadContext(PenstockError):
    """A context does not exist, or the file of contexts cannot be used."""

    code = "bad-context"
    default_hint = "`penstock context list` shows what there is; `penstock context add` makes one."
