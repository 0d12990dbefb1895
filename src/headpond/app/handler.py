"""A handler: a function of the program, what it asks for by its parameters, and how it is called.

A parameter annotated as ``Message``, or named ``message`` without an annotation, gets the message; the other
one gets the value, whose type is its annotation. A coroutine function runs on the event loop, a plain function
in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

from headpond.model.errors import BadRequest
from headpond.model.message import Message


class Handler:
    def __init__(self, function: Callable[..., Any], value: Any) -> None:
        """``value`` is the type of values; None: as the function's parameters say, bytes if they do not."""
        self.name: str = getattr(function, "__qualname__", type(function).__name__)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # of an object
        )
        self._function = function
        self._value_name, self._message_name = "", ""
        kind: Any = bytes
        for name, annotation in self._parameters():
            if annotation is Message or get_origin(annotation) is Message:
                self._message_name = name
                kind = next(iter(get_args(annotation)), kind)
            elif name == "message" and annotation is None:
                self._message_name = name
            elif self._value_name:
                raise BadRequest(
                    f"handler {self.name} asks for {self._value_name!r} and {name!r}",
                    hint="A handler gets one value and, if a parameter is annotated as Message, the message.",
                )
            else:
                self._value_name = name
                kind = kind if annotation is None else annotation
        self.value = kind if value is None else value

    def _parameters(self) -> list[tuple[str, Any]]:
        """The required parameters, with their annotations."""
        try:
            parameters = inspect.signature(self._function).parameters.values()
            function = self._function if inspect.isroutine(self._function) else type(self._function).__call__
            hints = get_type_hints(function)
        except (NameError, TypeError, ValueError) as error:
            raise BadRequest(
                f"the parameters of handler {self.name} cannot be read: {error}",
                hint="Annotate them with types that its module defines, outside of functions.",
            ) from error
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [
            (each.name, hints.get(each.name))
            for each in parameters
            if each.default is each.empty and each.kind not in variable
        ]

    async def call(self, message: Message[Any], threads: Executor | None) -> Any:
        """Calls the function with what it asks for; returns its result."""
        given: dict[str, Any] = {}
        if self._value_name:
            given[self._value_name] = message.value
        if self._message_name:
            given[self._message_name] = message
        if self.is_async:
            return await self._function(**given)
        call = partial(copy_context().run, partial(self._function, **given))
        return await asyncio.get_running_loop().run_in_executor(threads, call)
