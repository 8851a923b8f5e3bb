"""Speed: training steps, predictions, files, several processes, k-means."""

from .files import command, commit, labelled, notes, read
from .tables import line, line_on, table

STEPS = {
    "train_step_cpu_resnet-small_10": "`resnet-small`, 28 x 28 grey, B = 256",
    "train_step_cpu_resnet-small_10_float32": "`resnet-small`, 28 x 28 grey, B = 256",
    "train_step_cpu_resnet-small-maxpool_10_float32": (
        "`SmallResNet(max_pool=True)`, 28 x 28 grey, B = 256"
    ),
    "train_step_cpu_resnet18_10": "`resnet18`, 32 x 32 colour, B = 64",
    "train_step_cpu_resnet-small_1000": "`resnet-small`, K = 1,000, B = 256",
    "train_step_cpu_resnet-small_10_own_heads": 'as the first, `expert_heads="own"`',
    "train_step_cpu_resnet-small_10_student_view": "as the first, no view for the gate",
}
WITHOUT_GRAPHS = "whole step, without graphs"
PREDICTIONS = {
    "predict_cpu": "`resnet-small`, 60,000 images",
    "predict_cpu_maxpool": "`SmallResNet(max_pool=True)`, 60,000 images",
}


def speed():
    text = (
        "One whole step, 2 threads, V = 4,096, K = 10 where no other value is given. "
        "Bare networks are the forward and backward passes alone."
    )
    return [
        "## Speed",
        *steps(STEPS, text),
        *predictions(),
        *in_a_file(),
        *beside_others(),
        *several_processes(),
        *spherical_kmeans(),
    ]


def steps(labels, text):
    """A table of steps of training, and a line on it."""
    rows = []
    for name, label in labels.items():
        kept = read(name)
        result = kept["results"]
        paper = result["throughput_to_paper"]
        moco = result.get("ratio_to_moco")
        if WITHOUT_GRAPHS in result["seconds"]:
            share = result["seconds"]["whole step"] / result["seconds"][WITHOUT_GRAPHS]
            label += f", {share:.2f} times the step without graphs in the same run"
        rows.append(
            (
                f"{label}, {result['precision']}",
                milliseconds(result["seconds"]["whole step"]),
                f"{result['ratio_to_networks']:.2f}",
                f"{moco:.2f}" if moco else "",
                f"{paper:.2f}" if paper else "",
                f"{result['images_per_second']:,.0f}",
                commit(kept),
            )
        )
    head = ("**A training step**", "time", "time to that of its bare networks")
    head += ("time to a step of MoCo", "throughput to the paper's pseudocode")
    head += ("images a second", "commit")
    if not any(row[4] for row in rows):  # the pseudocode ran beside none of them
        head, *rows = (row[:4] + row[5:] for row in (head, *rows))
    return table(head, *rows), line_on(read(next(iter(labels))), text)


def milliseconds(seconds):
    return f"{1000 * seconds:,.{seconds < 0.05:d}f} ms"


def in_a_file():
    """How fast a fit and predictions are if X is in a file, and not in memory."""
    kept = read("memory_map")
    result = kept["results"]
    rows = [
        (
            f"`{what}`",
            f"{result['seconds']['memory'][what]:.1f} s",
            f"{result['seconds']['file'][what]:.1f} s",
            f"{result['throughput_to_memory'][what]:.2f}",
            commit(kept),
        )
        for what in ("fit", "predict")
    ]
    head = ("**X in a file**", "in memory", "in the file", "throughput to memory")
    text = (
        f"{result['bytes'] / 1e9:.1f} GB of float images, in the page cache, one "
        "thread. The network is a single layer, so that reading X takes most of the "
        "time."
    )
    return table((*head, "commit"), *rows), line_on(kept, text)


def beside_others():
    """What a busy core costs."""
    kept = read("busy")
    result = kept["results"]
    rows = [
        (
            name,
            *(f"{seconds[state]:.2f} s" for state in ("idle", "busy")),
            f"{result['busy_to_idle'][name]:.1f}",
            commit(kept),
        )
        for name, seconds in result["seconds"].items()
    ]
    head = ("**One of 2 cores is busy**", "idle", "busy", "busy to idle", "commit")
    text = (
        "512 images of 32 x 32, or 2,048 vectors of 1,280 values by "
        "`ClassificationEM`, on 2 threads if no other number is given. The busy core "
        "runs an endless loop in another process. In training, threads share every "
        "operation and wait for each other, until the fit goes on with one thread "
        "after 10 s. Otherwise, each thread computes a batch of its own."
    )
    return table(head, *rows), line_on(kept, text)


def several_processes():
    """What two processes bring, and what to expect of more GPUs."""
    kept = read("distributed")
    result = kept["results"]
    rows = [
        (
            f"efficiency of {name}",
            *(f"{result['efficiency'][by][key]:.2f}" for by in ("clock", "cores")),
            commit(kept),
        )
        for name, key in (
            ("a whole step", "step"),
            ("its bare networks", "networks"),
            ("the step, to that of the networks", "step to networks"),
        )
    ]
    expected = ", ".join(
        f"{row['efficiency']:.2f} for {row['gpus']} ({row['fixed']} fixed)"
        for row in result["expected"]
        if row["gpus"] > 1
    )
    sent = ", ".join(
        f"{n / 1e6:.2f} MB of {name}" for name, n in result["bytes"].items()
    )
    text = (
        "Efficiency is the time of one process over twice that of two. A step sends "
        f"{sent}. With the speeds of GPUs and links that the command assumes, none of "
        f"them measured, the efficiency of GPUs would be {expected}."
    )
    head = ("**Two processes on 2 cores**", "by the clock", "by seconds of the cores")
    return table((*head, "commit"), *rows), line_on(kept, text)


def predictions():
    files = labelled(PREDICTIONS)
    rows = [
        (
            label,
            f"{kept['results']['seconds']['predict']:.1f} s",
            f"{kept['results']['throughput_to_networks']:.2f}",
            f"{kept['results']['seconds']['predict_proba']:.1f} s",
            f"{kept['results']['predict_proba_to_networks']:.2f}",
            commit(kept),
        )
        for label, kept in files.items()
    ]
    share = "throughput to its bare networks"
    head = ("**Prediction**", "`predict`", share, "`predict_proba`", share, "commit")
    text = "K = 10, V = 4,096, 2 threads."
    return table(head, *rows), line(text, notes(files), command(read("predict_cpu")))


def spherical_kmeans():
    kept = read("spherical_kmeans")
    cases = {}
    for result in kept["results"]:
        rows, features = result["shape"]
        case = f"{result['data']}, {rows:,} x {features:,}"
        ratio = f"{result['ratio_to_kmeans']:.2f}"
        if result["ratio_to_faiss"] is not None:
            ratio += f" (faiss {result['ratio_to_faiss']:.2f})"
        cases.setdefault(case, {})[result["n_clusters"]] = ratio
    many = sorted({k for case in cases.values() for k in case})
    rows = [
        (case, *(ratios.get(k, "") for k in many)) for case, ratios in cases.items()
    ]
    head = ("**SphericalKMeans**", *(f"K = {k:,}" for k in many))
    text = "Its time over that of scikit-learn's KMeans (and of faiss), with the same "
    text += f"centres and iterations, on 2 threads; commit {commit(kept)}."
    return table(head, *rows), line_on(kept, text)
