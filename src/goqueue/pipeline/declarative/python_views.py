"""Views that are functions of the user: `python: module:function`, with DataFrames by the names of its parameters.

This runs the user's code, which is what it is for: a pipeline file is as trusted as a program. The module is looked for beside the
file first, and goes to the workers by value, so that it need not be installed there.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from goqueue.pipeline.declarative.checks import Inputs, sql_inputs
from goqueue.pipeline.declarative.problems import near
from goqueue.pipeline.declarative.spec import PipelineSpec, ViewSpec
from goqueue.pipeline.errors import PipelineError

Transform = Callable[..., DataFrame]


def find_function(name: str, folder: Path) -> Transform:
    """The function that `module:function` names."""
    module_name, _, function_name = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise PipelineError(
            f"module {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, function_name, None)
    if not inspect.isfunction(found):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise PipelineError(
            f"module {module_name} has no function {function_name}; {near(function_name, functions)}"
        )
    if Path(getattr(module, "__file__", None) or "/").resolve().is_relative_to(folder.resolve()):
        register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    return found


def parameters_of(function: Transform) -> Sequence[str]:
    """Those without a default: each is a source or a view."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]


def inputs_with(functions: dict[str, Transform]) -> Inputs:
    """What views read, SQL's and Python's. `functions` are by the view's name."""

    def inputs(view: ViewSpec) -> Sequence[str]:
        function = functions.get(view.name)
        return sql_inputs(view) if function is None else parameters_of(function)

    return inputs


def functions_of(pipeline: PipelineSpec, folder: Path) -> dict[str, Transform]:
    return {
        view.name: find_function(view.python, folder) for view in pipeline.views if view.python is not None
    }
