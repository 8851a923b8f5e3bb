"""The sum over the queue, log sum_i exp(q_i . x), as an attention or as a product.

Shapes: B batch, K experts, D embedding, V queue. Every form of the attention takes a
query (K, B, D) and keys = values (K, V, D) to the output (K, B, D) and the log-sum-exp
(K, B); kernels have one dimension more, for parts of the queue.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

# Of this logit, float32 holds the exponential, its inverse and sums of thousands.
LARGEST_LOGIT = 60.0


def log_sum_exp_over(queue: Tensor, x: Tensor) -> Tensor:
    """Log of the sum over i of exp(q_i . x), (B, K), differentiable in x (B, K, D).

    The type of the queue (V, K, D) is that of the products.
    """
    return _LogSumExp.apply(x, queue)


class _LogSumExp(torch.autograd.Function):
    """log sum_i exp(q_i . x) as the log-sum-exp of an attention over the queue.

    With query x and keys = values = q, the attention's output is the gradient of its
    log-sum-exp with respect to x, so the forward pass yields both and no (B, K, V)
    tensor is kept.
    """

    @staticmethod
    def forward(ctx, x, queue):
        query, keys = x.to(queue.dtype).transpose(0, 1), queue.transpose(0, 1)
        if not ctx.needs_input_grad[0]:
            return log_sum_exp_in_pieces(query, keys).T
        output, lse = _attention(query, keys)
        ctx.save_for_backward(output.transpose(0, 1))
        return lse.T

    @staticmethod
    def backward(ctx, grad):
        (output,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * output, None


_ALIGNMENT = 8  # fast kernels of a GPU need rows whose length is a multiple of it
_LARGEST_DIM = 256  # of the flash kernel


def _attention(query, keys):
    half, dim = query.dtype == torch.bfloat16, query.shape[-1]
    if query.is_cuda and half and dim <= _LARGEST_DIM:
        return _aligned_attention(_flash_kernel, query, keys)
    if query.is_cuda and query.dtype == torch.float32:
        return _aligned_attention(_memory_efficient_kernel, query, keys)
    # On a CPU, bfloat16 does not speed up the kernel, but products in pieces, by 2.
    if query.device.type == "cpu" and not half:
        return split_attention(_cpu_kernel, query, keys, n_parts=1)
    return attention_in_pieces(query, keys)


def _aligned_attention(kernel, query, keys):
    """Attention of any dimension D by a kernel that takes multiples of 8."""
    dim = query.shape[-1]
    missing = -dim % _ALIGNMENT
    if missing:  # zeros add nothing to a product
        query, keys = F.pad(query, (0, missing)), F.pad(keys, (0, missing))
    output, lse = split_attention(kernel, query, keys)
    return output[..., :dim], lse


def _flash_kernel(query, keys):
    return torch.ops.aten._scaled_dot_product_flash_attention(
        query, keys, keys, scale=1.0
    )[:2]


def _memory_efficient_kernel(query, keys):
    output, lse = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, keys, keys, None, True, scale=1.0
    )[:2]
    return output, lse[..., : query.shape[-2]]  # the kernel pads it


def _cpu_kernel(query, keys):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, keys, scale=1.0
    )


_ENOUGH_QUERIES = 2**16  # to fill a GPU


def split_attention(kernel, query, keys, n_parts: int = 8):
    """Attention by a kernel that takes (parts, K, B or V, D).

    Kernels go through the keys of a query one after the other, and B x K queries do not
    fill a GPU. So equal parts of the queue are computed as a batch, and combined with
    the result of the keys that are left over.
    """
    if query[..., 0].numel() >= _ENOUGH_QUERIES or keys.shape[1] < n_parts:
        n_parts = 1
    whole = keys.shape[1] - keys.shape[1] % n_parts
    parts = keys[:, :whole].unflatten(1, (n_parts, -1)).transpose(0, 1)
    output, lse = kernel(query.expand(n_parts, *query.shape), parts)
    if n_parts == 1:
        return output[0], lse[0]
    if whole < keys.shape[1]:
        rest = kernel(query[None], keys[None, :, whole:])
        output, lse = torch.cat([output, rest[0]]), torch.cat([lse, rest[1]])
    total = torch.logsumexp(lse, dim=0)  # (K, B)
    weights = torch.exp(lse - total).unsqueeze(-1)
    return (weights * output).sum(dim=0), total


# The largest number of logits at a time: those that fit the cache of a CPU, and more on
# other devices. With the fewest keys, one expert may have more.
_CPU_LOGITS, _LOGITS = 2**19, 2**26
_FEWEST_KEYS, _MOST_KEYS = 128, 1024  # in a product
_KEPT_FACTORS = 2**23  # numbers that a forward pass may keep for the backward pass


def attention_in_pieces(query, keys):
    """Attention by plain products, in pieces of the queue and of the experts.

    Keys are unit vectors.
    """
    # Reading the norms on a GPU would wait for it.
    small = query.device.type == "cpu" and _are_small(query)
    softmax = _plain_softmax if small else _online_softmax
    parts = [softmax(some, pieces) for some, pieces in _pieces(query, keys)]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def log_sum_exp_in_pieces(query, keys):
    """The log-sum-exp alone, (K, B), of unit keys, in the same way."""
    small = _are_small(query)
    parts = [
        torch.stack([_log_sum_exp(some, its, small) for its in pieces]).logsumexp(0)
        for some, pieces in _pieces(query, keys)
    ]
    return torch.cat(parts)


def _are_small(query) -> bool:
    """Whether the logits are so small that no maximum need be subtracted from them."""
    return bool(query.norm(dim=-1).max() <= LARGEST_LOGIT)  # keys are unit vectors


def _pieces(query, keys):
    """Queries of some experts, and their keys piece by piece."""
    n_logits = _logits_at_a_time(query)
    n_queries = query.shape[1]
    n_keys = min(_MOST_KEYS, max(_FEWEST_KEYS, n_logits // n_queries))
    n_experts = max(1, n_logits // (n_queries * n_keys))
    for some, theirs in zip(query.split(n_experts), keys.split(n_experts), strict=True):
        yield some, theirs.split(n_keys, dim=1)


def _logits_at_a_time(x) -> int:
    return _CPU_LOGITS if x.device.type == "cpu" else _LOGITS


def _log_sum_exp(query, keys, small):
    logits = query @ keys.transpose(1, 2)
    dtype = torch.promote_types(query.dtype, torch.float32)
    if not small:
        return torch.logsumexp(logits.to(dtype), dim=-1)
    return logits.exp_().sum(dim=-1, dtype=dtype).log_()


def _plain_softmax(query, pieces):
    dtype = torch.promote_types(query.dtype, torch.float32)
    total = torch.zeros_like(query[..., 0], dtype=dtype)
    output = torch.zeros_like(query, dtype=dtype)
    for keys in pieces:
        weights = (query @ keys.transpose(1, 2)).exp_()
        total += weights.sum(dim=-1, dtype=dtype)
        output += weights @ keys
    return output / total.unsqueeze(-1), torch.log(total)


def _online_softmax(query, pieces):
    dtype = torch.promote_types(query.dtype, torch.float32)
    top = query.new_full(query.shape[:-1], -math.inf, dtype=dtype)  # running maximum
    total, output = torch.zeros_like(top), torch.zeros_like(query, dtype=dtype)
    for keys in pieces:
        logits = (query @ keys.transpose(1, 2)).to(dtype)
        new_top = torch.maximum(top, logits.amax(dim=-1))
        weights = logits.sub_(new_top.unsqueeze(-1)).exp_()
        shrink = torch.exp(top - new_top)
        total = total * shrink + weights.sum(dim=-1)
        mean = weights.to(keys.dtype) @ keys
        output = output * shrink.unsqueeze(-1) + mean
        top = new_top
    return output / total.unsqueeze(-1), top + torch.log(total)


# ------------------------------------------------------- experts that share their queue


def log_sum_exp_of_sums(queue: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Log of the sum over i of exp(q_i . (x_b + y_k)), (B, K), differentiable in x, y.

    The type of the queue (V, D) is that of the products. The sums of x (B, D) and y
    (K, D) have norms of at most `LARGEST_LOGIT`.
    """
    return _LogSumExpOfSums.apply(x, y, queue)


class _LogSumExpOfSums(torch.autograd.Function):
    """log sum_i exp(q_i . x_b) exp(q_i . y_k), piece by piece of the queue.

    Factors are kept for the backward pass if there are few, and else computed again.
    """

    @staticmethod
    def forward(ctx, x, y, queue):
        total = x.new_zeros(len(x), len(y))
        factors = _factors(x, y, queue)
        few = len(queue) * (len(x) + len(y)) <= _KEPT_FACTORS
        ctx.factors = list(factors) if few and any(ctx.needs_input_grad) else None
        for _, by_x, by_y in ctx.factors or factors:
            # In bfloat16 each sum would be rounded, by up to 0.004 nats.
            total += by_x.to(total.dtype) @ by_y.to(total.dtype).T
        ctx.save_for_backward(x, y, queue, total)
        return total.log()

    @staticmethod
    def backward(ctx, grad):
        x, y, queue, total = ctx.saved_tensors
        weights = (grad / total).to(queue.dtype)
        of_x, of_y, _ = ctx.needs_input_grad
        grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
        factors, ctx.factors = ctx.factors or _factors(x, y, queue), None
        for keys, by_x, by_y in factors:
            if of_x:
                grad_x += ((weights @ by_y) * by_x) @ keys
            if of_y:
                grad_y += ((weights.T @ by_x) * by_y) @ keys
        return grad_x, grad_y, None


def _factors(x, y, queue):
    """Parts of the queue with the factors exp(q_i . x_b) and exp(q_i . y_k) of each."""
    x, y = x.to(queue.dtype), y.to(queue.dtype)
    n_keys = max(_FEWEST_KEYS, _logits_at_a_time(x) // max(len(x), len(y)))
    on_cpu = x.device.type == "cpu"
    for keys in queue.split(n_keys) if on_cpu else _aligned_parts(queue, n_keys):
        yield keys, (x @ keys.T).exp_(), (y @ keys.T).exp_()


def _aligned_parts(queue, n_keys):
    """Parts of at most so many keys, in multiples of 8, and a rest of fewer than 8.

    Other lengths of rows make products of matrices slower on a GPU.
    """
    whole = len(queue) - len(queue) % _ALIGNMENT
    parts = queue[:whole].split(n_keys - n_keys % _ALIGNMENT)
    return [part for part in (*parts, queue[whole:]) if len(part)]
