"""``penstock tenant create|list|show|set|unset|delete``."""

from __future__ import annotations

from penstock.cli.places import place_app

tenant_app = place_app("tenant", "TENANT")
