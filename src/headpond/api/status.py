"""The HTTP status of every error of the catalogue."""

from __future__ import annotations

from typing import Final

from headpond.model import errors as e

BY_ERROR: Final[dict[type[e.HeadpondError], int]] = {
    e.HeadpondError: 500,
    # what was asked makes no sense
    e.BadRequest: 400,
    e.BadTopicName: 400,
    e.BadScope: 400,
    e.BadSetting: 400,
    e.BadFilter: 400,
    e.BadSegment: 400,
    e.KeyMissing: 400,
    e.ValueMissing: 400,
    e.SchemaMismatch: 400,
    e.NoRoute: 404,
    e.WrongMethod: 405,
    e.WrongMediaType: 415,
    # who may what
    e.AccessRefused: 401,
    e.NotAllowed: 403,
    e.CrossSite: 403,
    # what is not there, or is in the way
    e.TopicNotFound: 404,
    e.SubscriptionNotFound: 404,
    e.PlaceNotFound: 404,
    e.ProducerNotFound: 404,
    e.WriterNotFound: 404,
    e.StageNotFound: 404,
    e.TokenNotFound: 404,
    e.PeerNotFound: 404,
    e.EntriesMissing: 410,
    e.TopicExists: 409,
    e.PlaceExists: 409,
    e.PeerExists: 409,
    e.PeerItself: 409,
    e.PeerMismatch: 409,
    e.PeerBarred: 409,
    e.ProducerExists: 409,
    e.TopicMismatch: 409,
    e.SubscriptionMismatch: 409,
    e.SubscriptionBusy: 409,
    e.SubscriptionMoved: 409,
    e.ProducerMismatch: 409,
    e.ProducerBusy: 409,
    e.StageMismatch: 409,
    e.NotEmpty: 409,
    e.Conflict: 409,
    e.Fenced: 409,
    e.IncarnationChanged: 409,
    e.SchemaChanged: 409,
    e.LeaseLost: 409,
    e.NotHeld: 409,
    e.Closed: 409,
    # too much
    e.BodyTooLarge: 413,
    e.SegmentTooLarge: 413,
    e.FrameTooLarge: 413,
    e.QuotaReached: 429,
    e.DiskFull: 507,
    e.StagingFull: 507,
    # not now
    e.NotSupported: 501,
    e.TimedOut: 504,
    e.Damaged: 500,
    e.BadChecksum: 500,
}
RETRYABLE: Final = 503
"""Of every other error that can pass."""


def status_of(error: e.HeadpondError) -> int:
    for kind in type(error).__mro__:
        if kind in BY_ERROR and kind is not e.HeadpondError:
            return BY_ERROR[kind]
    return RETRYABLE if error.retryable else BY_ERROR[e.HeadpondError]
