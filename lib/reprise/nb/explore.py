"""Sliders for a person at the notebook, and the same picture without one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from reprise.errors import RepriseError

# set by the front ends a person sits at: Jupyter Server for the kernels it starts, VS Code, Colab
FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG")
STEPS = 100  # positions of a slider over real numbers


def live() -> bool:
    """Whether a person is at the front end. REPRISE_WIDGETS=1 or 0 decides if it is set."""
    if (asked := os.environ.get("REPRISE_WIDGETS", "")) in ("0", "1"):
        return asked == "1"
    return any(name in os.environ for name in FRONT_ENDS)


def explore(fn: Callable[..., Any], **controls: Any) -> None:
    """Call `fn` with values a person can change, or once with the defaults where nobody is there.

        explore(draw, k=(3, 1, 9), strength=(0.6, 0.0, 1.0), rule=("soft", ["soft", "hard"]))

    Args:
        fn: draws its own figure or returns something to show; it should take well under 300 ms.
        controls: for each parameter of `fn` its default, then the ends of a range, or a list of choices. Whole
            numbers make a slider over whole numbers.

    Raises:
        RepriseError: a control that is no parameter of `fn`, or a default outside its range or choices.
    """
    parameters = inspect.signature(fn).parameters
    taken = [p.name for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY)]
    for name, control in controls.items():
        if name not in taken:
            raise RepriseError(f"control {name!r}: expected a parameter of {fn.__name__}: {', '.join(taken)}")
        if problem := _problem(control):
            raise RepriseError(f"{name}={control!r}: {problem}")
    if live():
        _panel(fn, controls)
    elif (result := fn(**{name: control[0] for name, control in controls.items()})) is not None:
        from IPython.display import display

        display(result)


def _problem(control: Any) -> str:
    """Why this is no control, or ""."""
    match control:
        case (default, [_, *_] as choices) if isinstance(choices, list):
            return "" if default in choices else f"expected a default among {choices}"
        case (int() | float() as default, int() | float() as low, int() | float() as high):
            return "" if low <= default <= high else f"expected a default in [{low}, {high}]"
    return "expected (default, low, high) or (default, [choices])"


def _panel(fn: Callable[..., Any], controls: dict[str, Any]) -> None:
    import ipywidgets
    from IPython.display import display

    widgets = {name: _widget(ipywidgets, name, control) for name, control in controls.items()}
    display(ipywidgets.VBox([*widgets.values(), ipywidgets.interactive_output(fn, widgets)]))


def _widget(ipywidgets: Any, name: str, control: Any) -> Any:
    # drawn when the handle is released: a figure for every position in between would lag behind
    common = {"value": control[0], "description": name.replace("_", " "), "continuous_update": False}
    if len(control) == 2:
        del common["continuous_update"]
        return ipywidgets.Dropdown(options=control[1], **common)
    _, low, high = control
    if all(isinstance(value, int) for value in control):
        return ipywidgets.IntSlider(min=low, max=high, **common)
    return ipywidgets.FloatSlider(min=low, max=high, step=(high - low) / STEPS, **common)
