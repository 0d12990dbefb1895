"""The catalogue of errors, under its public name: ``from headpond.errors import TopicNotFound``."""

from headpond.model import errors as _catalogue
from headpond.model.errors import *  # noqa: F403
from headpond.model.errors import CATALOGUE as CATALOGUE

__all__ = sorted(kind.__name__ for kind in set(_catalogue.CATALOGUE.values()))
