#!/usr/bin/env python3
"""Writes the golden files beside this script, one per case, with PyTorch (2.x) and the safetensors package.

A file holds the inputs of one op under their names, dL/dy as `dy`, and what PyTorch computed from them: `expect.y`,
`expect.dx` for an input x, and `expect.running_mean` for a buffer the op moves. Its metadata names the `op` and its
`attributes` (JSON), as `athanor run-op` reads them. Inputs are f32; PyTorch computes in f64 and the result is rounded
once, so that a difference is ours. Images are [N, H, W, C] in the files: the permutations to PyTorch's [N, C, H, W]
are part of the graph PyTorch differentiates.
"""

import json
import pathlib
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def case(name, op, shapes, compute, attributes=None, buffers=(), given=None):
    """shapes: input name -> shape, drawn from a normal distribution; given: input name -> tensor.
    compute: inputs (a dict, f64) -> y. buffers: inputs without a gradient; written where compute moved them."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    inputs = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    inputs.update(given(generator) if callable(given) else given or {})

    work = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    wanted = [key for key, value in work.items() if value.is_floating_point() and key not in buffers]
    for key in wanted:
        work[key].requires_grad_()
    for key in buffers:
        work[key] = work[key].clone()
    y = compute(work)

    tensors = dict(inputs)
    tensors["expect.y"] = y
    if y.is_floating_point():
        tensors["dy"] = torch.randn(y.shape, generator=generator)
        gradients = torch.autograd.grad(y, [work[key] for key in wanted], tensors["dy"].double())
        tensors.update({f"expect.d{key}": gradient for key, gradient in zip(wanted, gradients)})
    for key in buffers:
        if not torch.equal(work[key], inputs[key].double()):
            tensors[f"expect.{key}"] = work[key]

    tensors = {
        key: (value.detach().float() if value.is_floating_point() else value).contiguous()
        for key, value in tensors.items()
    }
    metadata = {"op": op, "attributes": json.dumps(attributes or {}), "made_by": f"PyTorch {torch.__version__}, f64"}
    save_file(tensors, FOLDER / f"{name}.safetensors", metadata)


def conv(name, x, k, window, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, bias=True, activation="none"):
    def compute(t):
        y = F.conv2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), stride, padding, dilation, groups)
        return ACTIVATIONS[activation](nhwc(y))

    shapes = {"x": x, "w": (k, *window, x[3] // groups)} | ({"bias": (k,)} if bias else {})
    attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    case(f"conv2d_{name}", "conv2d", shapes, compute, attributes | {"activation": activation})


def convolutions():
    conv("plain", (2, 7, 6, 3), 5, (3, 3))
    conv("padded", (2, 6, 5, 4), 4, (3, 3), padding=(1, 1))
    conv("no_bias", (1, 6, 5, 4), 4, (3, 3), padding=(1, 1), bias=False)
    conv("pointwise", (2, 4, 5, 8), 6, (1, 1))
    conv("pointwise_strided", (2, 6, 5, 4), 8, (1, 1), stride=(2, 2))
    conv("strided", (2, 8, 7, 3), 4, (3, 3), stride=(2, 2), padding=(1, 1))
    conv("stem", (1, 15, 16, 3), 8, (7, 7), stride=(2, 2), padding=(3, 3))
    conv("uneven", (2, 9, 8, 2), 3, (5, 2), stride=(3, 1), padding=(2, 0), dilation=(1, 3))
    conv("dilated", (1, 9, 9, 4), 4, (3, 3), padding=(2, 2), dilation=(2, 2))
    conv("grouped", (2, 6, 6, 6), 8, (3, 3), padding=(1, 1), groups=2)
    conv("depthwise", (2, 6, 6, 8), 8, (3, 3), padding=(1, 1), groups=8)
    conv("depthwise_doubled", (1, 7, 6, 4), 8, (3, 3), stride=(2, 2), padding=(1, 1), groups=4)
    conv("grouped_dilated_strided", (1, 11, 10, 4), 6, (3, 3), (2, 2), (2, 2), (2, 2), 2)
    conv("window_is_image", (3, 5, 4, 2), 7, (5, 4))
    conv("wide_channels", (1, 4, 4, 33), 17, (3, 3), padding=(1, 1))
    for activation in ("relu", "gelu", "silu"):
        conv(activation, (2, 5, 6, 4), 6, (3, 3), padding=(1, 1), activation=activation)


def batch_norm(name, x, training, activation="none", affine=True, residual=False, momentum=0.1, eps=1e-5):
    c = x[-1]

    def compute(t):
        flat = t["x"].reshape(-1, c)
        y = F.batch_norm(flat, t["running_mean"], t["running_var"], t.get("gamma"), t.get("beta"),
                         training, momentum, eps).reshape(x)
        return ACTIVATIONS[activation](y + t["residual"] if residual else y)

    shapes = {"x": x} | ({"gamma": (c,), "beta": (c,)} if affine else {}) | ({"residual": x} if residual else {})
    case(f"batch_norm_{name}", "batch_norm", shapes, compute,
         {"training": training, "activation": activation, "momentum": momentum, "eps": eps},
         buffers=("running_mean", "running_var"),
         given=lambda g: {"running_mean": torch.randn(c, generator=g), "running_var": torch.rand(c, generator=g) + 0.5})


def layer_norm(name, x, axes=1, affine=True, eps=1e-5):
    d = x[len(x) - axes:]
    case(f"layer_norm_{name}", "layer_norm", {"x": x} | ({"gamma": d, "beta": d} if affine else {}),
         lambda t: F.layer_norm(t["x"], d, t.get("gamma"), t.get("beta"), eps), {"axes": axes, "eps": eps})


def norms():
    for training in (True, False):
        mode = "train" if training else "eval"
        batch_norm(mode, (3, 4, 5, 6), training)
        batch_norm(f"{mode}_relu", (3, 4, 5, 6), training, "relu")
        batch_norm(f"{mode}_relu_residual", (3, 4, 5, 6), training, "relu", residual=True)
        batch_norm(f"{mode}_residual", (2, 3, 3, 5), training, residual=True)
        batch_norm(f"{mode}_no_affine", (2, 3, 4, 5), training, affine=False)
    batch_norm("train_rows", (16, 9), True)
    batch_norm("train_silu", (2, 3, 4, 8), True, "silu")
    batch_norm("train_gelu_residual", (2, 3, 4, 8), True, "gelu", residual=True)
    batch_norm("train_momentum_eps", (2, 5, 4, 3), True, momentum=0.4, eps=1e-2)
    layer_norm("rows", (7, 12))
    layer_norm("sequence", (2, 5, 17))
    layer_norm("two_axes", (3, 4, 6), axes=2)
    layer_norm("no_affine", (4, 9), affine=False)
    layer_norm("eps", (4, 8), eps=0.1)


def pools():
    def pool(name, op, x, window, stride, padding=(0, 0), ceil_mode=False, count_padding=True, given=None):
        def compute(t):
            if op == "max_pool2d":
                return nhwc(F.max_pool2d(nchw(t["x"]), window, stride, padding, ceil_mode=ceil_mode))
            return nhwc(F.avg_pool2d(nchw(t["x"]), window, stride, padding, ceil_mode, count_padding))

        case(f"{op}_{name}", op, {} if given else {"x": x}, compute,
             {"window": window, "stride": stride, "padding": padding, "ceil_mode": ceil_mode,
              "count_padding": count_padding}, given=given)

    for op in ("max_pool2d", "avg_pool2d"):
        pool("halves", op, (2, 6, 8, 3), (2, 2), (2, 2))
        pool("odd_size", op, (2, 7, 5, 3), (2, 2), (2, 2))
        pool("overlapping", op, (2, 8, 7, 4), (3, 3), (2, 2), (1, 1))
        pool("ceil", op, (1, 7, 6, 3), (3, 2), (2, 3), (1, 0), ceil_mode=True)
    pool("padding_not_counted", "avg_pool2d", (2, 6, 5, 3), (3, 3), (2, 2), (1, 1), count_padding=False)
    pool("ties", "max_pool2d", None, (3, 3), (1, 1), (1, 1),
         given=lambda g: {"x": torch.randint(0, 3, (2, 5, 6, 3), generator=g).float()})
    for name, size in (("global", (1, 1)), ("uneven", (3, 2)), ("larger", (9, 7))):
        case(f"adaptive_avg_pool2d_{name}", "adaptive_avg_pool2d", {"x": (2, 7, 5, 3)},
             lambda t, size=size: nhwc(F.adaptive_avg_pool2d(nchw(t["x"]), size)),
             {"out_h": size[0], "out_w": size[1]})


def products():
    for activation in ACTIVATIONS:
        case(f"linear_{activation}", "linear", {"x": (5, 9), "w": (6, 9), "bias": (6,)},
             lambda t, a=activation: ACTIVATIONS[a](F.linear(t["x"], t["w"], t["bias"])), {"activation": activation})
    case("linear_no_bias", "linear", {"x": (5, 9), "w": (6, 9)}, lambda t: F.linear(t["x"], t["w"]))
    case("linear_sequence", "linear", {"x": (2, 3, 7), "w": (5, 7), "bias": (5,)},
         lambda t: F.linear(t["x"], t["w"], t["bias"]))
    for name, a, b in (("plain", (4, 7), (7, 5)), ("batched", (3, 4, 5), (3, 5, 6)), ("dot", (9,), (9,)),
                       ("broadcast", (2, 1, 3, 4), (5, 4, 2)), ("row", (6,), (6, 4)), ("column", (3, 5, 6), (6,)),
                       ("long", (2, 300), (300, 3))):
        case(f"matmul_{name}", "matmul", {"a": a, "b": b}, lambda t: torch.matmul(t["a"], t["b"]))


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
    for op, function in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):
        case(f"{op}_rows", op, {"x": (7, 11)}, lambda t, f=function: f(t["x"], -1), {"axis": -1})
        case(f"{op}_middle", op, {"x": (3, 6, 5)}, lambda t, f=function: f(t["x"], 1), {"axis": 1})


def pointwise():
    for op, function in (("relu", F.relu), ("silu", F.silu), ("sigmoid", torch.sigmoid), ("tanh", torch.tanh),
                         ("exp", torch.exp), ("square", torch.square), ("abs", torch.abs)):
        case(op, op, {}, lambda t, f=function: f(t["x"]), given=lambda g: {"x": 3 * torch.randn(9, 13, generator=g)})
    def spread(g):
        return {"x": 3 * torch.randn(9, 13, generator=g)}

    for op, function in (("hardswish", F.hardswish), ("hardsigmoid", F.hardsigmoid), ("mish", F.mish)):
        case(op, op, {}, lambda t, f=function: f(t["x"]), given=spread)
    for name, op, function, attributes in (
            ("leaky_relu", "leaky_relu", F.leaky_relu, {}),
            ("leaky_relu_slope", "leaky_relu", lambda x: F.leaky_relu(x, 0.2), {"slope": 0.2}),
            ("elu", "elu", F.elu, {}), ("elu_alpha", "elu", lambda x: F.elu(x, 0.5), {"alpha": 0.5}),
            ("softplus", "softplus", F.softplus, {}),
            ("softplus_beta", "softplus", lambda x: F.softplus(x, 2.5, 4), {"beta": 2.5, "threshold": 4.0}),
            ("clamp", "clamp", lambda x: torch.clamp(x, -1, 2), {"low": -1.0, "high": 2.0}),
            ("clamp_high", "clamp", lambda x: torch.clamp(x, max=0.5), {"high": 0.5})):
        case(name, op, {}, lambda t, f=function: f(t["x"]), attributes, given=spread)
    for form, approximate in (("erf", "none"), ("tanh", "tanh")):
        case(f"gelu_{form}", "gelu", {}, lambda t, a=approximate: F.gelu(t["x"], approximate=a), {"form": form},
             given=lambda g: {"x": 3 * torch.randn(9, 13, generator=g)})
    for op, function in (("log", torch.log), ("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt)):
        case(op, op, {}, lambda t, f=function: f(t["x"]), given=lambda g: {"x": torch.rand(9, 13, generator=g) + 0.1})
    for op, function in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul)):
        case(op, op, {"a": (5, 7), "b": (5, 7)}, lambda t, f=function: f(t["a"], t["b"]))
        case(f"{op}_broadcast", op, {"a": (2, 3, 1, 5), "b": (4, 1)}, lambda t, f=function: f(t["a"], t["b"]))
    for op, function in (("maximum", torch.maximum), ("minimum", torch.minimum)):
        case(op, op, {"a": (2, 3, 1, 5), "b": (4, 1)}, lambda t, f=function: f(t["a"], t["b"]))
    case("maximum_ties", "maximum", {}, lambda t: torch.maximum(t["a"], t["b"]),
         given=lambda g: {key: torch.randint(0, 3, (6, 7), generator=g).float() for key in "ab"})
    case("pow", "pow", {"b": (4, 1)}, lambda t: torch.pow(t["a"], t["b"]),
         given=lambda g: {"a": torch.rand(3, 1, 5, generator=g) + 0.1})
    case("pow_number", "pow", {"a": (5, 7)}, lambda t: torch.pow(t["a"], 3), {"number": 3.0})
    case("div", "div", {"a": (5, 1, 7)}, lambda t: t["a"] / t["b"],
         given=lambda g: {"b": torch.rand(3, 7, generator=g) + 0.5})
    case("affine", "affine", {"x": (5, 7)}, lambda t: t["x"] * 0.75 - 2, {"scale": 0.75, "shift": -2.0})


def reductions():
    for op, function in (("sum", torch.sum), ("mean", torch.mean)):
        case(f"{op}_all", op, {"x": (4, 5, 6)}, lambda t, f=function: f(t["x"]))
        case(f"{op}_axes", op, {"x": (4, 5, 6)}, lambda t, f=function: f(t["x"], (0, 2)), {"axes": [0, 2]})
        case(f"{op}_keepdim", op, {"x": (4, 5, 6)}, lambda t, f=function: f(t["x"], 1, keepdim=True),
             {"axes": [1], "keepdim": True})
    case("var_all", "var", {"x": (4, 5, 6)}, lambda t: torch.var(t["x"]))
    case("var_biased", "var", {"x": (4, 5, 6)}, lambda t: torch.var(t["x"], (1,), correction=0),
         {"axes": [1], "correction": 0})
    case("max_last", "max", {"x": (4, 5, 6)}, lambda t: torch.max(t["x"], -1).values, {"axis": -1})
    case("max_keepdim", "max", {"x": (4, 5, 6)}, lambda t: torch.max(t["x"], 0, keepdim=True).values,
         {"axis": 0, "keepdim": True})
    case("max_of_all", "max", {}, lambda t: torch.max(t["x"]),
         given=lambda g: {"x": torch.randint(0, 9, (4, 5, 6), generator=g).float()})
    case("argmax_of_all", "argmax", {"x": (4, 5, 6)}, lambda t: torch.argmax(t["x"]))
    for name, axis, largest in (("largest", -1, True), ("smallest", 1, False)):
        case(f"topk_{name}", "topk", {"x": (4, 5, 6)},
             lambda t, a=axis, l=largest: torch.topk(t["x"], 3, a, l).values, {"k": 3, "axis": axis, "largest": largest})
    case("topk_indices", "topk", {"x": (4, 5, 6)}, lambda t: torch.topk(t["x"], 2, 0).indices,
         {"k": 2, "axis": 0, "result": "indices"})
    for op, function in (("any", torch.any), ("all", torch.all)):
        case(op, op, {}, lambda t, f=function: f(t["x"], 1), {"axes": [1]},
             given=lambda g: {"x": torch.rand(9, 2, 4, generator=g) > 0.5})
    case("argmax", "argmax", {"x": (4, 5, 6)}, lambda t: torch.argmax(t["x"], 1), {"axis": 1})


def comparisons():
    def small(g):
        return {"a": torch.randint(-2, 3, (4, 1, 5), generator=g).float(),
                "b": torch.randint(-2, 3, (3, 5), generator=g).float()}

    for op in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
        case(op, op, {}, lambda t, f=getattr(torch, op): f(t["a"], t["b"]), given=small)
    case("logical_not", "logical_not", {}, lambda t: torch.logical_not(t["x"]), given=lambda g: {"x": small(g)["a"]})
    case("gt_number", "gt", {}, lambda t: torch.gt(t["a"], 0.5), {"number": 0.5}, given=lambda g: {"a": small(g)["a"]})


def shapes():
    case("index_select", "index_select", {"x": (5, 4, 3)}, lambda t: torch.index_select(t["x"], 1, t["index"]),
         {"axis": 1}, given={"index": torch.tensor([3, 0, 3, 1, 1])})
    case("gather", "gather", {"x": (4, 6)}, lambda t: torch.gather(t["x"], 1, t["index"]), {"axis": 1},
         given=lambda g: {"index": torch.randint(0, 6, (4, 3), generator=g)})
    case("where", "where", {"a": (4, 1, 5), "b": (3, 5)}, lambda t: torch.where(t["condition"], t["a"], t["b"]),
         given=lambda g: {"condition": torch.rand(3, 5, generator=g) > 0.5})


if __name__ == "__main__":
    for old in FOLDER.glob("*.safetensors"):
        old.unlink()
    for family in (convolutions, norms, pools, products, losses, pointwise, reductions, comparisons, shapes):
        family()
    files = list(FOLDER.glob("*.safetensors"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files) / 1024:.0f} KiB")
