"""``headpond tenant|product|component create|list|show|set|unset|delete``: the same for three levels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from headpond.cli import completion
from headpond.cli.command import Node, command, confirm, group
from headpond.cli.options import Yes, argument, flag
from headpond.cli.output import note, picked, print_fields
from headpond.cli.resources.settings import Assignments, Names, SetOption, print_settings, read_assignments
from headpond.shapes.resources import place_deleted_object, place_object

if TYPE_CHECKING:
    import typer

    from headpond.client.admin import Admin
    from headpond.wire.control.catalog import PlaceInfo

SHOWN_MAX = 20
NAME_HELP = "The full name; parts that are left out are `default`."
NewPlace = Annotated[str, argument("NAME", NAME_HELP)]
PlaceName = Annotated[str, argument("NAME", NAME_HELP, completion.places)]
Recursive = Annotated[bool, flag("--recursive", "Also delete everything in it.")]


def place_app(level: str, form: str) -> typer.Typer:
    """The commands of one level; ``form`` is how its names are written."""
    app = group(f"Create, list, change and delete {level}s ({form}).")

    def call(admin: Admin, verb: str, noun: str = level) -> Any:
        """``admin.create_tenant`` and the like: the three levels differ only in their names."""
        return getattr(admin, f"{verb}_{noun}")

    @command(app, help_text=f"Create a {level}.")
    def create(node: Node, place: NewPlace, settings: SetOption = None) -> None:
        values = read_assignments(settings)
        info = node.ask(lambda admin: call(admin, "create")(place, settings=values))
        node.show(place_object(info), f"created {info.level} {info.place}")

    @command(app, "list", help_text=f"List all {level}s.")
    def list_(node: Node) -> None:
        infos = node.ask(lambda admin: call(admin, "list", f"{level}s")())
        node.table([place_object(info) for info in infos], f"{level} places topics created=created_at")

    @command(app, help_text=f"Show a {level}: what it contains, and every setting with its origin.")
    def show(node: Node, place: PlaceName) -> None:
        info = node.ask(lambda admin: call(admin, "show")(place))
        node.show(place_object(info, whole=True), partial(_print, info))

    @command(
        app,
        "set",
        help_text=f"Change settings of a {level}; its topics inherit them. The value `none` removes a limit.",
    )
    def set_(node: Node, place: PlaceName, assignments: Assignments) -> None:
        values = read_assignments(assignments)
        info = node.ask(lambda admin: call(admin, "set")(place, **values))
        node.show(place_object(info), f"set {', '.join(values)} at {info.level} {info.place}")

    @command(app, help_text=f"Remove settings from a {level}, so that it inherits them again.")
    def unset(node: Node, place: PlaceName, names: Names) -> None:
        info = node.ask(lambda admin: call(admin, "unset")(place, *names))
        node.show(place_object(info), f"unset {', '.join(names)} at {info.level} {info.place}")

    @command(
        app, help_text=f"Delete a {level}; with contents only if --recursive is given. This cannot be undone."
    )
    def delete(node: Node, place: PlaceName, recursive: Recursive = False, yes: Yes = False) -> None:
        if recursive and not yes:
            _confirm(node.ask(lambda admin: call(admin, "show")(place)))
        gone = node.ask(lambda admin: call(admin, "delete")(place, recursive=recursive))
        counts = f" with {len(gone.places):,} places and {len(gone.topics):,} topics"
        below = counts if gone.topics or gone.places else ""
        node.show(place_deleted_object(gone), f"deleted {gone.level} {gone.place}{below}")

    return app


def _print(info: PlaceInfo) -> None:
    names = f"{info.level} created=created_at places_in_it=places topics entries bytes subscriptions producers"
    if info.level == "tenant":
        names += " connections slowed_by_quota=quota_slowed refused_by_quota=quota_refused"
    print_fields(picked(place_object(info, whole=True), names))
    for title, places in (("places in it", info.place_list), ("topics", info.topic_list)):
        if places:
            print(f"\n{title}")
            print(_listed(places))
    print()
    print_settings(info.settings)


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


tenant_app = place_app("tenant", "TENANT")
product_app = place_app("product", "TENANT/PRODUCT")
component_app = place_app("component", "TENANT/PRODUCT/COMPONENT")
