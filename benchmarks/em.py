"""What EM adds to its start: kinds of E-steps, of the experts' heads and of the gate.

The first stage (MoCo) of a data set and a seed is trained once and kept in a folder;
each variant continues from it. Results are written after every fit, and fits that they
hold are not repeated, so that a run can be cut off. Labels are used for scores alone.

    python benchmarks/em.py --data digits --folder first-stages
    python benchmarks/em.py --data fashion-mnist --epochs 24 --seeds 0 1 2
                            --what e-steps --variants held "plain, hard"
    python benchmarks/em.py --data digits --start random --epochs 60
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from _common import (
    N_CLASSES,
    common_parser,
    limit_threads,
    load,
    print_table,
    read_json,
    results_path,
    scores,
    timed,
    unbalanced,
    write_json,
)
from sklearn.preprocessing import normalize

from sk_mice._base import moco_options
from sk_mice._engine import objective
from sk_mice._engine.inference import Inference
from sk_mice._engine.neighbors import mutual_neighbors
from sk_mice.ablations import AblationTrainer, PaperMiCE

N_VIEWS, N_NEIGHBORS = 4, 10


class FullEStep(AblationTrainer):
    """A trainer whose E-step comes once an epoch, over all samples."""

    e_step: dict

    def on_epoch_begin(self, net, dataset_train=None, **kwargs):
        super().on_epoch_begin(net, dataset_train=dataset_train, **kwargs)
        self.module_.eval()
        self.q_ = self._posterior(self.module_, dataset_train)
        self.module_.train()

    @torch.no_grad()
    def _posterior(self, model, samples):
        """Responsibilities of all samples, (N, K)."""
        inference, parts, features = Inference(model), [], []
        for batch in samples.in_order(512):
            views = [self.views.plain(batch)]
            if self.e_step.get("views") == "random":
                views = list(self.views(batch, N_VIEWS, self.generator))
            joints = [inference(view, "joint")[0] for view in views]
            parts.append(torch.stack([objective.posterior(j) for j in joints]).mean(0))
            features.append(inference(views[0], "features")[0])
        q = torch.cat(parts)
        if self.e_step.get("neighbors"):
            rows = normalize(torch.cat(features).numpy())
            table = torch.from_numpy(mutual_neighbors(rows, N_NEIGHBORS)[0])
            q = (q + q[table].sum(dim=1)) / (1 + N_NEIGHBORS)
        if self.e_step.get("hard"):
            q = torch.nn.functional.one_hot(q.argmax(dim=1), q.shape[1]).to(q.dtype)
        return q

    def responsibilities(self, indices):
        return self.q_[indices]


@dataclass(frozen=True)
class Variant:
    """Changes of the default fit after its first stage."""

    heads: str = "own"
    gate_view: str = "own"
    kappa: float = 1.0
    more_epochs: float = 1.0  # of EM, as a factor
    e_step: dict | None = None
    rounds: int = 2
    held_share: float = 0.5


class FromFirstStage(PaperMiCE):
    """MiCE whose first stage is read from a file, or written to it."""

    _first_stage: Path
    _n_em: float
    _e_step: dict | None

    def _n_epochs(self):
        known = super()._n_epochs()
        return known | {"em": round(known["em"] * self._n_em)}

    def _start_from_moco(self, run, task):
        if not self._first_stage.exists():
            super()._start_from_moco(run, task)
            return
        kept = torch.load(self._first_stage, weights_only=False)  # our own file
        moco = self._build(task, run.seed, **moco_options())
        moco.load_state_dict(kept["weights"])
        run.history, run.stage = kept["history"], 1
        self._take_over(run, moco.eval(), task)

    def _take_over(self, run, moco, task):
        if not self._first_stage.exists():
            self._first_stage.parent.mkdir(parents=True, exist_ok=True)
            kept = {"weights": moco.state_dict(), "history": list(run.history)}
            torch.save(kept, self._first_stage)
        super()._take_over(run, moco, task)

    @property
    def _trainer_class(self):
        if self._e_step is None:
            return AblationTrainer
        return type("Trainer", (FullEStep,), {"e_step": self._e_step})


# -------------------------------------------------------------------------- variants

HEADS = {
    "own heads": Variant(),
    "shared head": Variant(heads="shared"),
    "shared head, student's view": Variant(heads="shared", gate_view="student"),
    # as many epochs as the time of own heads allows
    "shared head, student's view, twice": Variant(
        heads="shared", gate_view="student", more_epochs=2.0
    ),
}
E_STEPS = {
    "plain": {},
    "plain, hard": {"hard": True},
    "four views": {"views": "random"},
    "four views, hard": {"views": "random", "hard": True},
    "neighbours": {"neighbors": True},
    "neighbours, hard": {"neighbors": True, "hard": True},
}


def e_steps(heads, gate_view):
    shared = {"heads": heads, "gate_view": gate_view}
    found = {}
    for kappa in (1.0, 0.2):
        at = "" if kappa == 1.0 else f", kappa {kappa:g}"
        found[f"held{at}"] = Variant(kappa=kappa, **shared)
        found[f"batch, free{at}"] = Variant(
            kappa=kappa, rounds=1, held_share=0.0, **shared
        )
        for name, e_step in E_STEPS.items():
            found[f"{name}{at}"] = Variant(
                kappa=kappa, e_step=e_step, rounds=1, held_share=0.0, **shared
            )
    return found


def fit(variant: Variant, X, seed, options):
    factor, epochs = variant.more_epochs, options.epochs
    if options.start == "random":  # all epochs are EM's
        factor, epochs = 1.0, round(epochs * factor)
    mice = FromFirstStage(
        N_CLASSES,
        expert_heads=variant.heads,
        gate_view=variant.gate_view,
        kappa=variant.kappa,
        n_rounds=variant.rounds,
        max_epochs=epochs,
        init=options.start,
        random_state=seed,
    )
    mice._first_stage = first_stage(options, seed)
    mice._n_em, mice._e_step = factor, variant.e_step
    mice._held_share = variant.held_share
    mice.fit(X)
    return mice


def case(options) -> str:
    name = options.data + ("-unbalanced" if options.unbalanced else "")
    return f"{name}-{options.epochs}".replace("-", "_")


def first_stage(options, seed) -> Path:
    return options.folder / f"{case(options)}_{seed}.pt"


def main(argv=None):
    parser = common_parser(__doc__)
    parser.add_argument("--unbalanced", action="store_true", help="see compare.py")
    parser.add_argument("--start", choices=["two-stage", "random"], default="two-stage")
    parser.add_argument("--folder", type=Path, default=Path("first-stages"))
    parser.add_argument("--what", choices=["heads", "e-steps"], default="heads")
    parser.add_argument("--heads", choices=["own", "shared"], help="of the E-steps")
    parser.add_argument(
        "--gate-view", choices=["own", "student"], help="of the E-steps"
    )
    parser.add_argument("--variants", nargs="*", help="their names; all by default")
    options = parser.parse_args(argv)
    if options.what == "heads" and (options.heads or options.gate_view):
        parser.error("--heads and --gate-view are for --what e-steps")
    limit_threads(options.threads)
    X, y = load(options.data, options.n)
    if options.unbalanced:
        X, y = unbalanced(X, y)
    variants = HEADS
    if options.what == "e-steps":
        variants = e_steps(options.heads or "own", options.gate_view or "own")
    start = options.start == "random" and "random"
    path = results_path(options, "em", options.what, case(options), start)
    results = read_json(path).get("results", {})
    for seed in options.seeds:
        for name in options.variants or variants:
            rows = results.setdefault(name, [])
            if seed in [row["seed"] for row in rows]:
                continue
            mice, seconds = timed(fit, variants[name], X, seed, options)
            em = [row["seconds"] for row in mice.history_ if row["stage"] == "em"]
            row = {"seed": seed, **scores(y, mice.labels_), "seconds": sum(em)}
            row |= {"confidence": float(mice.predict_proba(X).max(axis=1).mean())}
            rows.append(row)
            if mice.init_labels_ is not None:
                starts = results.setdefault("none", [])
                if seed not in [row["seed"] for row in starts]:
                    at_start = scores(y, mice.init_labels_)
                    starts.append({"seed": seed, **at_start, "seconds": 0.0})
            print(f"seed {seed}  {name:40} {row}  ({seconds:.0f} s)", flush=True)
            write_json(path, __file__, argv, results, data=options.data, n=len(X))
    print_table(results, f"{case(options)}, {options.start}, {len(X):,} images")


if __name__ == "__main__":
    main()
