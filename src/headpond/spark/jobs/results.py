"""A folder of results: written beside its place, then put there in one step, and never over another's."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headpond.model.errors import BadRequest


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Raises if there is something that results would replace."""
    if folder.is_dir():
        if any(folder.iterdir()) and not overwrite:
            raise BadRequest(
                f"{folder} is not empty", hint="Name another folder, or add --overwrite to replace all of it."
            )
    elif folder.exists():
        raise BadRequest(f"{folder} is no folder", hint="Name a folder; it is made if it is not there.")


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` when all went well."""
    beside = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise BadRequest(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        yield beside
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    except OSError as error:
        raise BadRequest(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
