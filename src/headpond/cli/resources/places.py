"""``headpond tenant|product|component create|list|show|set|unset|delete``: the same for three levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli import completion
from headpond.cli.ask import ask, confirm
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url, Yes
from headpond.cli.output import (
    iso_time,
    note,
    print_fields,
    print_json,
    print_result,
    print_table,
    reports_errors,
)
from headpond.cli.resources.settings import Assignments, Names, SetOption, print_settings, read_assignments
from headpond.shapes.resources import place_deleted_object, place_object

if TYPE_CHECKING:
    from headpond.client.admin import Admin
    from headpond.wire.control.catalog import PlaceDeleted, PlaceInfo


SHOWN_MAX = 20
NewPlace = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The full name; parts that are left out are `default`."),
]
PlaceName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The full name; parts that are left out are `default`.",
        autocompletion=completion.places,
    ),
]
Recursive = Annotated[
    bool, typer.Option("--recursive", help="Also delete everything in it.", show_default=False)
]


def place_app(level: str, form: str) -> typer.Typer:
    """The commands of one level; ``form`` is how its names are written."""
    app = typer.Typer(
        help=f"Create, list, change and delete {level}s ({form}).",
        no_args_is_help=True,
        rich_markup_mode=None,
    )

    @app.command(help=f"Create a {level}.")
    @reports_errors
    def create(
        place: NewPlace,
        settings: SetOption = None,
        url: Url = DEFAULT_URL,
        token: Token = None,
        as_json: AsJson = False,
    ) -> None:
        values = read_assignments(settings)
        info = ask(url, token, lambda admin: _call(admin, "create", level)(place, settings=values))
        print_result(place_object(info), f"created {info.level} {info.place}", as_json=as_json)

    @app.command("list", help=f"List all {level}s.")
    @reports_errors
    def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
        infos: list[PlaceInfo] = ask(url, token, lambda admin: _call(admin, "list", f"{level}s")())
        if as_json:
            print_json([place_object(info) for info in infos])
            return
        rows = [(info.place, info.places, info.topics, iso_time(info.created_at_us)) for info in infos]
        print_table((level.upper(), "PLACES", "TOPICS", "CREATED"), rows)

    @app.command(help=f"Show a {level}: what it contains, and every setting with its origin.")
    @reports_errors
    def show(place: PlaceName, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
        info: PlaceInfo = ask(url, token, lambda admin: _call(admin, "show", level)(place))
        if as_json:
            print_json(place_object(info, whole=True))
        else:
            _print(info)

    @app.command(
        "set", help=f"Change settings of a {level}; its topics inherit them. The value `none` removes a limit."
    )
    @reports_errors
    def set_(
        place: PlaceName,
        assignments: Assignments,
        url: Url = DEFAULT_URL,
        token: Token = None,
        as_json: AsJson = False,
    ) -> None:
        values = read_assignments(assignments)
        info = ask(url, token, lambda admin: _call(admin, "set", level)(place, **values))
        print_result(
            place_object(info), f"set {', '.join(values)} at {info.level} {info.place}", as_json=as_json
        )

    @app.command(help=f"Remove settings from a {level}, so that it inherits them again.")
    @reports_errors
    def unset(
        place: PlaceName,
        names: Names,
        url: Url = DEFAULT_URL,
        token: Token = None,
        as_json: AsJson = False,
    ) -> None:
        info = ask(url, token, lambda admin: _call(admin, "unset", level)(place, *names))
        print_result(
            place_object(info), f"unset {', '.join(names)} at {info.level} {info.place}", as_json=as_json
        )

    @app.command(help=f"Delete a {level}; with contents only if --recursive is given. This cannot be undone.")
    @reports_errors
    def delete(
        place: PlaceName,
        recursive: Recursive = False,
        yes: Yes = False,
        url: Url = DEFAULT_URL,
        token: Token = None,
        as_json: AsJson = False,
    ) -> None:
        if recursive and not yes:
            _confirm(ask(url, token, lambda admin: _call(admin, "show", level)(place)))
        gone = ask(url, token, lambda admin: _call(admin, "delete", level)(place, recursive=recursive))
        _print_deleted(gone, as_json)

    return app


def _call(admin: Admin, verb: str, noun: str) -> Any:
    """``admin.create_tenant`` and the like: the three levels differ only in their names."""
    return getattr(admin, f"{verb}_{noun}")


def _print(info: PlaceInfo) -> None:
    print_fields(
        [
            (info.level, info.place),
            ("created", iso_time(info.created_at_us)),
            ("places in it", info.places),
            ("topics", info.topics),
            ("entries", info.entries),
            ("bytes", info.bytes),
            ("subscriptions", info.subscriptions),
            ("producers", info.producers),
            *([] if info.level != "tenant" else _usage(info)),
        ]
    )
    for title, names in (("places in it", info.place_list), ("topics", info.topic_list)):
        if names:
            print(f"\n{title}")
            print(_listed(names))
    print()
    print_settings(info.settings)


def _usage(info: PlaceInfo) -> list[tuple[str, object]]:
    return [
        ("connections", info.connections),
        ("slowed by quota", info.quota_slowed),
        ("refused by quota", info.quota_refused),
    ]


def _listed(names: list[str]) -> str:
    more = [f"  … and {len(names) - SHOWN_MAX:,} more"] if len(names) > SHOWN_MAX else []
    return "\n".join([*(f"  {name}" for name in names[:SHOWN_MAX]), *more])


def _confirm(info: PlaceInfo) -> None:
    holds = (
        f"{info.places:,} places, {info.topics:,} topics, {info.entries:,} messages ({info.bytes:,} bytes), "
        f"{info.subscriptions:,} subscriptions and {info.producers:,} producers"
    )
    note(f"{info.level} {info.place} holds {holds}")
    for names in (info.place_list, info.topic_list):
        if names:
            note(_listed(names))
    confirm(f"Delete {info.place} with all of this?")


def _print_deleted(gone: PlaceDeleted, as_json: bool) -> None:
    if as_json:
        print_json(place_deleted_object(gone))
        return
    below = (
        f" with {len(gone.places):,} places and {len(gone.topics):,} topics"
        if gone.topics or gone.places
        else ""
    )
    print(f"deleted {gone.level} {gone.place}{below}")


tenant_app = place_app("tenant", "TENANT")
product_app = place_app("product", "TENANT/PRODUCT")
component_app = place_app("component", "TENANT/PRODUCT/COMPONENT")
