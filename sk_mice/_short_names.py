"""Parameters of the objects that short names stand for, as in ``backbone__width``."""

from sklearn.base import clone

__all__ = ["with_objects"]


def with_objects(estimator, params: dict, named: dict) -> dict:
    """Parameters to set, with an object for each short name whose parts they set.

    `named` has, for each parameter, the objects that a short name may stand for.
    ValueError if none of them has the parts.
    """
    params = dict(params)
    for name, objects in named.items():
        parts = {key.split("__")[1] for key in params if key.startswith(f"{name}__")}
        short = params.get(name, getattr(estimator, name))
        if not parts or not isinstance(short, str):
            continue
        for known in objects.get(short, ()):
            if parts <= known.get_params().keys():
                params[name] = clone(known)
                break
        else:
            raise ValueError(_no_such_part(name, parts, short, objects))
    return params


def _no_such_part(name, parts, short, objects) -> str:
    wanted = ", ".join(f"`{name}__{part}`" for part in sorted(parts))
    if short not in objects:
        known = ", ".join(map(repr, objects))
        return (
            f"{wanted}: `{name}` must be an object, or one of {known}; got {short!r}."
        )
    valid = {
        f"{name}__{part}" for known in objects[short] for part in known.get_params()
    }
    return (
        f"`{name}`={short!r} has no parameters {wanted}; it has "
        f"{', '.join(sorted(valid))}."
    )
