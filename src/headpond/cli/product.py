"""``headpond product create|list|show|set|unset|delete``."""

from __future__ import annotations

from headpond.cli.places import place_app

product_app = place_app("product", "TENANT/PRODUCT")
