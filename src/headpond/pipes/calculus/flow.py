"""The flow of copies up to some pipe of a route, and the effect of one more pipe on it.

Where the distribution of copies is known, the flow has it whole. A pipe that drops late messages makes it
uncertain: how many come late depends on delays that no rate describes. Then there are bounds instead: at
least the copies of ``least``, at most a mean of ``mean_max``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from headpond.pipes.calculus.declarations import Fault, Tactic, span_of
from headpond.pipes.calculus.delivery import Channel, Copies, bernoulli, delivery, resent
from headpond.pipes.calculus.orders import Order, order_of
from headpond.pipes.calculus.route import RouteStage

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class RateBounds:
    """A number that is known exactly (both are equal) or to lie between two."""

    low: Fraction
    high: Fraction

    @property
    def exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFlow:
    """A route so far, as far as copies and their order go."""

    copies: Copies | None
    """The distribution of copies, where it is known."""
    least: Copies
    """There are never fewer copies than these."""
    reliability_max: Fraction
    mean_max: Fraction
    prompt: Fraction
    """At least this share of messages arrives before any copy of a later message."""
    unique: bool
    """Whether nothing is repeated, however much is lost."""
    overtakes: bool
    """Whether a message may first arrive behind a later one."""
    stale: bool
    """Whether a repeat may arrive behind a later message."""
    may_lose: bool
    """Whether faults without a rate may lose messages."""
    may_repeat: bool
    span: int
    """How far a message that is still to come may be behind the newest one that came."""
    punctual: bool
    """Whether a message comes at once or not at all: no pipe holds it back until others are confirmed, or sends
    it again later. A timer over one that is not punctual runs out for messages that are still to come."""

    @property
    def reliability(self) -> RateBounds:
        low = Fraction(0) if self.may_lose else 1 - self.least.lost
        return RateBounds(low, self.reliability_max)

    @property
    def uniqueness(self) -> RateBounds:
        if self.unique:
            return RateBounds(ONE, ONE)
        if self.may_lose:
            # Which copies are lost is not known: those of messages that come again, or of those that do not.
            return RateBounds(Fraction(0), ONE)
        if self.copies is not None:
            exact = delivery(self.copies).uniqueness
            return RateBounds(Fraction(0) if self.may_repeat else exact, exact)
        if self.may_repeat or not self.mean_max:
            return RateBounds(Fraction(0), ONE)
        return RateBounds((1 - self.least.lost) / self.mean_max, ONE)

    @property
    def order(self) -> Order | None:
        return order_of(falls=_late(self), repeats=not self.unique, gaps=self.reliability.low < 1)


def over_channel(channel: Channel) -> RouteFlow:
    """The flow over the bare channel."""
    copies = channel.copies
    return RouteFlow(
        copies=copies,
        least=copies,
        reliability_max=1 - copies.lost,
        mean_max=copies.mean,
        prompt=channel.prompt,
        unique=not channel.duplicate,
        overtakes=channel.reorder > 0,
        stale=channel.reorder > 0 and channel.duplicate > 0,
        may_lose=Fault.ROUTE_FAILURE in channel.faults,
        may_repeat=False,
        span=channel.span,
        punctual=True,
    )


def carry(beneath: RouteFlow, stage: RouteStage, channel: Channel) -> RouteFlow:
    """The flow with one more pipe over the route, whose needs are met."""
    match stage.declaration.tactic:
        case Tactic.PASS:
            return beneath
        case Tactic.RESEND_ONE | Tactic.RESEND_MANY:
            return _resend(beneath, stage, channel)
        case Tactic.WAIT_FOR_CONFIRM | Tactic.ASK_GAPS:
            return _all_in_order(beneath)
        case Tactic.ASK_GAPS_PASS_EQUAL:
            return _ask_gaps_pass_equal(beneath)
        case Tactic.DROP_SEEN:
            return _drop_repeats(beneath, 1 - beneath.least.lost)
        case Tactic.DROP_LATE:
            return _in_order(_drop_repeats(beneath, _waited_for(beneath)))
        case Tactic.DROP_BELOW:
            return _in_order(_drop_late(beneath, _waited_for(beneath)))
        case Tactic.HOLD_GAPS:
            return replace(_in_order(_drop_repeats(beneath, ONE)), punctual=False)
        case Tactic.HOLD_GAPS_PASS_EQUAL:
            return replace(_in_order(_drop_late(beneath, ONE)), punctual=False)


def _resend(beneath: RouteFlow, stage: RouteStage, channel: Channel) -> RouteFlow:
    """Sent again until confirmed, or so many times; over a pipe that is not punctual also needlessly."""
    tries = int(stage.settings.get("tries", 0)) or None
    upset = bool(channel.faults & stage.declaration.tolerates)
    sent = _send_again(beneath, channel.confirm, tries, upset=upset)
    if not beneath.punctual:
        sent = unsure_of_timers(sent)
    if stage.declaration.tactic is Tactic.RESEND_ONE:
        # The next message leaves after the last has arrived: none is overtaken, only repeats come late. After
        # the last of so many tries the next one leaves too, and may overtake a copy that is still on its way.
        overtakes = tries is not None and (beneath.overtakes or not beneath.punctual)
        prompt = beneath.prompt if overtakes else 1 - sent.least.lost
        sent = replace(sent, prompt=prompt, overtakes=overtakes, stale=_late(beneath) and not sent.unique)
    else:
        # A message that is lost, or whose confirm is lost, is sent again behind later ones; so is one that had
        # no room in a pipe that is not punctual.
        upset = upset or not beneath.punctual
        sent = replace(
            sent,
            prompt=Fraction(0) if upset else beneath.prompt,
            overtakes=beneath.overtakes or upset or beneath.reliability.low < 1,
            stale=not sent.unique and (_late(beneath) or upset or channel.confirm < 1),
            span=span_of(int(stage.settings["window"])),
        )
    return _held_back(sent) if stage.settles else sent


def _held_back(sent: RouteFlow) -> RouteFlow:
    """The receiver drops further copies while the worker after has a message: there are that many, or fewer."""
    return sent if sent.unique else replace(sent, copies=None, least=bernoulli(1 - sent.least.lost))


def _all_in_order(beneath: RouteFlow) -> RouteFlow:
    """Missing messages are sent again, and only the next one passes."""
    return replace(
        _in_order(beneath),
        copies=bernoulli(1),
        least=bernoulli(1),
        reliability_max=ONE,
        mean_max=ONE,
        prompt=ONE,
        unique=True,
        may_lose=False,
        may_repeat=False,
        punctual=False,
    )


def _ask_gaps_pass_equal(beneath: RouteFlow) -> RouteFlow:
    """The same, and a repeat of the last passes too, also of a message that was asked for needlessly."""
    asks = beneath.reliability.low < 1 or _late(beneath) or not beneath.punctual
    if not asks:
        return _in_order(beneath)
    whole = _all_in_order(beneath)
    return replace(whole, copies=None, unique=False, may_repeat=True)


def _send_again(beneath: RouteFlow, confirm: Fraction, tries: int | None, *, upset: bool) -> RouteFlow:
    copies, least, mean_max = _resent_copies(beneath, confirm, tries)
    return replace(
        beneath,
        copies=copies,
        least=least,
        # All tries are lost, or one arrives: nothing else about their copies matters to R.
        reliability_max=ONE if tries is None else 1 - (1 - beneath.reliability_max) ** tries,
        mean_max=mean_max,
        unique=beneath.unique and confirm == 1 and not upset,
        may_lose=False,
        # A fault between an arrival and its confirm makes the sender send again.
        may_repeat=beneath.may_repeat or upset,
        punctual=False,
    )


def _resent_copies(
    beneath: RouteFlow, confirm: Fraction, tries: int | None
) -> tuple[Copies | None, Copies, Fraction]:
    if tries is not None:
        return _tried_copies(beneath, confirm, tries)
    if beneath.copies is None and beneath.unique:
        # How many are lost beneath is not known, and does not matter: a lost message leaves no copy.
        beneath = replace(beneath, copies=bernoulli(1))
    if beneath.copies is not None:
        copies = resent(beneath.copies, confirm)
        return copies, copies, copies.mean
    # Mean copies are mean copies a try, divided by the chance that a try is confirmed: each by its worst case.
    confirmed_min = 1 - beneath.least.at(1 - confirm)
    return None, bernoulli(1), beneath.mean_max / confirmed_min


def _tried_copies(beneath: RouteFlow, confirm: Fraction, tries: int) -> tuple[Copies | None, Copies, Fraction]:
    if beneath.copies is not None:
        copies = resent(beneath.copies, confirm, tries - 1)
        return copies, copies, copies.mean
    return None, bernoulli(1 - beneath.least.lost**tries), beneath.mean_max * tries


def _late(flow: RouteFlow) -> bool:
    return flow.overtakes or flow.stale


def _waited_for(beneath: RouteFlow) -> Fraction:
    """The share of messages that a pipe which waits for nothing is sure to let through."""
    return beneath.prompt if beneath.overtakes else 1 - beneath.least.lost


def _drop_repeats(beneath: RouteFlow, reliability_min: Fraction) -> RouteFlow:
    known = reliability_min == beneath.reliability_max
    least = bernoulli(reliability_min)
    return replace(
        beneath,
        copies=least if known else None,
        least=least,
        mean_max=beneath.reliability_max,
        unique=True,
        stale=False,
        may_repeat=False,
    )


def _drop_late(beneath: RouteFlow, reliability_min: Fraction) -> RouteFlow:
    if not _late(beneath):
        return beneath
    return replace(beneath, copies=None, least=bernoulli(reliability_min))


def _in_order(flow: RouteFlow) -> RouteFlow:
    return replace(flow, overtakes=False, stale=False, prompt=1 - flow.least.lost, span=1)


def unsure_of_timers(flow: RouteFlow) -> RouteFlow:
    """The same where no timer can foresee when a confirm comes, so that the sender makes needless copies."""
    return replace(
        flow, copies=None, least=bernoulli(1 - flow.least.lost), unique=False, stale=True, may_repeat=True
    )


def worked_on(flow: RouteFlow, fails: Fraction) -> RouteFlow:
    """The same behind a worker that fails that share of the copies it gets."""
    worker = over_channel(Channel(loss=fails))
    return replace(in_row(flow, worker, spills=False), span=flow.span, punctual=flow.punctual)


def in_row(first: RouteFlow, second: RouteFlow, *, spills: bool) -> RouteFlow:
    """Two routes in a row, with a relay between them: each copy of the first is a message to the second.

    ``spills``: the relay gives up messages that the second has no room for.
    """
    copies = None
    if first.copies is not None and second.copies is not None:
        copies = first.copies.then(second.copies)
    if copies is not None:
        reliability_max = 1 - copies.lost
    else:
        # A repeat is a second chance, so with repeats nothing better than this is known.
        reliability_max = first.reliability_max * (second.reliability_max if first.unique else 1)
    return RouteFlow(
        copies=copies,
        least=first.least.then(second.least),
        reliability_max=reliability_max,
        mean_max=first.mean_max * second.mean_max,
        prompt=first.prompt * second.prompt,
        unique=first.unique and second.unique,
        # A repeat that comes late is the first to arrive where the second route loses the copies before it.
        overtakes=first.overtakes or second.overtakes or (first.stale and second.least.lost > 0),
        stale=first.stale or second.stale,
        may_lose=first.may_lose or second.may_lose or spills,
        may_repeat=first.may_repeat or second.may_repeat,
        span=second.span,
        punctual=first.punctual and second.punctual,
    )
