"""Parameters of the objects that short names stand for, as in ``backbone__width``."""

import copy

from sklearn.base import clone


def with_objects(estimator, params: dict, named: dict) -> dict:
    """Parameters to set, with an object for each short name whose parts they set.

    `named` has, for each parameter, the objects that a short name may stand for. Where
    an object is there already, a copy takes its place, as others may hold it, too: all
    of the paper's recipes have one augmentation.
    ValueError if none of them has the parts, or the value of the parameter is neither
    an object with parameters nor a short name.
    """
    params = dict(params)
    for name, value in estimator.get_params(deep=False).items():
        parts = {key.split("__")[1] for key in params if key.startswith(f"{name}__")}
        value = params.get(name, value)
        if not parts:
            continue
        if hasattr(value, "get_params"):
            if name in named:
                params[name] = copy.copy(value)
            continue
        objects = named.get(name, {})
        found = objects.get(value, ()) if isinstance(value, str) else ()
        for known in found:
            if parts <= known.get_params().keys():
                params[name] = clone(known)
                break
        else:
            raise ValueError(_no_such_part(name, parts, value, objects, found))
    return params


def _no_such_part(name, parts, value, objects, found) -> str:
    wanted = ", ".join(f"`{name}__{part}`" for part in sorted(parts))
    if not found:
        known = f", or one of {', '.join(map(repr, objects))}" if objects else ""
        return (
            f"{wanted}: `{name}` must be an object with `get_params` and "
            f"`set_params`, as BaseEstimator has them{known}; got {value!r:.100}."
        )
    valid = [
        ", ".join(f"{name}__{part}" for part in sorted(known.get_params()))
        for known in found
    ]
    together = " together" if len(parts) > 1 < len(found) else ""
    return (
        f"`{name}`={value!r} has no parameters {wanted}{together}; it has "
        f"{'; or '.join(valid)}."
    )
