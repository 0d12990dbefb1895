"""``python``: a function of the user's, named ``package.module:function`` or ``file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.model.errors import BadRequest, HeadpondError
from headpond.spark.pipeline.definition import Function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def call_function(name: str, function: Function, rows: DataFrame) -> DataFrame:
    """What the function returns for the rows; an exception of the user's code becomes ``BadRequest``."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    try:
        result = function(rows)
    except (HeadpondError, PySparkException):
        raise
    except Exception as error:
        raise BadRequest(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame):
        raise BadRequest(
            f"{name} returned {type(result).__name__}", hint="A step's function returns a DataFrame."
        )
    return result


def find_function(place_and_name: str, folder: Path, spark: SparkSession) -> Function:
    """Looks for files in ``folder``, the pipeline's, and for modules there first.

    Sends a file to the workers of ``spark`` as well: functions in it may run there.
    """
    place, _, name = place_and_name.rpartition(":")
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
    except Exception as error:  # the user's code may raise anything
        raise BadRequest(f"module {name} does not load: {type(error).__name__}: {error}") from error


def _file(path: Path, spark: SparkSession) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BadRequest(f"there is no file {path.name}", hint="Name it relative to the pipeline's folder.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # workers import it under this name too
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise BadRequest(f"{path.name} does not load: {type(error).__name__}: {error}") from error
    spark.sparkContext.addPyFile(str(path))
    return module
