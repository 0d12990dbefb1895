"""``headpond component create|list|show|set|unset|delete``."""

from __future__ import annotations

from headpond.cli.places import place_app

component_app = place_app("component", "TENANT/PRODUCT/COMPONENT")
