"""What `import sk_mice` costs, and who may import whom."""

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import sk_mice

PACKAGE = Path(sk_mice.__file__).parent


# ------------------------------------------------------------------ lazy names


def run(code, **environment):
    """Run `code` in a fresh interpreter, as this one has long imported torch."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "EAGER_IMPORT": "", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import sk_mice; dir(sk_mice)",
        "from sk_mice import ClassificationEM, SphericalKMeans",
        "from sk_mice import metrics",
        "import sk_mice.metrics",
        "from sk_mice import model_selection",
    ],
)
def test_torch_is_not_imported(statement):
    run(f"{statement}; import sys; assert not {{'torch', 'skorch'}} & set(sys.modules)")


def test_import_adds_little_to_sklearn():
    seconds = run(
        "import sklearn, time; start = time.perf_counter(); import sk_mice; "
        "print(time.perf_counter() - start)"
    )
    assert float(seconds) < 0.3


@pytest.mark.parametrize("name", sk_mice.__all__)
def test_public_name_resolves(name):
    assert getattr(sk_mice, name) is getattr(sk_mice, name)
    assert name in dir(sk_mice)


def test_star_import_brings_every_public_name():
    names = {}
    exec("from sk_mice import *", names)
    assert set(sk_mice.__all__) <= set(names)


@pytest.mark.parametrize(
    "name", ["ClassificationEM", "MiCEClustering", "MoCo", "SphericalKMeans"]
)
def test_estimator_is_pickled_by_reference(name):
    cls = getattr(sk_mice, name)
    assert pickle.loads(pickle.dumps(cls)) is cls


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'sk_mice' has no attribute 'nothing'"):
        sk_mice.nothing  # noqa: B018


def test_eager_import_loads_everything():
    run("import sk_mice, sys; assert 'torch' in sys.modules", EAGER_IMPORT="1")


# ------------------------------------------------------------ who imports whom

# What a file may import of ours; a file that is not listed may import what it needs
# within the rules below the table. Names are module paths without `sk_mice.`.
MAY_IMPORT = {
    "metrics": set(),
    "datasets": {"_bars", "datasets._decoding", "datasets._folder"},
    "datasets._decoding": set(),
    "datasets._folder": set(),
    "_bars": set(),
    "_identity": set(),
    "_interrupt": set(),
    "recipes": set(),
    "_constraints": set(),
    "_checkpoint": {"_engine.storage", "_identity"},
    "_check_input": {"_engine.arrays", "_engine.samples"},
    "_spherical_kmeans": {
        "_constraints",
        "_cosine_kmeans",
        "_cosine_rows",
        "_engine.arrays",
    },
    "_cosine_kmeans": {"_cosine_rows", "_engine.arrays"},
    "_cosine_rows": set(),
    "_classification_em": {
        "_constraints",
        "_cosine_kmeans",
        "_cosine_rows",
        "_engine.arrays",
    },
    "_resolve": {"_engine.samples"},
    "_engine.ambient": set(),
    "_engine.attention": set(),
    "_engine.objective": {"_engine.attention"},
    "_engine.arrays": set(),
    "_engine.samples": {"_engine.arrays"},
    "_engine.neighbors": {"_engine.samples"},
    "_engine.views": {
        "_engine.arrays",
        "_engine.views.geometry",
        "_engine.views.images",
        "_engine.views.vectors",
    },
    "_engine.views.images": {"_engine.views.colours", "_engine.views.geometry"},
    "_engine.views.vectors": {"_engine.views.images"},
    "_engine.views.colours": set(),
    "_engine.views.geometry": set(),
    "_engine.views.invariances": {"_engine.samples", "_engine.views.geometry"},
    "_engine.backbones": set(),
    "_engine.size": {"_engine.ambient", "_engine.backbones"},
    "_engine.schedule": {"_engine.arrays"},
    "_engine.passes": set(),
    "_engine.memory": set(),
    "_engine.storage": set(),
    "_engine.model": {"_engine.objective", "_engine.backbones"},
    "_engine.inference": {"_engine.model", "_engine.objective"},
    "_engine.trainer": {
        "_engine.ambient",
        "_engine.model",
        "_engine.objective",
        "_engine.passes",
        "_engine.views",
        "_engine.samples",
    },
}
NO_TORCH = {
    "_constraints",
    "_engine.arrays",
    "_bars",
    "_interrupt",
    "metrics",
    "model_selection",
    "recipes",
    "datasets._decoding",
    "datasets._folder",
    "_spherical_kmeans",
    "_cosine_kmeans",
    "_cosine_rows",
    "_classification_em",
}


def module_name(path):
    """`_engine/model.py` -> "_engine.model", `_engine/__init__.py` -> "_engine"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(name):
    """Full names of the modules that a file imports, wherever in it that happens."""
    path = FILES[name]
    package = ("sk_mice", *path.relative_to(PACKAGE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # One dot is the file's own package, each further dot one above it.
            base = package[: len(package) + 1 - node.level] if node.level else ()
            source = ".".join((*base, *filter(None, [node.module])))
            for alias in node.names:
                # `from package import x` imports a module if x is one.
                inner = f"{source}.{alias.name}"
                found.add(inner if inner.removeprefix("sk_mice.") in FILES else source)
    return found


def ours(name):
    """Modules of this package that a file imports, without `sk_mice.`."""
    found = {module for module in imports(name) if module.split(".")[0] == "sk_mice"}
    return {module.removeprefix("sk_mice").removeprefix(".") for module in found}


def test_the_reader_of_imports_sees_them():
    assert {"_mice", "_moco", "_spherical_kmeans", "metrics", "datasets"} <= ours("")
    assert {"importlib", "os", "typing"} <= imports("")


@pytest.mark.parametrize("name", sorted(MAY_IMPORT.keys() & FILES.keys()))
def test_file_imports_only_what_it_may(name):
    assert ours(name) <= MAY_IMPORT[name]


@pytest.mark.parametrize("name", sorted(n for n in FILES if n.startswith("_engine")))
def test_engine_knows_no_estimator(name):
    assert all(module.startswith("_engine.") for module in ours(name))


@pytest.mark.parametrize("name", sorted(NO_TORCH & FILES.keys()))
def test_file_does_without_torch(name):
    roots = {module.split(".")[0] for module in imports(name)}
    assert not roots & {"torch", "torchvision", "skorch"}


@pytest.mark.parametrize("name", sorted(FILES.keys() - {"__main__"}))
def test_nothing_imports_the_command_line(name):
    # `__main__` is how Python starts it.
    assert "cli" not in ours(name)
