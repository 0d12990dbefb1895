"""``headpond token bootstrap|create|list|show|revoke``: who may do what at a node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.operate.node import default_data_folder
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url, Yes
from headpond.cli.output import (
    iso_time,
    note,
    print_fields,
    print_json,
    print_result,
    print_table,
    reports_errors,
    run,
)
from headpond.model.errors import BadSetting, DataLocked, TokenNeeded
from headpond.model.grant import Grant, without_secret
from headpond.model.names import Scope
from headpond.model.topic_settings import Setting, SettingKind
from headpond.shapes.resources import token_object

if TYPE_CHECKING:
    from headpond.wire.control.access import TokenInfo

token_app = typer.Typer(
    help="Create, list and revoke access tokens.", no_args_is_help=True, rich_markup_mode=None
)

Which = Annotated[str, typer.Argument(metavar="ID|NAME", help="The id or the name of the token.")]
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
        Path | None, _text("--data", "DIR", "The data folder of the node. [default: ~/.local/share/headpond]")
    ] = None,
    name: Annotated[str, _text("--name", "TEXT", "The name of the token. [default: admin]")] = "admin",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create the first admin token of a node, or a new one if it was lost, and print it once.

    It writes to the data folder while the node is stopped, or asks a running node that has no tokens yet.
    """
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
            note(f"{folder} is a new data folder; start the node with --data {folder}")
        note(f"token {token_id} ({name}): admin of everything. It is not shown again")


def _bootstrap_running(
    folder: Path, name: str, url: str, token: str | None, locked: Exception
) -> tuple[str, str]:
    """Asks the node that uses the folder, if it answers at the URL and has no tokens yet."""
    import headpond
    from headpond.node.data_folder import read_identity
    from headpond.storage.os_disk import OsDisk

    how = "Stop the node, then run `headpond token bootstrap` again."

    async def main() -> tuple[str, str]:
        async with headpond.connect(url, token=token) as client:
            assert client.link.welcome is not None
            if client.link.welcome.node != read_identity(OsDisk(folder)).node:
                raise DataLocked(
                    f"{locked}, and the node at {url} is another one",
                    hint=f"{how} Or give the --url of the node.",
                )
            if (await client.admin.show_access()).guarded:
                raise TokenNeeded(f"the node at {url} has tokens already", hint=how)
            made = await client.admin.create_token(name, rights=["admin"], scopes=["*"])
            return made.info.token, made.secret

    try:
        return run(main())
    except TokenNeeded as error:
        raise TokenNeeded(
            error.message, hint=f"Ask an admin for a token (`headpond token create`). {how}"
        ) from None


@token_app.command()
@reports_errors
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name: who or what uses the token.")],
    produce: Annotated[bool, _flag("--produce", "Allow sending.")] = False,
    consume: Annotated[bool, _flag("--consume", "Allow reading.")] = False,
    admin: Annotated[
        bool, _flag("--admin", "Allow everything within the scope, also creating tokens.")
    ] = False,
    scope: Annotated[
        Many,
        _text(
            "--scope", "SCOPE", "TENANT[/PRODUCT[/COMPONENT[/TOPIC]]], or * for everything. Can be repeated."
        ),
    ] = None,
    topic: Annotated[
        Many, _text("--topic", "TOPIC", "One topic, or a pattern such as orders-*. Can be repeated.")
    ] = None,
    producer: Annotated[str, _text("--producer", "NAME", "The only producer name it can send as.")] = "",
    subscription: Annotated[str, _text("--subscription", "NAME", "The only subscription it can read.")] = "",
    expires: Annotated[
        str | None,
        _text("--expires", "TIME", "How long it is valid, for example 12h or 30d. [default: forever]"),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it once. It needs a right and a scope."""
    rights = [
        right for right, wanted in (("produce", produce), ("consume", consume), ("admin", admin)) if wanted
    ]
    scopes = [*(scope or ()), *(str(Scope.of_topic(each)) for each in topic or ())]
    if not rights:
        raise typer.BadParameter("give --produce, --consume or --admin", param_hint="'--produce'")
    if not scopes:
        raise typer.BadParameter("give --scope or --topic; --scope '*' is everything", param_hint="'--scope'")
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
    """List the tokens within the scope of your token, revoked ones too."""
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
    """Show a token: its rights, its scope, and how long it is valid. The secret is not shown."""
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
    """Revoke a token, and disconnect the clients that use it."""
    which = without_secret(which)
    if not yes:
        info = ask(url, token, lambda admin: admin.show_token(which))
        confirm(f"Revoke token {info.token} ({info.name}, {info.connections} connections)?")
    ask(url, token, lambda admin: admin.revoke_token(which))
    print_result({"token": which, "revoked": True}, f"revoked {which}", as_json=as_json)


def _state(info: TokenInfo) -> str:
    if info.revoked_at_us is not None:
        return f"revoked {iso_time(info.revoked_at_us)}"
    if info.expires_at_us is not None:
        return f"until {iso_time(info.expires_at_us)}"
    return "valid"
