"""The errors of the tree that topics live in, of inherited settings, and of registered producers."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class PlaceNotFound(HeadpondError):
    """There is no tenant, product or component of that name, and it was not to be created."""

    code = "place-not-found"
    default_hint = (
        "Create it with `headpond tenant|product|component create NAME`, or see `headpond tenant list`."
    )


class PlaceExists(HeadpondError):
    """There is a tenant, product or component of that name already."""

    code = "place-exists"
    default_hint = "Change its settings with `set` and `unset`, or choose another name."


class NotEmpty(HeadpondError):
    """A tenant, product or component that still holds something was to be deleted."""

    code = "not-empty"
    default_hint = "Delete what it holds first, or say --recursive to delete it with everything below it."


class BadSetting(HeadpondError):
    """A setting does not exist, cannot be set at that level, or cannot have that value."""

    code = "bad-setting"
    default_hint = "docs/tenancy.md lists all settings, their values and where they can be set."


class ProducerNotFound(HeadpondError):
    """No producer of that name is registered at the topic."""

    code = "producer-not-found"
    default_hint = (
        "Register it with `headpond producer create TOPIC NAME`, or see `headpond producer list TOPIC`."
    )


class ProducerExists(HeadpondError):
    """A producer of that name is registered at the topic already."""

    code = "producer-exists"
    default_hint = "Delete it first to register it with another access."


class ProducerMismatch(HeadpondError):
    """A producer's name is registered with another access than it was opened with."""

    code = "producer-mismatch"
    default_hint = (
        "Open it with the access it is registered with (the default), or delete the registration first."
    )


class ProducerBusy(HeadpondError):
    """Another instance holds the lease of a producer with single access."""

    code = "producer-busy"
    default_hint = (
        "Close the instance named, or open the producer with wait=SECONDS to take over when it is gone."
    )
    retryable = True


class Fenced(HeadpondError):
    """Another instance took over a producer with single access: what this one sends is not taken any more.

    What it had not delivered is kept in its refill, if it has one.
    """

    code = "fenced"
    default_hint = (
        "Stop this instance. `headpond refill list` shows what it kept; `headpond refill send --late` sends it."
    )
