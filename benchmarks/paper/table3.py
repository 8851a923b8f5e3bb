"""Table 3: what MiCE is without each of its parts, left (1-4) and right (a-d).

Besides these the appendix's update of the expert prototypes by passes of their own,
which takes many times as long: leave it out with --rows "(" MiCE.

    python benchmarks/paper/table3.py --scale paper --path data
    python benchmarks/paper/table3.py --scale cpu-minutes --data digits
"""

import math

import literature
from _study import run_rows, study

ABLATIONS = {
    "MiCE": {},
    "(1) A3": {"kappa": math.inf},
    "(2) A4": {"expert_heads": "shared"},
    "(3) A3 + A4": {"kappa": math.inf, "expert_heads": "shared"},
    "(4) A5": {"expert_prototypes": None},
    "(a) no analytical update": {"expert_prototypes": "gradient"},
    "(b) no gradient update": {"expert_prototypes": "analytical"},
    "(c) uniform gating prototypes": {"gating_prototypes": "uniform"},
    "(d) learned gating prototypes": {"train_gating_prototypes": True},
    "appendix: gradient and passes": {"expert_prototypes": "passes"},
}


def row(changes):
    return lambda task, seed: task.mice(seed, **changes).fit(task.X)


def paper(task):
    if task.name == "cifar100-20":
        return {name: {"acc": acc} for name, acc in literature.TABLE_3.items()}
    return None


def main(argv=None):
    this = study(__doc__, __file__, argv, paper_sets=["cifar100-20"])
    rows = {name: row(changes) for name, changes in ABLATIONS.items()}
    run_rows(this, rows, paper)


if __name__ == "__main__":
    main()
