"""`fg.fit` with the options of a model, of SGD and of `fit` side by side, for tests that vary them."""

from dataclasses import fields

import fedgauss as fg

_SGD = {part.name for part in fields(fg.SGD)}
_MODEL = {part.name for part in fields(fg.Model)}


def any_fit(frame, target, client, family=None, features=None, formula=None, **options):
    options |= {"family": family, "features": features, "formula": formula}
    passed = {name: options.pop(name) for name in list(options) if name in _SGD}
    if options.get("solver") == "sgd":
        options["solver"] = fg.SGD(**passed)
    model = {name: options.pop(name) for name in list(options) if name in _MODEL}
    model = {name: value for name, value in model.items() if value is not None}
    return fg.fit(frame, fg.Model(target, **model), client, **options)
