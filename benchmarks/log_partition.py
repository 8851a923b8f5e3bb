"""Time of one log-partition, forward and backward: fused, plain and the paper's.

Beside them stand experts that share a head, and MoCo, which has one. All are measured
interleaved in one run, so that noise of the machine falls on all alike; the table shows
medians and their ratio to the first.

    python benchmarks/log_partition.py
    python benchmarks/log_partition.py --memory --n-clusters 1000 --queue-size 4096
"""

import argparse
import statistics
import time

import torch
from _common import peak_memory
from torch.nn import functional as F

from sk_mice._engine import objective


def papers_pseudocode(f, v, mu, queue, tau):
    """Algorithm 1 as written: cloned queue, separate einsums, one softmax."""
    mu = F.normalize(mu, dim=-1)
    positive = torch.einsum("bkd,bkd->bk", v, f) + torch.einsum("bkd,kd->bk", v, mu)
    negative_f = torch.einsum("vkd,bkd->bkv", queue.detach().clone(), f)
    negative_mu = torch.einsum("vkd,kd->kv", queue, mu)
    negative = negative_f + negative_mu.unsqueeze(0)
    logits = torch.cat([positive.unsqueeze(2), negative], dim=2) / tau
    return torch.softmax(logits, dim=2)[:, :, 0].log()


def ours(partition):
    def run(f, v, mu, queue, tau):
        mu = F.normalize(mu, dim=-1)
        return objective.expert_log_prob(f, v, mu, queue, tau, partition)

    return run


def with_shared_head(f, v, mu, queue, tau):
    mu = F.normalize(mu, dim=-1)
    return objective.expert_log_prob(f[:, :1], v[:, :1], mu, queue[:, :1], tau)


def moco(f, v, mu, queue, tau):
    return objective.info_nce(f[:, 0], v[:, 0], queue[:, 0], tau)


FORMS = {
    "paper's pseudocode": papers_pseudocode,
    "plain (einsum, log-sum-exp)": ours(objective.plain_log_partition),
    "fused (attention)": ours(objective.log_partition),
    "shared head (one product)": with_shared_head,
    "MoCo": moco,
}


def seconds(form, f, v, mu, queue):
    f, mu = f.clone().requires_grad_(), mu.clone().requires_grad_()
    start = time.perf_counter()
    form(f, v, mu, queue, 1.0).mean().backward()
    return time.perf_counter() - start


def report_memory(options):
    """Peak of one evaluation with all that it needs, relative to the queue's size."""
    size = (options.n_clusters, options.embedding_dim)
    before = peak_memory()
    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    queue = torch.empty(options.queue_size, *size, dtype=dtype)
    for rows in queue.split(64):
        rows.copy_(F.normalize(torch.randn(rows.shape), dim=-1))
    f, v = (
        F.normalize(torch.randn(options.batch_size, *size), dim=-1) for _ in range(2)
    )
    mu = F.normalize(torch.randn(size), dim=-1)
    times = [
        seconds(FORMS["fused (attention)"], f, v, mu, queue)
        for _ in range(options.repeats)
    ]
    queue_bytes = queue.numel() * queue.element_size()
    grown = peak_memory() - before
    print(f"queue {queue_bytes / 2**20:.0f} MiB ({dtype})")
    print(f"peak  {grown / 2**20:.0f} MiB, {grown / queue_bytes:.2f} of the queue")
    per_expert = statistics.median(times) / options.n_clusters
    print(f"time per expert {1e3 * per_expert:.3f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-clusters", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--queue-size", type=int, default=16384)
    parser.add_argument("--embedding-dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--no-paper", action="store_true", help="without what holds B x K x V"
    )
    parser.add_argument("--memory", action="store_true", help="of the fused form")
    parser.add_argument("--bfloat16", action="store_true", help="queue, with --memory")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.memory:
        report_memory(options)
        return
    size = (options.n_clusters, options.embedding_dim)
    f, v = F.normalize(torch.randn(2, options.batch_size, *size), dim=-1)
    queue = F.normalize(torch.randn(options.queue_size, *size), dim=-1)
    mu = F.normalize(torch.randn(size), dim=-1)

    forms = dict(list(FORMS.items())[2:] if options.no_paper else FORMS)
    times = {name: [] for name in forms}
    for _ in range(options.repeats + 1):
        for name, form in forms.items():
            times[name].append(seconds(form, f, v, mu, queue))
    medians = {name: statistics.median(t[1:]) for name, t in times.items()}
    first = next(iter(medians.values()))
    print(f"torch {torch.__version__}, {options.threads} threads, {vars(options)}")
    for name, median in medians.items():
        print(f"{name:30s} {1e3 * median:8.1f} ms   ratio {median / first:.3f}")


if __name__ == "__main__":
    main()
