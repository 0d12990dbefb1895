"""The errors of links between nodes."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class PeerNotFound(HeadpondError):
    """There is no link of that name."""

    code = "peer-not-found"
    default_hint = "`headpond peer list` shows the links of this node."


class PeerExists(HeadpondError):
    """There is a link of that name, and it is another one."""

    code = "peer-exists"
    default_hint = "Give the new one another --name, or remove the old one first: `headpond peer remove NAME`."


class PeerItself(HeadpondError):
    """A link leads to the node that it is on."""

    code = "peer-itself"
    default_hint = "Remove it with `headpond peer remove NAME`, and add one with the URL of another node."


class PeerMismatch(HeadpondError):
    """A topic is not the same on the two nodes of a link, so it does not follow: shards, schema or kind."""

    code = "peer-mismatch"
    default_hint = "Delete it on one of the nodes, or leave it out of the link's --topics."


class PeerBarred(HeadpondError):
    """A topic was deleted on a node while it was linked, so no link brings it back there by itself."""

    code = "peer-barred"
    default_hint = "`headpond topic create NAME` on the node where it was deleted lets it follow again."
