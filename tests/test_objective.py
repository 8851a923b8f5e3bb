"""The paper's identities, equation by equation."""

import math

import numpy as np
import pytest
import torch
from shared import info_nce, plain_log_partition
from torch.nn import functional as F

from sk_mice._engine import attention
from sk_mice._engine.attention import (
    _aligned_attention,
    _aligned_parts,
    _cpu_kernel,
    _flash_kernel,
    _memory_efficient_kernel,
    attention_in_pieces,
    log_sum_exp_in_pieces,
    log_sum_exp_of_sums,
    split_attention,
)
from sk_mice._engine.inference import log_partition_bounds, queue_moments
from sk_mice._engine.objective import (
    class_sums,
    elbo,
    expert_log_prob,
    gating_log_prob,
    log_evidence,
    log_joint,
    log_partition,
    posterior,
    prototype_update,
    simplex_centres,
)

B, K, D, V = 7, 4, 6, 23
FLOATS = [torch.float32, torch.float64]


def unit(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


@pytest.fixture
def parts():
    """Embeddings and prototypes of a small model, in float64."""
    return {
        "f": unit(B, K, D, seed=1),
        "v": unit(B, K, D, seed=2),
        "mu": unit(K, D, seed=3),
        "queue": unit(V, K, D, seed=4),
        "g": unit(B, D, seed=5),
        "omega": simplex_centres(K, D),
    }


def joint_of(parts, tau=1.0, kappa=1.0, partition=None):
    experts = expert_log_prob(
        parts["f"], parts["v"], parts["mu"], parts["queue"], tau, partition
    )
    return log_joint(gating_log_prob(parts["g"], parts["omega"], kappa), experts)


# ---------------------------------------------------------------- gating prototypes


@pytest.mark.parametrize("dim", [1, 2, 3, 9, 128])
def test_simplex_centres_have_unit_norm_and_equal_angles(dim):
    for n_clusters in {1, 2, dim // 2 + 1, dim, dim + 1}:
        omega = simplex_centres(n_clusters, dim)
        expected = torch.eye(n_clusters, dtype=torch.float64)
        if n_clusters > 1:
            expected[expected == 0] = -1 / (n_clusters - 1)
        torch.testing.assert_close(omega @ omega.T, expected, rtol=0, atol=1e-7)


def test_simplex_centres_refuse_more_than_fit():
    with pytest.raises(ValueError, match=r"at least n_clusters - 1 = 129.*got 128"):
        simplex_centres(130, 128)


def test_uniform_gate_at_infinite_temperature(parts):
    uniform = gating_log_prob(parts["g"], parts["omega"], math.inf)
    torch.testing.assert_close(uniform, torch.full_like(uniform, -math.log(K)))


def test_gate_is_a_softmax_of_cosines(parts):
    cosines = parts["g"] @ parts["omega"].T
    expected = torch.exp(cosines / 0.3) / torch.exp(cosines / 0.3).sum(1, keepdim=True)
    actual = gating_log_prob(parts["g"], parts["omega"], 0.3).exp()
    torch.testing.assert_close(actual, expected)


# --------------------------------------------------------------------- log-partition


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tau", [0.05, 1.0, 10.0])
def test_fused_and_plain_partition_agree_with_their_gradients(parts, dtype, tau):
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    results = []
    for partition in (None, plain_log_partition):
        f = parts["f"].to(dtype).requires_grad_()
        mu = parts["mu"].to(dtype).requires_grad_()
        v, queue = parts["v"].to(dtype), parts["queue"].to(dtype)
        experts = expert_log_prob(f, v, mu, queue, tau, partition)
        assert experts.dtype == dtype
        weights = torch.linspace(1, 2, B * K, dtype=dtype).view(B, K)
        gradients = torch.autograd.grad((experts * weights).sum(), [f, mu])
        results.append([experts.detach(), *gradients])
    torch.testing.assert_close(*results, **tolerance)


def test_fused_partition_agrees_with_finite_differences(parts):
    x = (2 * parts["f"]).requires_grad_()
    positive = (parts["v"] * 2 * parts["f"]).sum(-1).detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, p: log_partition(x, p, parts["queue"]), (x, positive)
    )


@pytest.mark.parametrize("tau", [0.001, 0.03, 1 / 30, 0.05, 1.0, 10.0])
@pytest.mark.parametrize("kept", [0, 2**23])
@pytest.mark.parametrize("dtype", FLOATS)
def test_experts_that_share_a_head_have_the_same_partition(
    dtype, kept, tau, monkeypatch
):
    monkeypatch.setattr(attention, "_CPU_LOGITS", 128)  # several pieces
    monkeypatch.setattr(attention, "_KEPT_FACTORS", kept)
    v, mu, queue = unit(B, 1, D, seed=2), unit(K, D, seed=3), unit(500, 1, D, seed=4)
    f = F.normalize(0.1 * unit(B, 1, D, seed=1) - queue[:1], dim=-1)
    mu[1] = queue[0, 0]  # the largest factors of one are the smallest of the other
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    results = []
    for partition in (None, plain_log_partition, log_partition):
        mine = [part.to(dtype).requires_grad_() for part in (f, mu)]
        experts = expert_log_prob(
            mine[0], v.to(dtype), mine[1], queue.to(dtype), tau, partition
        )
        assert experts.shape == (B, K)
        assert experts.dtype == dtype
        weights = torch.linspace(1, 2, B * K, dtype=dtype).view(B, K)
        gradients = torch.autograd.grad((experts * weights).sum(), mine)
        results.append([experts.detach(), *(tau * gradient for gradient in gradients)])
    shared, plain, fused = results
    torch.testing.assert_close(shared, plain, **tolerance)
    torch.testing.assert_close(fused, plain, **tolerance)


@pytest.mark.parametrize("tau", [0.02, 0.0255, 1 / 30])
def test_experts_that_share_a_head_stay_finite_where_all_embeddings_are_equal(tau):
    one, n = unit(1, 2).float(), 2**17
    queue = one.expand(n, 1, 2)
    experts = expert_log_prob(one[None], one[None], one.repeat(2, 1), queue, tau)
    expected = torch.full_like(experts, -math.log(n + 1))
    torch.testing.assert_close(experts, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("tau", [0.04, 1.0])
def test_sums_of_products_agree_with_finite_differences(tau):
    x, y = unit(B, D, seed=1) / tau, unit(K, D, seed=2) / tau
    queue = unit(30, D, seed=3)
    assert torch.autograd.gradcheck(
        lambda x, y: log_sum_exp_of_sums(queue, x, y),
        (x.requires_grad_(), y.requires_grad_()),
    )


def test_sums_of_products_do_not_depend_on_the_pieces():
    x, y = unit(700, 128, seed=1).float(), unit(10, 128, seed=2).float()
    queue = unit(4096, 128, seed=3).bfloat16()
    whole = log_sum_exp_of_sums(queue, x, y)
    parts = [log_sum_exp_of_sums(queue, some, y) for some in x.split(7)]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_sums_of_products_with_a_bfloat16_queue_stay_close_to_exact_ones(tau):
    x, y = unit(16, 128, seed=1, dtype=torch.float32), unit(3, 128, seed=2).float()
    queue = unit(2000, 128, seed=3, dtype=torch.float32)
    results = []
    for given in (queue, queue.bfloat16()):
        mine = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        value = log_sum_exp_of_sums(given, mine[0] / tau, mine[1] / tau)
        assert value.dtype == torch.float32
        results.append([value.detach(), *torch.autograd.grad(value.mean(), mine)])
    (value, *gradients), (rounded, *others) = results
    torch.testing.assert_close(rounded, value, atol=0.02, rtol=0)
    for gradient, other in zip(gradients, others, strict=True):
        cosine = F.cosine_similarity(gradient.flatten(), other.flatten(), dim=0)
        assert cosine > 0.99


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_products_with_a_bfloat16_queue_stay_close_to_exact_ones(tau):
    f, v, queue = (unit(n, 3, 128, seed=n, dtype=torch.float32) for n in (8, 9, 2000))
    f, v = f.requires_grad_(), v[:8]
    results = []
    for given in (queue, queue.bfloat16()):
        experts = expert_log_prob(f, v, None, given, tau)
        assert experts.dtype == torch.float32
        (gradient,) = torch.autograd.grad(experts.sum(), f)
        results.append((experts.detach(), gradient))
    (exact, exact_gradient), (half, half_gradient) = results
    torch.testing.assert_close(half, exact, rtol=0, atol=2e-3)
    error = (half_gradient - exact_gradient).norm() / exact_gradient.norm()
    assert error < 0.01


@pytest.mark.parametrize("piece", [1, 5, V, 100])
@pytest.mark.parametrize("n_logits", [1, 2 * B * V, 2**19])
@pytest.mark.parametrize("largest", [0.0, 3.0, 59.0, 1e4])
def test_attention_in_pieces_agrees_with_the_kernel(
    parts, piece, n_logits, largest, monkeypatch
):
    monkeypatch.setattr(attention, "_MOST_KEYS", piece)
    monkeypatch.setattr(attention, "_CPU_LOGITS", n_logits)
    lengths = largest * torch.logspace(-3, 0, K * B, dtype=torch.float64)
    query = lengths.view(K, B, 1) * parts["f"].transpose(0, 1)
    keys = parts["queue"].transpose(0, 1)
    expected = split_attention(_cpu_kernel, query, keys, n_parts=1)
    actual = attention_in_pieces(query, keys)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("largest", [3.0, 1000.0])
def test_many_queries_meet_fewer_keys_at_a_time(largest, monkeypatch):
    monkeypatch.setattr(attention, "_CPU_LOGITS", 1)
    query, keys = largest * unit(K, B, D, seed=1), unit(K, 300, D, seed=2)
    expected = split_attention(_cpu_kernel, query, keys, n_parts=1)
    # 1024 keys a piece would be all of them; this leaves 128, 128 and 44.
    actual = attention_in_pieces(query, keys)
    torch.testing.assert_close(actual, expected)
    lse = log_sum_exp_in_pieces(query, keys)
    torch.testing.assert_close(lse, expected[1])


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16])
@pytest.mark.parametrize("largest", [0.0, 3.0, 59.0, 1000.0])
@pytest.mark.parametrize("piece", [5, 100])
def test_log_sum_exp_alone_agrees_with_the_plain_one(
    parts, dtype, largest, piece, monkeypatch
):
    monkeypatch.setattr(attention, "_MOST_KEYS", piece)
    query, keys = largest * parts["f"].transpose(0, 1), parts["queue"].transpose(0, 1)
    query, keys = query.to(dtype), keys.to(dtype)
    expected = torch.logsumexp(query.double() @ keys.double().transpose(1, 2), dim=-1)
    lse = log_sum_exp_in_pieces(query, keys)
    assert lse.dtype == torch.promote_types(dtype, torch.float32)
    # Logits are rounded to 8 bits in bfloat16, to 24 in float32.
    tolerance = {"rtol": 0, "atol": 4 * (2 + largest) * torch.finfo(dtype).eps}
    torch.testing.assert_close(lse.double(), expected, **tolerance)


@pytest.mark.parametrize("length", [1.0, 100.0])  # below and above the largest logit
def test_sums_over_a_bfloat16_queue_are_not_rounded(length):
    query = torch.tensor([[[length, 0.0]]]).bfloat16()
    keys = torch.tensor([0.0, 1.0]).bfloat16().expand(1, 301, 2)
    for lse in (
        log_sum_exp_in_pieces(query, keys),
        attention_in_pieces(query, keys)[1],
    ):
        assert lse.item() == pytest.approx(math.log(301), abs=1e-6)


def test_queue_moments_are_mean_and_covariance(parts):
    mean, covariance = queue_moments(parts["queue"])
    for k in range(K):
        rows = parts["queue"][:, k].numpy()
        np.testing.assert_allclose(mean[k], rows.mean(axis=0))
        np.testing.assert_allclose(covariance[k], np.cov(rows.T, bias=True), atol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tau", [0.001, 0.1, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("skew", [0.0, 1.0, 100.0])
def test_partition_lies_between_its_bounds(dtype, tau, skew):
    n, rounding = 500, 1e-5
    queue = unit(n, K, D, seed=4)
    queue[::50] += skew * queue[0]  # a few far from all others
    queue = F.normalize(queue, dim=-1).to(dtype)
    x = (unit(B, K, D, seed=1) / tau).to(dtype)
    positive = (unit(B, K, D, seed=2, dtype=dtype) * x).sum(dim=-1)
    bounds = log_partition_bounds(x, positive, n, *queue_moments(queue))
    exact = log_partition(x, positive, queue)
    assert bounds.dtype == dtype
    assert (bounds[0] <= exact + rounding).all()
    assert (bounds[1] >= exact - rounding).all()


def test_partition_lies_between_its_bounds_where_one_logit_is_far_from_the_others():
    n, x = 500, torch.tensor([[[10.0, 0.0]], [[-10.0, 0.0]]])
    queue = torch.eye(2)[[0, *[1] * (n - 1)], None]
    positive = torch.full((2, 1), -50.0)
    lower, upper = log_partition_bounds(x, positive, n, *queue_moments(queue))
    exact = log_partition(x, positive, queue)
    assert (lower < exact).all()
    assert (exact < upper).all()


def test_bounds_of_the_partition_are_close_where_logits_are_small():
    queue, x = unit(500, K, 64, seed=4), 2 * unit(B, K, 64, seed=1)
    positive = torch.zeros(B, K, dtype=torch.float64)
    lower, upper = log_partition_bounds(x, positive, 500, *queue_moments(queue))
    assert (upper - lower).max() < 0.06
    lower, upper = log_partition_bounds(1e-3 * x, positive, 500, *queue_moments(queue))
    assert (upper - lower).max() < 1e-7


@pytest.mark.parametrize("n_queue", [1, 7, 8, 9, 61, 64])
def test_attention_over_parts_of_the_queue_is_put_together(n_queue):
    query, keys = 3 * unit(K, B, D, seed=1), unit(K, n_queue, D, seed=2)
    actual = split_attention(_cpu_kernel, query, keys)
    expected = split_attention(_cpu_kernel, query, keys, n_parts=1)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dim", [3, 8, 13])
def test_attention_of_any_dimension_by_a_kernel_of_multiples_of_eight(dim):
    seen = []

    def kernel(query, keys):
        seen.append((query.shape[-1], keys.shape[-2]))
        return _cpu_kernel(query, keys)

    query, keys = 3 * unit(K, B, dim, seed=1), unit(K, V, dim, seed=2)
    actual = _aligned_attention(kernel, query, keys)
    expected = split_attention(_cpu_kernel, query, keys, n_parts=1)
    torch.testing.assert_close(actual, expected)
    # V = 23 keys are eight parts of two, and seven that are over.
    assert seen == [(16 if dim == 13 else 8, n_keys) for n_keys in (2, 7)]


def test_products_with_the_queue_have_an_even_length():
    queue = unit(V, D)
    for n_keys, sizes in ((128, [16, 7]), (15, [8, 8, 7])):
        parts = _aligned_parts(queue, n_keys)
        assert [len(part) for part in parts] == sizes
        assert torch.equal(torch.cat(parts), queue)
    assert [len(part) for part in _aligned_parts(queue[:16], 128)] == [16]
    assert [len(part) for part in _aligned_parts(queue[:5], 128)] == [5]


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(_flash_kernel, torch.bfloat16), (_memory_efficient_kernel, torch.float32)],
)
def test_kernels_of_a_gpu_take_and_give_these_shapes(kernel, dtype):
    # Without values: what can be known of them on a machine that has no GPU.
    size = {"dtype": dtype, "device": "meta"}
    query, keys = (
        torch.empty(250, 10, 128, **size),
        torch.empty(10_000, 10, 128, **size),
    )
    output, lse = split_attention(kernel, query.transpose(0, 1), keys.transpose(0, 1))
    assert output.shape == (10, 250, 128)
    assert lse.shape == (10, 250)
    assert output.dtype == lse.dtype == torch.float32


def test_partition_keeps_nothing_of_size_b_k_v():
    saved = []
    f = unit(8, 3, 5, dtype=torch.float32).requires_grad_()
    queue = unit(1000, 3, 5, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.numel()) or t, lambda t: t
    ):
        expert_log_prob(f, f.detach(), None, queue, 1.0).sum().backward()
        assert max(saved) <= f.numel()
        mu, shared = unit(3, 5, dtype=torch.float32).requires_grad_(), f[:, :1]
        queue = queue[:, :1]
        expert_log_prob(shared, shared, mu, queue, 1.0).sum().backward()
    assert max(saved) <= queue.numel()  # the queue itself is kept


def test_partition_counts_the_positive_once(parts):
    # Equation 9: with the positive in the estimate, probabilities stay below 1 even
    # with a queue that holds nothing similar.
    f = parts["f"][:1]
    experts = expert_log_prob(f, f, None, -f, 0.01)  # the queue: one opposite vector
    torch.testing.assert_close(experts, torch.full_like(experts, 0.0))
    assert (experts <= 0).all()


def test_half_precision_queue_is_promoted(parts):
    f, v, mu = (parts[name].float() for name in ("f", "v", "mu"))
    half = parts["queue"].half()
    expected = expert_log_prob(f, v, mu, half.float(), 1.0)
    torch.testing.assert_close(expert_log_prob(f, v, mu, half, 1.0), expected)


@pytest.mark.parametrize("tau", [0.01, 100.0])
@pytest.mark.parametrize("kappa", [0.01, 100.0])
def test_extreme_temperatures_stay_finite(parts, tau, kappa):
    f = parts["f"].float().requires_grad_()
    small = {name: part.float() for name, part in parts.items()} | {"f": f}
    joint = joint_of(small, tau, kappa)
    elbo(joint).mean().backward()
    for value in (joint, posterior(joint), f.grad):
        assert torch.isfinite(value).all()


# ------------------------------------------------------------------ posterior and ELBO


def test_elbo_is_the_log_evidence_at_the_exact_posterior(parts):
    joint = joint_of(parts)
    torch.testing.assert_close(elbo(joint, posterior(joint)), log_evidence(joint))
    torch.testing.assert_close(elbo(joint), log_evidence(joint))


def test_elbo_is_below_the_log_evidence_for_any_other_q(parts):
    joint = joint_of(parts)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        other = torch.rand(B, K, generator=generator, dtype=torch.float64)
        q = other / other.sum(1, keepdim=True)
        assert (elbo(joint, q) < log_evidence(joint)).all()
    one_hot = F.one_hot(torch.arange(B) % K, K).double()  # 0 log 0 = 0
    assert (elbo(joint, one_hot) < log_evidence(joint)).all()


def test_elbo_is_expectation_minus_divergence_from_the_gate(parts):
    # Equation 7 as it stands in the paper.
    gating = gating_log_prob(parts["g"], parts["omega"], 1.0)
    experts = joint_of(parts) - gating
    q = torch.softmax(unit(B, K, seed=9), dim=1)
    divergence = (q * (q.log() - gating)).sum(1)
    expected = (q * experts).sum(1) - divergence
    torch.testing.assert_close(elbo(log_joint(gating, experts), q), expected)


def test_gradient_is_the_same_with_the_posterior_held(parts):
    f = parts["f"].requires_grad_()
    joint = joint_of(parts)
    (free,) = torch.autograd.grad(elbo(joint).sum(), f, retain_graph=True)
    held = posterior(joint).detach()
    (detached,) = torch.autograd.grad(elbo(joint, held).sum(), f)
    torch.testing.assert_close(free, detached)


def test_theorem_1_bound(parts):
    # L~ <= log p(y | x) + log N - log V + 4 / tau, with Z over all N teacher
    # embeddings; the proof writes the estimate of Z without the positive, which only
    # makes it smaller.
    everything = torch.cat([parts["v"], unit(40, K, D, seed=8)])  # N = B + 40
    n_samples = len(everything)
    gating = gating_log_prob(parts["g"], parts["omega"], 1.0)
    for tau in (0.2, 1.0, 3.0):
        x = (parts["f"] + parts["mu"]) / tau
        logits = torch.einsum("bkd,nkd->bkn", x, everything)
        exact = (parts["v"] * x).sum(-1) - torch.logsumexp(logits, dim=-1)
        evidence = log_evidence(log_joint(gating, exact))
        bound = evidence + math.log(n_samples) - math.log(V) + 4 / tau
        assert (elbo(joint_of(parts, tau)) <= bound).all()
        assert (elbo(joint_of(parts, tau)) <= 0).all()


def test_small_full_batch_em_steps_never_lower_the_elbo(parts):
    # Theorem 1 with teacher and views frozen and the exact partition: here the queue
    # and the positive are all teacher embeddings there are.
    f = parts["f"].clone().requires_grad_()
    g = parts["g"].clone().requires_grad_()
    mu = parts["mu"].clone().requires_grad_()
    optimizer = torch.optim.SGD([f, g, mu], lr=0.05)

    def joint():
        now = {"f": F.normalize(f, dim=-1), "g": F.normalize(g, dim=-1)}
        return joint_of(parts | now | {"mu": F.normalize(mu, dim=-1)})

    values = []
    for _ in range(100):
        q = posterior(joint()).detach()  # E-step
        bound = elbo(joint(), q).mean()
        values.append(bound.item())
        optimizer.zero_grad()
        (-bound).backward()  # M-step
        optimizer.step()
    assert (np.diff(values) >= -1e-12).all()
    assert values[-1] > values[0] + 0.05


# -------------------------------------------------------- relations to the baseline


def test_lemma_1_and_theorems_2_and_3(parts):
    # A3: uniform gate; A4: one output layer for all; A5: no class-level information.
    f, v, queue = parts["f"][:, :1], parts["v"][:, :1], parts["queue"][:, :1]
    gating = gating_log_prob(parts["g"], parts["omega"], math.inf)
    experts = expert_log_prob(
        f.expand(-1, K, -1), v.expand(-1, K, -1), None, queue.expand(-1, K, -1), 0.5
    )
    joint = log_joint(gating, experts)
    uniform = torch.full((B, K), 1 / K, dtype=torch.float64)
    torch.testing.assert_close(posterior(joint), uniform)  # Lemma 1
    one = info_nce(f[:, 0], v[:, 0], queue[:, 0], 0.5)
    torch.testing.assert_close(elbo(joint), one)  # Theorem 3


def test_an_expert_without_a_prototype_is_mocos_classifier(parts):
    f, v, queue = (parts[name][:, :1] for name in ("f", "v", "queue"))
    expected = info_nce(f[:, 0], v[:, 0], queue[:, 0], 0.07)
    (actual,) = expert_log_prob(f, v, None, queue, 0.07).T
    torch.testing.assert_close(actual, expected)


def test_theorem_4_analytical_update_is_a_step_of_spherical_k_means(parts):
    # A1 hard assignment, A2 constant log Z, A3 uniform gate, A4 one output layer.
    from sk_mice import SphericalKMeans

    v = unit(200, D, seed=11)
    f = unit(200, 1, D, seed=12)
    tau, constant = 0.7, 3.0
    experts = expert_log_prob(
        f.expand(-1, K, -1),
        v.unsqueeze(1).expand(-1, K, -1),
        parts["mu"],
        parts["queue"],
        tau,
        partition=lambda x, positive, queue: torch.full_like(positive, constant),
    )
    uniform = torch.full_like(experts, -math.log(K))
    labels = log_joint(uniform, experts).argmax(1)
    updated = prototype_update(class_sums(v.unsqueeze(1), labels, K), parts["mu"])

    kmeans = SphericalKMeans(K, init=parts["mu"].numpy(), n_init=1, max_iter=1)
    kmeans.fit(v.numpy())
    np.testing.assert_allclose(updated.numpy(), kmeans.cluster_centers_, atol=1e-12)
    nearest = (v @ parts["mu"].T).argmax(1)
    assert torch.equal(labels, nearest)


def test_prototype_update_keeps_the_prototype_of_an_empty_cluster(parts):
    sums = torch.stack([3 * parts["mu"][0], torch.zeros(D).double()])
    updated = prototype_update(sums, parts["mu"][:2])
    torch.testing.assert_close(updated, parts["mu"][:2])
