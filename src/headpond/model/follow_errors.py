"""The errors of subscriptions that follow those of another node."""

from __future__ import annotations

from headpond.model.error import HeadpondError


class SubscriptionPassive(HeadpondError):
    """The subscription is a copy of another node's: nobody reads or moves it here before it is promoted."""

    code = "subscription-passive"
    default_hint = (
        "Consume on the node where it lives. To go on here instead: `headpond sub promote TOPIC SUBSCRIPTION`."
    )
