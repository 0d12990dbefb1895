"""``headpond token bootstrap|create|list|show|revoke``: who may do what at a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url, Yes
from headpond.cli.output import iso_time, note, print_fields, print_json, print_table, reports_errors
from headpond.model.grant import without_secret
from headpond.shapes.resources import token_object

if TYPE_CHECKING:
    from headpond.wire.control.access import TokenInfo

token_app = typer.Typer(
    help="Make, list, show and revoke the tokens of a node.", no_args_is_help=True, rich_markup_mode=None
)

Which = Annotated[str, typer.Argument(metavar="ID|NAME", help="The token's id, or its name.")]
Many = list[str] | None


def _flag(option: str, what: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(option, help=what, show_default=False)
    return info


def _text(option: str, metavar: str, what: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(option, metavar=metavar, help=what, show_default=False)
    return info


@token_app.command()
@reports_errors
def bootstrap(
    data: Annotated[
        Path | None, _text("--data", "DIR", "The node's data folder. [default: the user's data folder]")
    ] = None,
    name: Annotated[str, _text("--name", "TEXT", "What to call it. [default: admin]")] = "admin",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Make a node's first admin token, or another one after the last was lost; prints it once.

    It works on the data folder while the node does not run. A node that runs and has no token yet is asked.
    """
    from headpond.cli.operate.node import default_data_folder
    from headpond.model.errors import DataLocked
    from headpond.node.bootstrap import bootstrap as bootstrap_folder

    folder = data or default_data_folder()
    new = not folder.exists()
    try:
        token_id, secret = bootstrap_folder(folder, name)
    except DataLocked as locked:
        token_id, secret = _bootstrap_running(folder, name, url, token, locked)
    if as_json:
        print_json({"token": token_id, "secret": secret, "name": name})
    else:
        print(secret)
        if new:
            note(f"{folder} is a new data folder, for a node that is still to be started there")
        note(f"token {token_id} ({name}): an admin's of everything. It is not shown again")


def _bootstrap_running(
    folder: Path, name: str, url: str, token: str | None, locked: Exception
) -> tuple[str, str]:
    """The node that has the folder is asked, if it answers at the URL and has no token yet."""
    import headpond
    from headpond.cli.output import run
    from headpond.model.errors import DataLocked, TokenNeeded
    from headpond.node.data_folder import read_identity
    from headpond.storage.os_disk import OsDisk

    how = "Stop the node first, then bootstrap again."

    async def main() -> tuple[str, str]:
        async with headpond.connect(url, token=token) as client:
            assert client.link.welcome is not None
            if client.link.welcome.node != read_identity(OsDisk(folder)).node:
                raise DataLocked(
                    f"{locked}, and the node at {url} is another one", hint=f"{how} Or give its --url."
                )
            if (await client.admin.show_access()).guarded:
                raise TokenNeeded(f"the node at {url} has tokens already", hint=how)
            made = await client.admin.create_token(name, rights=["admin"], scopes=["*"])
            return made.info.token, made.secret

    try:
        return run(main())
    except TokenNeeded as error:
        raise TokenNeeded(
            error.message, hint=f"Have an admin make one with `headpond token create`. {how}"
        ) from None


@token_app.command()
@reports_errors
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses it.")],
    produce: Annotated[bool, _flag("--produce", "It may send.")] = False,
    consume: Annotated[bool, _flag("--consume", "It may read.")] = False,
    admin: Annotated[bool, _flag("--admin", "It may do all, and make tokens, within its scope.")] = False,
    scope: Annotated[
        Many, _text("--scope", "SCOPE", "TENANT[/PRODUCT[/COMPONENT[/TOPIC]]], * for all.")
    ] = None,
    topic: Annotated[Many, _text("--topic", "TOPIC", "One topic, or a pattern such as orders-*.")] = None,
    producer: Annotated[str, _text("--producer", "NAME", "The only name to send under.")] = "",
    subscription: Annotated[str, _text("--subscription", "NAME", "The only subscription to read.")] = "",
    expires: Annotated[
        str | None, _text("--expires", "TIME", "How long it is good for: 12h, 30d; else without end.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Make a token; prints it once. --scope and --topic can be repeated."""
    from headpond.model.errors import BadSetting
    from headpond.model.grant import Grant
    from headpond.model.names import Scope
    from headpond.model.topic_settings import Setting, SettingKind

    rights = [
        right for right, wanted in (("produce", produce), ("consume", consume), ("admin", admin)) if wanted
    ]
    scopes = [*(scope or ()), *(str(Scope.of_topic(each)) for each in topic or ())]
    if not rights:
        raise typer.BadParameter("say --produce, --consume or --admin", param_hint="'--produce'")
    if not scopes:
        raise typer.BadParameter("say where: --scope or --topic; * is everywhere", param_hint="'--scope'")
    Grant.parse(rights, scopes, producer, subscription)
    try:
        lasts = (
            None
            if expires is None
            else Setting(name="expires", kind=SettingKind.SECONDS, low=1, meaning="").read(expires)
        )
    except BadSetting:
        raise typer.BadParameter("write 12h or 30d, one second at least", param_hint="'--expires'") from None
    made = ask(
        url,
        token,
        lambda asked: asked.create_token(
            name,
            rights=rights,
            scopes=scopes,
            producer=producer,
            subscription=subscription,
            lasts=None if lasts is None else float(lasts),
        ),
    )
    if as_json:
        print_json({**token_object(made.info), "secret": made.secret})
    else:
        print(made.secret)
        note(f"token {made.info.token} ({name}). It is not shown again")


@token_app.command("list")
@reports_errors
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List the tokens within the scope of yours, revoked ones too."""
    infos = ask(url, token, lambda admin: admin.list_tokens())
    if as_json:
        print_json([token_object(info) for info in infos])
        return
    rows = [
        (
            info.token,
            info.name,
            ",".join(info.rights),
            " ".join(info.scopes),
            _state(info),
            info.connections,
        )
        for info in infos
    ]
    print_table(("TOKEN", "NAME", "RIGHTS", "SCOPES", "STATE", "CONNECTIONS"), rows)


@token_app.command()
@reports_errors
def show(which: Which, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show a token: what it may do, since when, until when."""
    info = ask(url, token, lambda admin: admin.show_token(which))
    if as_json:
        print_json(token_object(info))
        return
    print_fields(
        [
            ("token", info.token),
            ("name", info.name),
            ("rights", ", ".join(info.rights)),
            ("scopes", ", ".join(info.scopes)),
            ("producer", info.producer or None),
            ("subscription", info.subscription or None),
            ("state", _state(info)),
            ("created", f"{iso_time(info.created_at_us)} by {info.created_by or 'a client without a token'}"),
            ("last used", iso_time(info.used_at_us) if info.used_at_us else None),
            ("connections", info.connections),
        ]
    )


@token_app.command()
@reports_errors
def revoke(
    which: Which,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token: nobody comes in with it any more, and whoever is in goes at once."""
    which = without_secret(which)
    if not yes:
        info = ask(url, token, lambda admin: admin.show_token(which))
        confirm(f"Revoke token {info.token} ({info.name}, {info.connections} connections)?")
    ask(url, token, lambda admin: admin.revoke_token(which))
    if as_json:
        print_json({"token": which, "revoked": True})
    else:
        print(f"revoked {which}")


def _state(info: TokenInfo) -> str:
    if info.revoked_at_us is not None:
        return f"revoked {iso_time(info.revoked_at_us)}"
    if info.expires_at_us is not None:
        return f"until {iso_time(info.expires_at_us)}"
    return "good"
