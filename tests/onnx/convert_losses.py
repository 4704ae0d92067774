"""Losses and attention: how each is made of our ops."""

import numpy as np

from run_op import Cannot


def classes_last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def cross_entropy(node, run):
    logits, target, weight = classes_last(node.input(0)), node.input(1), node.input(2)
    ignored, classes = node.get("ignore_index"), logits.shape[-1]
    attributes = {"reduction": node.get("reduction", "mean")}
    if ignored is not None and not 0 <= ignored < classes:
        # Not a class: one that the others do not have takes its place, where there is one.
        free = sorted(set(range(classes)) - set(np.unique(target).tolist()))
        if (target == ignored).any():
            if not free:
                raise Cannot("ignored targets outside the classes")
            target = np.where(target == ignored, free[0], target)
            attributes["ignore_index"] = free[0]
    elif ignored is not None:
        attributes["ignore_index"] = int(ignored)
    loss = run.all("cross_entropy", {"logits": logits, "target": target, "weight": weight}, **attributes)["y"]
    return [loss, np.moveaxis(run("log_softmax", logits), -1, 1)]


def nll(node, run):
    logs, target, weight = classes_last(node.input(0)), node.input(1), node.input(2)
    ignored, reduction = node.get("ignore_index"), node.get("reduction", "mean")
    if ignored is not None:
        raise Cannot("ignore_index")
    losses = run("neg", run("squeeze", run("gather", logs, axis=-1, index=target[..., None]), axis=-1))
    count = None
    if weight is not None:
        count = run("index_select", weight, axis=0, index=target.reshape(-1)).reshape(target.shape)
        losses = run.pair("mul", losses, count)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return run("sum", losses)
    return run("mean", losses) if count is None else run.pair("div", run("sum", losses), run("sum", count))


def heads(x, count):
    """[B, T, heads D] -> [B, heads, T, D]; four axes stay."""
    if x.ndim == 4:
        return x
    if not count:
        raise Cannot("heads without a number")
    return np.ascontiguousarray(x.reshape(x.shape[0], x.shape[1], count, -1).swapaxes(1, 2))


def attention(node, run):
    q, k, v = (heads(node.input(i), node.get(name)) for i, name in
               enumerate(("q_num_heads", "kv_num_heads", "kv_num_heads")))
    mask = node.input(3)
    if node.get("softcap", 0) or len(node.outputs) > 3 or node.input(6) is not None or node.get("left_window_size") is not None:
        raise Cannot("softcap, the scores as a result, or lengths that differ")
    if node.input(4) is not None:
        k, v = (run("cat", axis=2, x0=node.input(i), x1=x) for i, x in ((4, k), (5, v)))
    results = [k, v]
    causal = bool(node.get("is_causal", 0))
    if causal and (mask is not None or node.input(4) is not None or q.shape[2] > k.shape[2]):
        raise Cannot("a causal mask and another one")
    if k.shape[1] != q.shape[1]:
        at = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
        k, v = (run("index_select", x, axis=1, index=at.astype(np.int64)) for x in (k, v))
    if mask is not None and mask.dtype != np.bool_ and mask.dtype != q.dtype:
        raise Cannot(f"a mask of {mask.dtype} for {q.dtype}")
    if mask is not None and mask.shape[-1] != k.shape[2]:
        raise Cannot("a mask for fewer keys")
    y = run.all("scaled_dot_product_attention", {"q": q, "k": k, "v": v, "mask": mask}, causal=causal,
                scale=node.get("scale", 0.0))["y"]
    if node.input(0).ndim == 3:
        y = y.swapaxes(1, 2).reshape(node.input(0).shape[0], node.input(0).shape[1], -1)
    return [y, *results]


CONVERTERS = {"SoftmaxCrossEntropyLoss": cross_entropy, "NegativeLogLikelihoodLoss": nll, "Attention": attention}
