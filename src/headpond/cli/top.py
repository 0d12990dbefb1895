"""``headpond top``: rates and lag, live on a terminal, or a line of JSON a sample."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url
from headpond.cli.output import json_text, make_console, note, reports_errors, run

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.shapes.top_rates import Sample
    from headpond.wire.top import TopInfo

ASK_S_MAX = 5.0
"""After this long without an answer the screen says so; the question is asked again."""


@reports_errors
def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.1, max=3600.0, help="Seconds between readings.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="One sample of two readings, then end.", show_default=False)
    ] = False,
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="PATTERN", help="Topics of this form alone (* and ?)."),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Topics, and subscriptions, shown.")
    ] = 50,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Watch rates and lag; the furthest behind come first. Ctrl-C ends it."""
    run(_watch(url, token, topic, limit, interval, once=once, as_json=as_json))


async def _watch(
    url: str, token: str | None, topic: str, limit: int, interval: float, *, once: bool, as_json: bool
) -> None:
    from headpond.shapes.top_rates import sample

    show = _JsonLines() if as_json else _Plain() if once or not sys.stdout.isatty() else _Screen(url)
    reader = _Reader(url, token, topic, limit)
    before: TopInfo | None = None
    try:
        with show:
            while True:
                reading = await reader.read(None if once else show.waiting)
                if before is not None:
                    show.sample(sample(before, reading))
                    if once:
                        return
                before = reading
                await _sleep(interval)
    finally:
        await reader.close()


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


class _Reader:
    """Readings of a node; where it does not answer they are asked for until it does."""

    def __init__(self, url: str, token: str | None, pattern: str, limit: int) -> None:
        import headpond

        self._client = headpond.connect(url, token=token)
        self._pattern = pattern
        self._limit = limit
        self._admin: Admin | None = None

    async def read(self, waiting: Any) -> TopInfo:
        """``waiting`` is told why there is no answer; None: that is an error."""
        from headpond.model.errors import HeadpondError

        while True:
            try:
                return await self._ask()
            except HeadpondError as error:
                if waiting is None or not error.retryable:
                    raise
                waiting(error.message)
            except TimeoutError:
                if waiting is None:
                    raise HeadpondError(
                        f"the node did not answer for {ASK_S_MAX:g} s", hint="Is it running, and at this URL?"
                    ) from None
                waiting(f"nothing for {ASK_S_MAX:g} s")
            await _sleep(0.5)

    async def _ask(self) -> TopInfo:
        import asyncio

        async with asyncio.timeout(ASK_S_MAX):
            if self._admin is None:
                self._admin = (await self._client.__aenter__()).admin
            return await self._admin.top(self._pattern, limit=self._limit)

    async def close(self) -> None:
        if self._admin is not None:
            await self._client.__aexit__(None, None, None)


# --- where it goes ----------------------------------------------------------------------------------


class _JsonLines:
    """An object a line and sample."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...

    def sample(self, sample: Sample) -> None:
        from headpond.shapes.top import top_object

        print(json_text(top_object(sample)), flush=True)

    def waiting(self, why: str) -> None:
        note(f"no answer, trying ({why})")


class _Plain:
    """One screen after the other, for a file, a pipe, or a single look."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...

    def sample(self, sample: Sample) -> None:
        from headpond.cli.top_screen import screen

        console = make_console()
        console.print(screen(sample, console.width))
        if not console.is_terminal:
            console.print()

    def waiting(self, why: str) -> None:
        note(f"no answer, trying ({why})")


class _Screen:
    """The whole terminal, drawn anew with every sample."""

    def __init__(self, url: str) -> None:
        from rich.live import Live
        from rich.text import Text

        self._url = url
        self._console = make_console()
        first = Text(f"{url}: the first two readings …")
        self._live = Live(first, console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> None:
        self._live.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def sample(self, sample: Sample) -> None:
        from headpond.cli.top_screen import screen

        self._live.update(screen(sample, self._console.width, self._console.height), refresh=True)

    def waiting(self, why: str) -> None:
        from headpond.cli.top_screen import no_answer

        self._live.update(no_answer(why, self._url), refresh=True)
