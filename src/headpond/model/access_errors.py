"""The errors of access: tokens, rights, TLS and quotas."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class AccessRefused(HeadpondError):
    """The node does not let this client in."""

    code = "access-refused"
    default_hint = "Give a token with --token, HEADPOND_TOKEN or `headpond context add`."


class TokenNeeded(AccessRefused):
    """The node asks for a token, and none was given."""

    code = "token-needed"
    default_hint = (
        "Give one with --token, HEADPOND_TOKEN or `headpond context add`, over HTTP as `Authorization: Bearer "
        "TOKEN`; an admin makes it with `headpond token create`."
    )


class TokenUnknown(AccessRefused):
    """The token is none of this node's."""

    code = "token-unknown"
    default_hint = "Check that it is whole and of this node; an admin makes a new one: `headpond token create`."


class TokenExpired(AccessRefused):
    """The token's time is over."""

    code = "token-expired"
    default_hint = "An admin makes a new one with `headpond token create`."


class TokenRevoked(AccessRefused):
    """The token was revoked."""

    code = "token-revoked"
    default_hint = "An admin makes a new one with `headpond token create`."


class NotAllowed(HeadpondError):
    """The token does not have the right that is needed, or not there.

    Whether something of that name exists is not said.
    """

    code = "not-allowed"
    default_hint = (
        "`headpond doctor` shows what the token may do; an admin makes another with `headpond token create`."
    )


class TokenNotFound(HeadpondError):
    """There is no token of that id."""

    code = "token-not-found"
    default_hint = "`headpond token list` shows the tokens within the scope of yours."


class BadScope(HeadpondError):
    """A scope is not TENANT[/PRODUCT[/COMPONENT[/TOPIC]]] of names and patterns."""

    code = "bad-scope"
    default_hint = (
        "Write it from the tenant down: acme, acme/shop, acme/shop/till/orders-*, or * for everything; "
        "--topic NAME stands for one topic."
    )


class Insecure(HeadpondError):
    """A node that others can reach was to be started without tokens or without TLS."""

    code = "insecure"
    default_hint = (
        "Make a first token with `headpond token bootstrap` and give --tls-cert and --tls-key; or listen on "
        "127.0.0.1, or say --insecure if the network itself is safe."
    )


class TlsFailed(HeadpondError):
    """The two sides of a connection did not agree on TLS, or one did not trust the other's certificate."""

    code = "tls-failed"
    default_hint = (
        "Use headponds:// for a node with TLS and headpond:// for one without; give the CA of its certificate "
        "with HEADPOND_CA, ca= or `headpond context add --ca`."
    )


class QuotaReached(HeadpondError):
    """A tenant has as much as it may have; the message names the setting."""

    code = "quota"
    default_hint = "Delete what is not needed, or have the setting named in the message raised: `tenant set`."
    retryable = True


class BadContext(HeadpondError):
    """A context does not exist, or the file of contexts cannot be used."""

    code = "bad-context"
    default_hint = "`headpond context list` shows what there is; `headpond context add` makes one."
