"""The errors of running a node: its data folder, its settings, its address."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class DataLocked(HeadpondError):
    """Another node process uses the data folder."""

    code = "data-locked"
    default_hint = "Stop the other node, or give this one another --data folder."


class BadData(HeadpondError):
    """The data folder is not one of ours, or is of a version this program cannot read."""

    code = "bad-data"
    default_hint = "Point --data at an empty folder or at one made by this or an earlier version."


class BadConfig(HeadpondError):
    """A settings file has a fault."""

    code = "bad-config"
    default_hint = "Correct the key named in the message; docs/settings.md lists them all."


class AddressInUse(HeadpondError):
    """The node cannot listen on the address."""

    code = "address-in-use"
    default_hint = "Another program listens there; choose another --listen address (port 0 picks a free one)."
