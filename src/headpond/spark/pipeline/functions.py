"""A step's Python function, found by its name: ``package.module:function`` or ``file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headpond.spark.pipeline.reading import Function


def find_function(told: str, folder: Path, spark: SparkSession | None = None) -> Function:
    """``folder`` is the pipeline's: files are looked for there, and modules there first.

    A file is also sent to the workers of ``spark``: functions in it may run there.
    """
    place, _, name = told.rpartition(":")
    module = _file(folder / place, spark) if place.endswith(".py") else _module(place, folder)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise BadRequest(
            f"{place} has no function {name}", hint=f"It has {', '.join(names[:20]) or 'no function at all'}."
        )
    function: Function = found
    return function


def _module(name: str, folder: Path) -> Any:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadRequest(
                f"there is no module {name}", hint="Install it, or put it beside the pipeline's file."
            ) from error
        raise BadRequest(f"module {name} does not load: {error}") from error
    except Exception as error:  # it is the user's code: whatever it raises is told
        raise BadRequest(f"module {name} does not load: {type(error).__name__}: {error}") from error


def _file(path: Path, spark: SparkSession | None) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BadRequest(f"there is no file {path.name}", hint="Its path starts from the pipeline's folder.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # under this name workers import it, too
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise BadRequest(f"{path.name} does not load: {type(error).__name__}: {error}") from error
    if spark is not None:
        spark.sparkContext.addPyFile(str(path))
    return module
