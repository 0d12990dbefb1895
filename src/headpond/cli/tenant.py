"""``headpond tenant create|list|show|set|unset|delete``."""

from __future__ import annotations

from headpond.cli.places import place_app

tenant_app = place_app("tenant", "TENANT")
