"""What `import sk_mice` costs, and which file imports which."""

import ast
import operator
import os
import pickle
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from shared import raising

import sk_mice
from sk_mice._lazy import attach

PACKAGE = Path(sk_mice.__file__).parent
ESTIMATORS = [
    *("ClassificationEM", "MiCEClustering", "MoCo", "NeighborMixture"),
    "SphericalKMeans",
]
HEAVY = {"torch", "torchvision", "skorch", "safetensors"}  # each imports torch

# What each file imports of ours, and of HEAVY. A package stands for all of its files.
# The engine knows no estimator; what has no word of HEAVY works without torch, unless
# it imports a file that has one.
IMPORTS = {
    "": "_classification_em _lazy _mice _moco _neighbor_mixture _persistence "
    "_show_versions _spherical_kmeans ablations augmentation backbones datasets "
    "features inspection metrics model_selection recipes",
    # estimators
    "_mice": "torch _base _constraints _empty_clusters _engine _start",
    "_moco": "_base",
    "_base": "torch _busy_cores _fitting _check_input _checkpoint _constraints _device "
    "_engine _identity _interruption _callbacks _freeze _output _progress_bar "
    "_short_names _task _words augmentation backbones",
    "_classification_em": "_blas _check_rows _fitting _constraints _cosine_kmeans "
    "_directions _engine.warn",
    "_neighbor_mixture": "torch _busy_cores _check_rows _classification_em "
    "_constraints _directions _engine _fitting _progress_bar",
    "_spherical_kmeans": "_check_rows _fitting _constraints _cosine_kmeans "
    "_engine.arrays _engine.warn",
    "ablations": "torch _constraints _engine _mice _moco",
    # their parts
    "_pipelines": "",
    "_short_names": "",
    "_start": "torch _classification_em _engine _pipelines",
    "_task": "torch _busy_cores _checkpoint _engine _interruption _progress_bar",
    "augmentation": "_constraints _engine.invariances",
    "backbones": "torch torchvision _constraints _engine.ambient _fitting _pretrained",
    "_fitting": "",
    "_busy_cores": "torch _engine.warn _words",
    "_callbacks": "skorch _busy_cores _interruption _progress_bar",
    "_check_input": "_engine.arrays _engine.dataset _engine.format _engine.warn",
    "_checkpoint": "skorch _engine.distributed _engine.files _engine.model "
    "_engine.storage _engine.warn",
    "_constraints": "",
    "_assignment": "",
    "_check_rows": "_engine.arrays _engine.dataset",
    "_blas": "",
    "_cosine_kmeans": "_assignment _blas _check_rows _engine.arrays",
    "_directions": "_blas",
    "_device": "torch _engine.format _engine.warn _memory",
    "_memory": "",
    "_empty_clusters": "torch _engine.inference",
    "_freeze": "torch",
    "_identity": "torch _engine.arrays _engine.dataset _show_versions",
    "_pretrained": "torch torchvision safetensors _engine.inference _engine.warn",
    "_output": "_engine.arrays _engine.maps",
    "_fitted_state": "torch _classification_em _engine _mice _moco _neighbor_mixture "
    "ablations _spherical_kmeans augmentation backbones datasets._decoding features",
    "_persistence": "torch _base _classification_em _device _engine _fitted_state "
    "_neighbor_mixture _show_versions _spherical_kmeans augmentation backbones "
    "features",
    "_progress_bar": "",
    "_words": "",
    "_show_versions": "torch _device",
    "_interruption": "",
    "_lazy": "",
    # beside them
    "datasets": "torchvision _constraints _engine.warn _progress_bar _words "
    "datasets._decoding datasets._file datasets._names datasets._paths",
    "datasets._decoding": "_constraints _engine.forks _engine.warn _memory _words "
    "datasets._opening",
    "datasets._names": "",
    "datasets._opening": "_engine.forks",
    "datasets._paths": "_words datasets._decoding",
    "datasets._file": "_engine.files _engine.maps",
    "features": "torch _fitting _check_input _constraints _device "
    "_engine.ambient _engine.format _engine.maps _engine.samples _engine.threads "
    "_output _pretrained _progress_bar datasets._decoding datasets._paths",
    # what people look at
    "inspection": "_lazy inspection._confusion inspection._embedding "
    "inspection._gallery inspection._report inspection._training",
    "inspection._confusion": "_words inspection._drawing metrics",
    "inspection._drawing": "_engine.dataset _pipelines datasets._paths metrics",
    "inspection._duplicates": "",
    "inspection._embedding": "_constraints _engine.arrays _pipelines "
    "inspection._drawing metrics",
    "inspection._gallery": "_constraints _engine.dataset _engine.format _pipelines "
    "_words datasets._paths inspection._drawing inspection._thumbnails metrics",
    "inspection._training": "_constraints _engine.arrays _pipelines "
    "inspection._drawing",
    "metrics": "_check_rows _cosine_kmeans _engine.arrays _engine.warn _pipelines",
    "model_selection": "_progress_bar _constraints _engine.dataset _engine.warn "
    "_interruption _pipelines inspection._drawing metrics",
    "recipes": "_constraints augmentation",
    "inspection._doubts": "_words inspection._drawing inspection._duplicates "
    "inspection._reading",
    "inspection._reading": "_directions _engine.nearest _pipelines inspection._drawing",
    "inspection._report": "_engine.arrays _engine.files _engine.nearest _pipelines "
    "_words metrics inspection._doubts inspection._drawing inspection._duplicates "
    "inspection._reading inspection._thumbnails _show_versions datasets._names",
    "inspection._thumbnails": "torch _engine.dataset _engine.format datasets._paths",
    # the command line, which nothing imports
    "__main__": "cli",
    "cli": "_interruption _words _cli.commands _cli.terminal",
    "_cli": "",
    "_cli.choosing": "_words _cli.fitting _cli.images _cli.results _cli.terminal "
    "_engine.files _engine.warn model_selection",
    "_cli.commands": "_cli.choosing _cli.fitting _cli.scoring _cli.sorting _cli.using",
    "_cli.fitting": "torch _interruption _pretrained _show_versions _words "
    "_cli.images _cli.results _cli.sorting _cli.tables _cli.terminal _cli.together "
    "_device _engine.files _engine.samples _engine.warn augmentation "
    "datasets._decoding inspection._reading inspection._report inspection._thumbnails",
    "_cli.cores": "torch _busy_cores _cli.terminal _words",
    "_cli.images": "_words _cli.cores _cli.terminal _engine.files _engine.maps "
    "datasets datasets._paths features inspection._thumbnails",
    "_cli.naming": "_cli.results _cli.tables inspection._doubts inspection._reading",
    "_cli.placing": "_engine.files _progress_bar datasets._names",
    "_cli.results": "_engine.files _engine.maps datasets._names",
    "_cli.scoring": "_cli.tables _cli.terminal _words _engine.warn metrics",
    "_cli.sorting": "_cli.placing _cli.results _cli.tables _cli.terminal _engine.warn "
    "_words datasets datasets._names",
    "_cli.tables": "",
    "_cli.terminal": "_words",
    "_cli.together": "_engine.distributed",
    "_cli.using": "_words _cli.fitting _cli.images _cli.naming _cli.results "
    "_cli.tables _cli.terminal _engine.files inspection._report",
    # the engine
    "_engine": "",
    "_engine.distributed": "torch",
    "_engine.ambient": "torch _engine.forks",
    "_engine.arrays": "_engine.warn",
    "_engine.attention": "torch",
    "_engine.batches": "torch _engine.distributed _engine.samples",
    "_engine.colours": "torch",
    "_engine.forks": "",
    "_engine.format": "torch _engine.arrays",
    "_engine.geometry": "torch",
    "_engine.graphs": "torch",
    "_engine.inference": "torch _engine.ambient _engine.attention _engine.distributed "
    "_engine.model _engine.threads",
    "_engine.invariances": "torch _engine.geometry _engine.samples",
    "_engine.files": "",
    "_engine.maps": "_engine.files",
    "_engine.model": "torch _engine.objective",
    "_engine.nearest": "_engine.warn",
    "_engine.neighbor_gate": "torch _engine.optimizers",
    "_engine.neighbors": "torch _engine.arrays _engine.distributed _engine.nearest "
    "_engine.samples",
    "_engine.objective": "torch _engine.attention",
    "_engine.dataset": "_engine.arrays",
    "_engine.optimizers": "torch",
    "_engine.order": "torch",
    "_engine.samples": "torch _engine.arrays _engine.format _engine.maps _engine.order "
    "_engine.threads",
    "_engine.schedule": "",
    "_engine.threads": "torch",
    "_engine.statistics": "torch _engine.distributed _engine.objective",
    "_engine.storage": "torch safetensors _engine.files _engine.warn",
    "_engine.trainer": "torch skorch _engine.ambient _engine.batches "
    "_engine.distributed _engine.graphs _engine.objective _engine.optimizers "
    "_engine.samples _engine.schedule _engine.statistics _engine.storage _engine.warn",
    "_engine.views": "torch _engine.colours _engine.geometry",
    "_engine.warn": "",
}


def module_name(path):
    """`_engine/model.py` -> "_engine.model", `_engine/__init__.py` -> "_engine"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(name):
    """Our files, and packages of HEAVY, that a file imports, at any place in it."""
    package = ["sk_mice", *FILES[name].relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # One dot is the file's own package, each further dot one above it.
            base = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:  # a file of a package, or a name in a file
                inner = f"{source}.{alias.name}"
                found.add(inner if inner.removeprefix("sk_mice.") in FILES else source)
    ours = {module.removeprefix("sk_mice.") for module in found} & FILES.keys()
    return ours | {module.split(".")[0] for module in found} & HEAVY


def test_every_file_is_in_the_table():
    assert IMPORTS.keys() == FILES.keys()


@pytest.mark.parametrize("name", sorted(IMPORTS.keys() & FILES.keys()))
def test_file_imports_what_the_table_says(name):
    words, found = IMPORTS[name].split(), imports(name)
    covered = {m: [w for w in words if f"{m}.".startswith(f"{w}.")] for m in found}
    assert all(covered.values()), "a file imports what the table does not say"
    assert set(words) == set().union(*covered.values()), "the table says too much"


# ------------------------------------------------------------------ lazy names


WITHOUT_TORCH = """
import sys, time, numpy as np, sklearn
start = time.perf_counter()
import sk_mice
seconds = time.perf_counter() - start
dir(sk_mice)
from sk_mice import ClassificationEM, SphericalKMeans
from sk_mice import datasets, inspection, metrics, model_selection
from sk_mice.inspection import ClusterGalleryDisplay, EmbeddingDisplay
from sk_mice.inspection import MatchedConfusionDisplay, PosteriorDisplay
from sk_mice.inspection import TrainingDisplay
for estimator in ClassificationEM(2), SphericalKMeans(2):
    estimator.fit(np.eye(8)).predict(np.eye(8))
assert not {"torch", "torchvision", "skorch", "matplotlib"} & set(sys.modules)
print(seconds)
"""


def test_what_works_without_torch_does_not_import_it():
    environment = {**os.environ, "EAGER_IMPORT": ""}
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.3  # seconds, beside scikit-learn's


IN_A_NOTEBOOK = """
import sys
from types import SimpleNamespace
sys.modules["ipykernel.zmqshell"] = sys.modules["ipywidgets"] = None
sys.modules["IPython"] = SimpleNamespace(get_ipython=object)
import sk_mice._progress_bar
"""


def test_a_notebook_without_widgets_gets_no_warning():
    command = [sys.executable, "-W", "always::UserWarning", "-c", IN_A_NOTEBOOK]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_resolve():
    names = {}
    exec("from sk_mice import *", names)
    for name in sk_mice.__all__:
        assert getattr(sk_mice, name) is names[name]
        assert name in dir(sk_mice)
    for name in ESTIMATORS:
        assert pickle.loads(pickle.dumps(names[name])) is names[name]


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'sk_mice' has no attribute 'nothing'"):
        operator.attrgetter("nothing")(sk_mice)


def test_type_checkers_find_wrong_names(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    lazy = [FILES[""], FILES["inspection"]]
    code = tmp_path / "code.py"
    code.write_text("from sk_mice import MoCo, no\nfrom sk_mice.inspection import none")
    command = [sys.executable, "-m", "mypy", "--follow-imports=skip", *lazy, code]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = re.findall(r'Module "([\w.]+)" has no attribute "(\w+)"', done.stdout)
    assert found == [("sk_mice", "no"), ("sk_mice.inspection", "none")]


def test_a_library_that_fails_to_import_is_not_hidden(monkeypatch):
    fail = raising(AttributeError, "'NoneType' object has no attribute 'split'")
    load, _ = attach("sk_mice", {"Broken": "._broken"})
    monkeypatch.setattr("importlib.import_module", fail)
    monkeypatch.setattr(sk_mice, "__getattr__", load)
    with pytest.raises(ImportError, match=r"sk_mice.Broken needs fails: 'NoneType'"):
        exec("from sk_mice import Broken")


def test_eager_import_loads_everything(monkeypatch):
    monkeypatch.setenv("EAGER_IMPORT", "1")
    spec = spec_from_file_location(
        "eager", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    package = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "eager", package)
    try:
        spec.loader.exec_module(package)
        assert vars(package).keys() >= set(sk_mice.__all__)
    finally:
        for name in [name for name in sys.modules if name.startswith("eager.")]:
            del sys.modules[name]
