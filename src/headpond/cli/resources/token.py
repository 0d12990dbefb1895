"""``headpond token bootstrap|create|list|show|revoke`` and ``headpond log admin``: access to a node.

A token says who may do what. The log of administration says who did what.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli.command import Node, command, confirm, group
from headpond.cli.operate.node import default_data_folder
from headpond.cli.options import Yes, argument, flag, option, wrong_use
from headpond.cli.output import iso_time, json_text, note, picked, print_fields, print_objects, run
from headpond.model.errors import BadSetting, DataLocked, TokenNeeded
from headpond.model.grant import Grant, without_secret
from headpond.model.names import Scope
from headpond.model.topic_settings import Setting, SettingKind
from headpond.shapes.resources import administered_object, token_object

if TYPE_CHECKING:
    from headpond.wire.control.access import TokenInfo

token_app = group("Create, list and revoke access tokens.")
log_app = group("Print the log of administration.")

Which = Annotated[str, argument("ID|NAME", "The id or the name of the token.")]
DATA_HELP = "The data folder of the node. [default: ~/.local/share/headpond]"
NAME_HELP = "The name of the token. [default: admin]"
ADMIN_HELP = "Allow everything within the scope, also creating tokens."
SCOPE_HELP = "TENANT[/PRODUCT[/COMPONENT[/TOPIC]]], or * for everything. Can be repeated."
TOPIC_HELP = "One topic, or a pattern such as orders-*. Can be repeated."
EXPIRES_HELP = "How long it is valid, for example 12h or 30d. [default: forever]"


def _text(name: str, metavar: str, meaning: str, **rest: Any) -> Any:
    return option(name, metavar, meaning, show_default=False, **rest)


@command(token_app)
def bootstrap(
    node: Node,
    data: Annotated[Path | None, _text("--data", "DIR", DATA_HELP, envvar="HEADPOND_DATA")] = None,
    name: Annotated[str, _text("--name", "TEXT", NAME_HELP)] = "admin",
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
        token_id, secret = _bootstrap_running(node, folder, name, locked)
    node.show({"token": token_id, "secret": secret, "name": name}, secret)
    if not node.as_json:
        if new:
            note(f"{folder} is a new data folder; start the node with --data {folder}")
        note(f"token {token_id} ({name}): admin of everything. It is not shown again")


def _bootstrap_running(node: Node, folder: Path, name: str, locked: Exception) -> tuple[str, str]:
    """Asks the node that uses the folder, if it answers at the URL and has no tokens yet."""
    import headpond
    from headpond.node.data_folder import read_identity
    from headpond.storage.os_disk import OsDisk

    how = "Stop the node, then run `headpond token bootstrap` again."

    async def main() -> tuple[str, str]:
        async with headpond.connect(node.url, token=node.token) as client:
            assert client.link.welcome is not None
            if client.link.welcome.node != read_identity(OsDisk(folder)).node:
                raise DataLocked(
                    f"{locked}, and the node at {node.url} is another one",
                    hint=f"{how} Or give the --url of the node.",
                )
            if (await client.admin.show_access()).guarded:
                raise TokenNeeded(f"the node at {node.url} has tokens already", hint=how)
            made = await client.admin.create_token(name, rights=["admin"], scopes=["*"])
            return made.info.token, made.secret

    try:
        return run(main())
    except TokenNeeded as error:
        raise TokenNeeded(
            error.message, hint=f"Ask an admin for a token (`headpond token create`). {how}"
        ) from None


@command(token_app)
def create(
    node: Node,
    name: Annotated[str, argument("NAME", "A name: who or what uses the token.")],
    produce: Annotated[bool, flag("--produce", "Allow sending.")] = False,
    consume: Annotated[bool, flag("--consume", "Allow reading.")] = False,
    admin: Annotated[bool, flag("--admin", ADMIN_HELP)] = False,
    scope: Annotated[list[str] | None, option("--scope", "SCOPE", SCOPE_HELP)] = None,
    topic: Annotated[list[str] | None, option("--topic", "TOPIC", TOPIC_HELP)] = None,
    producer: Annotated[str, _text("--producer", "NAME", "The only producer name it can send as.")] = "",
    subscription: Annotated[str, _text("--subscription", "NAME", "The only subscription it can read.")] = "",
    expires: Annotated[str | None, option("--expires", "TIME", EXPIRES_HELP)] = None,
) -> None:
    """Create a token and print it once. It needs a right and a scope."""
    wanted = {"produce": produce, "consume": consume, "admin": admin}
    rights = [right for right in wanted if wanted[right]]
    scopes = [*(scope or ()), *(str(Scope.of_topic(each)) for each in topic or ())]
    if not rights:
        raise wrong_use("--produce", "give --produce, --consume or --admin")
    if not scopes:
        raise wrong_use("--scope", "give --scope or --topic; --scope '*' is everything")
    Grant.parse(rights, scopes, producer, subscription)
    lasts = None if expires is None else _seconds(expires)
    made = node.ask(
        lambda asked: asked.create_token(
            name, rights=rights, scopes=scopes, producer=producer, subscription=subscription, lasts=lasts
        )
    )
    node.show({**token_object(made.info), "secret": made.secret}, made.secret)
    if not node.as_json:
        note(f"token {made.info.token} ({name}). It is not shown again")


def _seconds(text: str) -> float | None:
    setting = Setting(name="expires", kind=SettingKind.SECONDS, low=1)
    try:
        value = setting.read(text)
    except BadSetting:
        raise wrong_use("--expires", "write 12h or 30d, one second at least") from None
    return None if value is None else float(value)


@command(token_app, "list")
def list_(node: Node) -> None:
    """List the tokens within the scope of your token, revoked ones too."""
    infos = node.ask(lambda admin: admin.list_tokens())
    rows = [{**_row(info), "rights": ",".join(info.rights), "scopes": " ".join(info.scopes)} for info in infos]
    node.table([token_object(info) for info in infos], "token name rights scopes state connections", rows)


@command(token_app)
def show(node: Node, which: Which) -> None:
    """Show a token: its rights, its scope, and how long it is valid. The secret is not shown."""
    info = node.ask(lambda admin: admin.show_token(which))
    names = "token name rights scopes producer subscription state created last_used=used_at connections"
    node.show(token_object(info), lambda: print_fields(picked(_row(info), names)))


def _row(info: TokenInfo) -> dict[str, Any]:
    """A token as a person reads it."""
    state = "valid"
    if info.revoked_at_us is not None:
        state = f"revoked {iso_time(info.revoked_at_us)}"
    elif info.expires_at_us is not None:
        state = f"until {iso_time(info.expires_at_us)}"
    return {
        **token_object(info),
        "rights": ", ".join(info.rights),
        "scopes": ", ".join(info.scopes),
        "state": state,
        "created": f"{iso_time(info.created_at_us)} by {info.created_by or 'a client without a token'}",
    }


@command(token_app)
def revoke(node: Node, which: Which, yes: Yes = False) -> None:
    """Revoke a token, and disconnect the clients that use it."""
    which = without_secret(which)
    if not yes:
        info = node.ask(lambda admin: admin.show_token(which))
        confirm(f"Revoke token {info.token} ({info.name}, {info.connections} connections)?")
    node.ask(lambda admin: admin.revoke_token(which))
    node.show({"token": which, "revoked": True}, f"revoked {which}")


# --- the log of administration ----------------------------------------------------------------------


@log_app.callback()
def _log() -> None:
    pass


@command(log_app)
def admin(
    node: Node,
    count: Annotated[int, option("--count", "N", "Print the last N records.", "-n", min=1)] = 100,
) -> None:
    """Print who changed what on the node, oldest first."""
    records = [administered_object(each) for each in node.ask(lambda asked: asked.list_admin_log(count))]
    if node.as_json:
        for each in records:
            print(json_text(each))
    else:
        print_objects(records, "at token client operation what result detail")
