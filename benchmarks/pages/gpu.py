"""What benchmarks/gpu.py measures."""

from .files import command, commit, labelled, notes, read
from .speed import steps
from .tables import OTHER_PAGE, compared, line, line_on_all, table, three

STEPS = {
    "gpu_step_resnet18": "`resnet18`",
    "gpu_step_resnet18_own_heads": '`resnet18`, `expert_heads="own"`',
    "gpu_step_resnet34_maxpool": "`ResNet(34, max_pool=True)`",
}
HOURS = {
    "gpu_hours_moco": "MoCo, spherical k-means",
    "gpu_hours_mice_random": "MiCE from random weights, as in the paper",
    "gpu_hours_mice": "MiCE by default",
}


def page():
    text = (
        "One whole step, 32 x 32 colour, B = 256, V = 16,384, K = 10, by CUDA graphs, "
        "which the bare networks do not use."
    )
    return [
        "# On a GPU",
        f"{OTHER_PAGE}. The defaults train a ResNet-18.",
        environment(),
        *steps(STEPS, text),
        *hours(),
        *compared("gpu_cifar10_jpeg"),
    ]


def environment():
    """The machine, and how its tests ended."""
    kept, tests = read("gpu_environment"), read("gpu_tests")
    found, counts = kept["results"], tests["results"]
    said = [kept["machine"]]
    if "memory_gb" in found:
        said.append(f"{found['memory_gb']:.0f} GB of GPU memory")
    said.append(f"CUDA {found['cuda']}, torch {kept['versions']['torch']}")
    outcomes = [f"{counts[o]} {o}" for o in ("passed", "failed") if counts[o]]
    said.append(f"tests in {counts['seconds']:.0f} s: {', '.join(outcomes)}")
    return line(f"{'; '.join(said)}.", notes({"": tests}), command(kept))


def hours():
    """The fits of core hours once more, with another seed."""
    files = labelled(HOURS)
    rows = [
        (label, three(kept["results"]["end"]), commit(kept))
        for label, kept in files.items()
    ]
    head = ("**Another seed of the core hours**", "ACC, NMI and ARI", "commit")
    text = (
        "The same numbers of epochs on all 60,000 images, also with `resnet-small`, in "
        "bfloat16. The fits ran at the same time and took about three minutes."
    )
    return table(head, *rows), line_on_all(files, text)
