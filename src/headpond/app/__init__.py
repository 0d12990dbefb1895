"""Handlers: functions of a program that get the messages of subscriptions (docs/handlers.md).

In reading order::

    verdicts     exceptions by which a handler decides about its message
    handler      a function: what it asks for, and how it is called
    subscriber   one subscription: takes messages, calls the handler, settles
    application  all subscribers of a program: their start, their drain, signals
"""
