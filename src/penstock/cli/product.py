"""``penstock product create|list|show|set|unset|delete``."""

from __future__ import annotations

from penstock.cli.places import place_app

product_app = place_app("product", "TENANT/PRODUCT")
