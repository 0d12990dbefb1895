"""The pipes as machines: a sender and a receiver each, stepped with inputs and time, answering with effects.

In reading order::

    packet       What travels between the two sides of a pipe, and its bytes
    machine      The shape that every machine of a pipe has
    epoch        Sessions: how a side that started again is recognised
    timeout      How long to wait for a confirm before sending again
    window       What was sent and is not confirmed: numbers, copies to send again, and when
    sending      The sender that sends again until it is confirmed: of resend, resend_many, sequential and str
    confirming   The receiver that confirms what it passed on: of resend and resend_many
    numbering    The sender that only counts: of index, dedup, and continuous without gap requests
    keeping      The sender of continuous: it numbers, sends once, and keeps what its receiver may still ask f
    following    What most receivers have in common: of bare, index, dedup, continuous, sequential
    bare         No pipe: each message is sent once, and whatever arrives is passed on, as often as it arrives
    resend       Re-send, one unconfirmed: at least once
    resend_many  Re-send with many unconfirmed: at least once, a window of messages on their way at a time
    storage      The storage between the two halves of a stream pipe, and the one that keeps the reader's plac
    stream       Stream: a pipe with persistent storage in the middle. At least once, and the receiver may sta
    sequential   Sequential confirm: each message is confirmed before the next one is sent. Continuous order
    index        Strict monotonic index: no repeats, nothing out of order, and what comes late is dropped
    continuous   Continuous index: every message once and in order (absolute); what comes before its turn wait
    dedup        Deduplication: each message at most once
    layers       Every pipe by its name: how a stage of a route becomes machines
    compose      Pipes over pipes, and pipes in a row
"""
