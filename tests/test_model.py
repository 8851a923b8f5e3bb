"""Student, teacher, queue and prototypes."""

import math
import pickle

import numpy as np
import pytest
import torch
from shared import assert_same_state, info_nce, state_of
from sklearn.linear_model import Ridge

from sk_mice._engine import objective
from sk_mice._engine.inference import Inference
from sk_mice._engine.model import (
    ContrastiveMixture,
    gating_prototypes,
    repelled_directions,
)
from sk_mice.backbones import MLP, feature_count

K, D, V, N_FEATURES = 3, 8, 10, 5


def make_model(
    n_experts=K, *, gated=True, kappa=1.0, queue_size=V, backbone=None, **more
):
    torch.manual_seed(0)
    omega = gating_prototypes(n_experts, D) if gated else None
    network = MLP(16).build((N_FEATURES,)) if backbone is None else backbone
    return ContrastiveMixture(
        network,
        feature_count(network, (N_FEATURES,)),
        n_experts=n_experts,
        embedding_dim=D,
        queue_size=queue_size,
        omega=omega,
        tau=1.0,
        kappa=kappa,
        **more,
    )


def test_shapes_and_norms():
    model = make_model()
    joint, v = model(torch.randn(3, 6, N_FEATURES))
    assert joint.shape == (6, K)
    assert v.shape == (6, K, D)
    joint, features, *unit = Inference(model.eval())(
        torch.randn(6, N_FEATURES), "joint", "features", "teacher", "gating"
    )
    assert joint.shape == (6, K)
    assert features.shape == (6, 16)
    for embedding in (*unit, model.queue, model.prototypes()):
        torch.testing.assert_close(
            embedding.norm(dim=-1), torch.ones(embedding.shape[:-1])
        )


def test_teacher_gets_no_gradient_and_everything_else_does():
    model = make_model()
    joint, v = model(torch.randn(3, 6, N_FEATURES))
    assert not v.requires_grad
    joint.sum().backward()
    for name, parameter in model.named_parameters():
        if name.startswith("teacher") or name == "gating_prototypes":
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_teacher_is_the_exponential_moving_average_of_the_student():
    model = make_model()
    with torch.no_grad():
        for parameter in model.student.parameters():
            parameter.normal_()
    before = state_of(model.teacher)
    model.update_teacher(0.9)
    for name, after in model.teacher.named_parameters():
        student = model.student.get_parameter(name)
        torch.testing.assert_close(after, 0.9 * before[name] + 0.1 * student)


def test_teacher_keeps_batch_norm_statistics_of_its_own():
    model = make_model()
    x = torch.randn(3, 6, N_FEATURES)
    x[0] += 5  # the teacher's view
    model(x)
    before = state_of(model.teacher)
    model.update_teacher(0.5)
    for name, buffer in model.teacher.named_buffers():
        assert torch.equal(buffer, before[name]), name
    means = [
        m.running_mean for m in model.teacher.modules() if hasattr(m, "running_mean")
    ]
    others = [
        m.running_mean for m in model.student.modules() if hasattr(m, "running_mean")
    ]
    assert not torch.allclose(means[0], others[0])


@pytest.mark.parametrize(
    "sizes", [[3, 4, 5, 2], [10, 10], [7, 7, 7], [1] * 23, [25, 3]]
)
def test_queue_holds_the_latest_embeddings_for_any_batch_size(sizes):
    model = make_model()
    written = []
    for step, size in enumerate(sizes):
        batch = torch.full((size, K, D), float(step)) + torch.rand(size, K, D)
        written.append(batch)
        model.enqueue(batch)
    latest = torch.cat(written)[-V:]
    held = {row.flatten().sum().item() for row in model.queue}
    assert {row.flatten().sum().item() for row in latest} <= held
    # The ring goes on where it stopped: the next one replaces the oldest.
    if sum(sizes) >= V:
        assert len(held) == V
        oldest = latest[0]
        slot = int(model.queue_index)
        assert torch.equal(model.queue[slot], oldest)


def test_two_views_suffice_for_a_gate_that_does_not_learn():
    assert make_model().n_views == 3
    assert make_model(kappa=math.inf).n_views == 2
    assert make_model(n_experts=1, gated=False).n_views == 2


def test_uniform_gate_leaves_the_experts_alone():
    model = make_model(kappa=math.inf)
    joint, _ = model(torch.randn(2, 6, N_FEATURES))
    joint.sum().backward()
    assert model.student.gate.weight.grad is None
    f, v, g = model.embed(torch.randn(2, 6, N_FEATURES))
    alone = objective.expert_log_prob(f, v, model.prototypes(), model.queue, model.tau)
    torch.testing.assert_close(model.log_joint(f, v, g), alone - math.log(K))


def test_start_from_a_single_expert_is_that_expert_many_times():
    single = make_model(n_experts=1, gated=False)
    single(torch.randn(2, 6, N_FEATURES))
    single.enqueue(torch.nn.functional.normalize(torch.randn(4, 1, D), dim=-1))
    model = make_model(kappa=math.inf)
    model.start_from(single)
    single.eval()
    model.eval()
    x = torch.randn(7, N_FEATURES)
    (ours,), (theirs,) = Inference(model)(x, "teacher"), Inference(single)(x, "teacher")
    torch.testing.assert_close(ours, theirs.expand(-1, K, -1))
    assert torch.equal(model.queue, single.queue.expand(-1, K, -1))
    assert model.queue_index == single.queue_index
    # Without class-level information (A5) it is MoCo, whatever the expert.
    model.expert_prototypes = None
    (joint,), (expected,) = Inference(model)(x, "joint"), Inference(single)(x, "joint")
    torch.testing.assert_close(joint + math.log(K), expected.expand(-1, K))


def test_experts_with_one_head_have_one_embedding():
    model = make_model(shared_head=True)
    assert model.shared_head
    joint, v = model(torch.randn(3, 6, N_FEATURES))
    assert v.shape == (6, 1, D)
    assert model.queue.shape[1:] == (1, D)
    assert joint.std(dim=1).min() > 0  # prototypes and gate still tell them apart
    joint.sum().backward()
    assert model.student.experts.weight.shape == (D, 16)
    assert model.student.experts.weight.grad.abs().sum() > 0
    single = make_model(n_experts=1, gated=False)
    model.start_from(single)
    assert torch.equal(model.student.experts.weight, single.student.experts.weight)


def test_the_gate_can_see_the_view_of_the_student():
    model = make_model(gate_view=False)
    assert model.n_views == 2
    views = torch.randn(2, 6, N_FEATURES)
    f, v, g = model.embed(views)
    features = model.student.backbone(views[1])
    torch.testing.assert_close(g, model.student.gating_embeddings(features))
    assert len(f) == len(v) == len(g)


def test_under_a3_to_a5_every_expert_is_moco():
    # Theorems 2 and 3: the joint probability is InfoNCE's, shared out evenly.
    model = make_model(kappa=math.inf, shared_head=True, class_level=False)
    assert model.prototypes() is None
    f, v, g = model.embed(torch.randn(2, 6, N_FEATURES))
    assert g is None
    expected = info_nce(f[:, 0], v[:, 0], model.queue[:, 0], model.tau)
    joint = model.log_joint(f, v, g)
    torch.testing.assert_close(joint + math.log(K), expected[:, None].expand(-1, K))


def test_without_prototypes_a_partition_sets_the_gate_alone():
    model = make_model(class_level=False).eval()
    labels, x = torch.arange(60) % K, torch.randn(60, N_FEATURES)
    before = model.student.gate.weight.clone()
    v, features = Inference(model)(x, "teacher", "features")
    model.set_partition(labels, features, objective.class_sums(v, labels, K))
    assert not torch.equal(before, model.student.gate.weight)


def test_partition_sets_prototypes_and_gate():
    model = make_model().eval()
    labels = torch.arange(60) % K
    x = 0.3 * torch.randn(60, N_FEATURES)
    x[:, :K] += 3 * torch.nn.functional.one_hot(labels, K)
    v, features = Inference(model)(x, "teacher", "features")
    model.set_partition(labels, features, objective.class_sums(v, labels, K))
    for k in range(K):
        mean = v[labels == k, k].mean(0)
        torch.testing.assert_close(
            model.prototypes()[k], torch.nn.functional.normalize(mean, dim=0)
        )
    (g,) = Inference(model)(x, "gating")
    assert torch.equal((g @ model.gating_prototypes.T).argmax(1), labels)
    gate, features = model.student.gate, features.double()
    penalty = len(x) * features.var(0, correction=0).mean() / 100
    ridge = Ridge(penalty.item()).fit(features, model.gating_prototypes[labels])
    np.testing.assert_allclose(gate.weight.detach(), ridge.coef_, atol=1e-5)
    np.testing.assert_allclose(gate.bias.detach(), ridge.intercept_, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_pickles_hold_the_queue_in_16_bits_and_give_its_type_back(dtype):
    model = make_model(queue_size=2000)
    model.queue = model.queue.to(dtype)
    if dtype == torch.float64:
        model.double()
    before = model.queue.clone()
    model.round_queue()
    torch.testing.assert_close(model.queue, before, atol=5e-4, rtol=0)
    dump = pickle.dumps(model)
    assert model.queue.dtype == dtype
    smaller = len(pickle.dumps(make_model(queue_size=1000)))
    if dtype != torch.float64:  # whose weights are larger, too
        assert len(dump) - smaller == pytest.approx(2 * 1000 * K * D, abs=500)
    read = pickle.loads(dump)
    assert read.queue.dtype == dtype
    assert_same_state(read, state_of(model))


def test_gating_prototypes_are_a_simplex_where_there_is_room():
    for n_clusters, dim in ((1, 6), (4, 6), (7, 6), (9, 6)):
        omega = gating_prototypes(n_clusters, dim)
        assert omega.shape == (n_clusters, dim)
        torch.testing.assert_close(omega.norm(dim=1), torch.ones(n_clusters))
        cosines = (omega @ omega.T)[~torch.eye(n_clusters, dtype=torch.bool)]
        if 1 < n_clusters <= dim + 1:
            expected = torch.full_like(cosines, -1 / (n_clusters - 1))
            torch.testing.assert_close(cosines, expected)


@pytest.mark.parametrize(
    ("n_clusters", "dim", "worst"),
    # Up to 2 D vectors can have no positive cosine at all (the orthoplex); beyond,
    # the Welch bound sqrt((K - D) / (D (K - 1))) is for lines, so vectors do better.
    [
        (5, 2, 0.32),
        (20, 10, 0.03),
        (200, 128, 0.03),
        (400, 64, 0.15),
        (1, 3, 0.0),
    ],
)
def test_repelled_directions_are_far_apart(n_clusters, dim, worst):
    omega = repelled_directions(n_clusters, dim)
    cosines = omega @ omega.T
    torch.testing.assert_close(cosines.diag(), torch.ones(n_clusters).double())
    assert cosines.fill_diagonal_(-1).max() < worst


def test_repelled_directions_are_the_same_at_every_call(monkeypatch):
    omega = gating_prototypes(7, 3)
    monkeypatch.delattr(torch, "softmax")  # they are computed once
    again = gating_prototypes(7, 3)
    assert torch.equal(again, omega)
    omega.zero_()
    assert torch.equal(again, gating_prototypes(7, 3))
