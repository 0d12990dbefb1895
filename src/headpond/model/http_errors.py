"""The errors that only HTTP has: routes, bodies, media types, and messages held between requests."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class NoRoute(HeadpondError):
    """There is nothing at this path over HTTP."""

    code = "no-route"
    default_hint = (
        "GET /schema/openapi.json lists what there is; a topic's parts are joined by colons in a path."
    )


class WrongMethod(HeadpondError):
    """There is something at this path, and it does not take this method."""

    code = "wrong-method"
    default_hint = "GET /schema/openapi.json lists what there is; the Allow header names the methods."


class WrongMediaType(HeadpondError):
    """A body came as something that is not taken here, or an answer was asked for that is not made here."""

    code = "media-type"
    default_hint = "docs/http.md lists what each route takes (Content-Type) and gives (Accept)."


class BodyTooLarge(HeadpondError):
    """A request's body is larger than what is taken over HTTP."""

    code = "body-too-large"
    default_hint = "Send less at a time, or raise http_limits.body_bytes in the node's settings."


class NotHeld(HeadpondError):
    """A message is not in this consumer's hands: it was settled, or the consumer was idle for too long."""

    code = "not-held"
    default_hint = "Fetch again: what was not settled comes again, to whoever fetches first."


class CrossSite(HeadpondError):
    """A request came from another site's page in a browser, or under a name that is not the node's."""

    code = "cross-site"
    default_hint = "Call it from a program, or put a server of your own between the page and the node."
