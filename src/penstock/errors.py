"""The catalogue of errors, under its public name: ``from penstock.errors import TopicNotFound``."""

from penstock.model import errors as _catalogue
from penstock.model.errors import *  # noqa: F403
from penstock.model.errors import CATALOGUE as CATALOGUE

__all__ = sorted(kind.__name__ for kind in set(_catalogue.CATALOGUE.values()))
