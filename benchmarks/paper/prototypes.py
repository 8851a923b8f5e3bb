"""How alike gating and expert prototypes are: the largest cosine of any pair.

In absolute value: the paper reports that it is below 0.25.

    python benchmarks/paper/prototypes.py --scale paper --path data
    python benchmarks/paper/prototypes.py --scale cpu-minutes --data digits
"""

import statistics

import literature
import numpy as np
from _study import study


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar10"])
    for task in this.tasks():
        for seed in this.options.seeds:
            model = task.mice(seed).fit(task.X)
            cosines = np.abs(model.expert_prototypes_ @ model.gating_prototypes_.T)
            row = task.row(seed, model)
            row["largest_cosine"] = float(cosines.max())
            row["mean_cosine"] = float(cosines.mean())
            this.keep(task, "MiCE", row)
        rows = this.results[task.name]["MiCE"]
        largest = [row["largest_cosine"] for row in rows]
        print(
            f"{task.name}: largest |cosine| {statistics.mean(largest):.3f} (mean), "
            f"{max(largest):.3f} (over seeds); the paper: less than "
            f"{literature.LARGEST_COSINE}"
        )


if __name__ == "__main__":
    main()
