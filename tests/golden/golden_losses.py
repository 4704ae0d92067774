"""Golden files of losses and similarities: called by make_goldens.py."""

import torch
import torch.nn.functional as F

from golden_case import case


def cross_entropies():
    """Classes come last in ours, second in PyTorch's."""
    def weighted(name, shape, target, smoothing=0.0, ignored=None, weight=True, reduction="mean"):
        def given(g):
            made = {"target": target(g, shape)}
            return made | ({"weight": torch.rand(shape[-1], generator=g) + 0.5} if weight else {})

        def compute(t):
            x = t["logits"].movedim(-1, 1)
            q = t["target"].movedim(-1, 1) if t["target"].is_floating_point() else t["target"]
            more = {} if ignored is None else {"ignore_index": ignored}
            return F.cross_entropy(x, q, t.get("weight"), label_smoothing=smoothing, reduction=reduction, **more)

        attributes = {"label_smoothing": smoothing, "reduction": reduction}
        attributes |= {} if ignored is None else {"ignore_index": ignored}
        case(f"cross_entropy_{name}", "cross_entropy", {"logits": shape}, compute, attributes,
             buffers=("weight",) if weight else (), given=given)

    def classes(g, shape):
        return torch.randint(0, shape[-1], shape[:-1], generator=g)

    def bytes_some_ignored(g, shape):
        return torch.where(torch.rand(shape[:-1], generator=g) < 0.3, 255, classes(g, shape))

    def shares(g, shape):
        return torch.rand(shape, generator=g).softmax(-1)

    for reduction in ("mean", "sum", "none"):
        weighted(f"weighted_{reduction}", (6, 10), classes, reduction=reduction)
        weighted(f"distribution_{reduction}", (6, 10), shares, weight=False, reduction=reduction)
    weighted("weighted_smoothed", (6, 10), classes, 0.1)
    weighted("image", (2, 3, 4, 5), classes, weight=False)
    weighted("image_ignored", (2, 3, 4, 5), bytes_some_ignored, ignored=255, weight=False)
    weighted("image_ignored_weighted_smoothed", (2, 3, 4, 5), bytes_some_ignored, 0.1, 255)
    weighted("distribution_weighted_smoothed", (6, 10), shares, 0.1)
    weighted("image_distribution", (2, 3, 4, 5), shares, reduction="none")


def pairs():
    def pair(name, op, function, attributes=None, given=None, names=("a", "b"), buffers=()):
        case(name, op, {} if given else {key: (4, 5) for key in names},
             lambda t: function(t[names[0]], t[names[1]], t), attributes, buffers, given)

    for reduction in ("mean", "sum", "none"):
        r = {"reduction": reduction}
        pair(f"l1_loss_{reduction}", "l1_loss", lambda a, b, t, r=r: F.l1_loss(a, b, **r), r)
        pair(f"smooth_l1_loss_{reduction}", "smooth_l1_loss",
             lambda a, b, t, r=r: F.smooth_l1_loss(a, b, beta=0.75, **r), r | {"beta": 0.75})
        pair(f"huber_loss_{reduction}", "huber_loss", lambda a, b, t, r=r: F.huber_loss(a, b, delta=0.75, **r),
             r | {"delta": 0.75})
    for reduction in ("mean", "batchmean", "sum", "none"):
        for log_target in (False, True):
            both = {"reduction": reduction, "log_target": log_target}
            pair(f"kl_div_{reduction}" + ("_log" if log_target else ""), "kl_div",
                 lambda a, b, t, k=both: F.kl_div(a, b, **k), both, names=("input", "target"),
                 given=lambda g, log=log_target: {
                     "input": torch.randn(4, 5, generator=g).log_softmax(-1),
                     "target": (torch.randn(4, 5, generator=g).log_softmax(-1) if log
                                else torch.randn(4, 5, generator=g).softmax(-1))})

    def bce(name, reduction, weights=(), target=None):
        shapes = {"weight": (4, 1), "pos_weight": (5,)}

        def given(g):
            made = {"logits": 3 * torch.randn(4, 5, generator=g)}
            if target is None:
                made["target"] = torch.rand(4, 5, generator=g)
            return made | {key: torch.rand(shapes[key], generator=g) + 0.5 for key in weights}

        def compute(t):
            q = t["target"] if target is None else torch.full_like(t["logits"], target)
            return F.binary_cross_entropy_with_logits(t["logits"], q, t.get("weight"), None, None, reduction,
                                                      t.get("pos_weight"))

        case(f"bce_with_logits_{name}", "bce_with_logits", {}, compute,
             {"reduction": reduction} | ({} if target is None else {"target": target}), weights, given)

    for reduction in ("mean", "sum", "none"):
        bce(reduction, reduction)
        bce(f"{reduction}_weighted", reduction, ("weight", "pos_weight"))
    bce("pos_weight", "mean", ("pos_weight",))
    bce("one_target", "mean", target=0.9)


def similarities():
    for name, axis in (("rows", 1), ("columns", 0)):
        case(f"cosine_similarity_{name}", "cosine_similarity", {"a": (4, 6), "b": (4, 6)},
             lambda t, axis=axis: F.cosine_similarity(t["a"], t["b"], axis), {"axis": axis})
    case("cosine_similarity_all_pairs", "cosine_similarity", {"a": (4, 1, 6), "b": (1, 3, 6)},
         lambda t: F.cosine_similarity(t["a"], t["b"], -1), {"axis": -1})
    for reduction in ("mean", "none"):
        for swap in (False, True):
            options = {"margin": 1.5, "swap": swap, "reduction": reduction}
            case(f"triplet_margin_loss_{reduction}" + ("_swap" if swap else ""), "triplet_margin_loss",
                 {key: (7, 4) for key in ("anchor", "positive", "negative")},
                 lambda t, o=options: F.triplet_margin_loss(t["anchor"], t["positive"], t["negative"], **o), options)

    def nt_xent(t, temperature):
        rows = F.normalize(torch.cat((t["a"], t["b"])))
        n = len(rows)
        logits = (rows @ rows.T / temperature).masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
        return F.cross_entropy(logits, (torch.arange(n) + n // 2) % n)

    case("nt_xent_loss", "nt_xent_loss", {"a": (5, 7), "b": (5, 7)}, lambda t: nt_xent(t, 0.25), {"temperature": 0.25})


def losses():
    def target(n, c):
        return lambda g: {"target": torch.randint(0, c, (n,), generator=g)}

    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.1):
            name = f"cross_entropy_{reduction}" + ("_smoothed" if smoothing else "")
            case(name, "cross_entropy", {"logits": (6, 10)},
                 lambda t, r=reduction, s=smoothing: F.cross_entropy(t["logits"], t["target"], reduction=r,
                                                                     label_smoothing=s),
                 {"reduction": reduction, "label_smoothing": smoothing}, given=target(6, 10))
        case(f"nll_loss_{reduction}", "nll_loss", {"log_probs": (6, 10)},
             lambda t, r=reduction: F.nll_loss(t["log_probs"], t["target"], reduction=r),
             {"reduction": reduction}, given=target(6, 10))
        case(f"mse_loss_{reduction}", "mse_loss", {"a": (4, 5), "b": (4, 5)},
             lambda t, r=reduction: F.mse_loss(t["a"], t["b"], reduction=r), {"reduction": reduction})
    case("cross_entropy_large_logits", "cross_entropy", {},
         lambda t: F.cross_entropy(t["logits"], t["target"]),
         given=lambda g: {"logits": 200 * torch.randn(6, 10, generator=g)} | target(6, 10)(g))
    cross_entropies()
    pairs()
    for op, function in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):
        case(f"{op}_rows", op, {"x": (7, 11)}, lambda t, f=function: f(t["x"], -1), {"axis": -1})
        case(f"{op}_middle", op, {"x": (3, 6, 5)}, lambda t, f=function: f(t["x"], 1), {"axis": 1})
