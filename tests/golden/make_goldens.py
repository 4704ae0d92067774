#!/usr/bin/env python3
"""Writes the golden files beside this script, one per case, with PyTorch (2.x) and the safetensors package.
golden_case.py says what a file holds."""

import torch
import torch.nn.functional as F

from golden_case import ACTIVATIONS, FOLDER, case, nchw, nhwc
from golden_losses import losses, similarities


def conv(name, x, k, window, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, bias=True, activation="none"):
    same = padding == "same"

    def compute(t):
        y = F.conv2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), stride, padding, dilation, groups)
        return ACTIVATIONS[activation](nhwc(y))

    shapes = {"x": x, "w": (k, *window, x[3] // groups)} | ({"bias": (k,)} if bias else {})
    attributes = {"stride": stride, "dilation": dilation, "groups": groups}
    attributes |= {"same_padding": True} if same else {"padding": padding}
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
    conv("same", (2, 5, 6, 3), 4, (4, 3), padding="same")
    conv("same_dilated", (1, 7, 4, 4), 6, (2, 4), padding="same", dilation=(3, 1), groups=2)
    for activation in ("relu", "gelu", "silu"):
        conv(activation, (2, 5, 6, 4), 6, (3, 3), padding=(1, 1), activation=activation)


def conv_transpose(name, x, k, window, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1), groups=1,
                   bias=True):
    shapes = {"x": x, "w": (x[3], *window, k // groups)} | ({"bias": (k,)} if bias else {})
    case(f"conv_transpose2d_{name}", "conv_transpose2d", shapes,
         lambda t: nhwc(F.conv_transpose2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), stride, padding, output_padding,
                                           groups, dilation)),
         {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation,
          "groups": groups})


def transposed_convolutions():
    conv_transpose("from_one_pixel", (3, 1, 1, 5), 6, (7, 7))
    conv_transpose("doubled", (2, 5, 4, 6), 3, (4, 4), stride=(2, 2), padding=(1, 1))
    conv_transpose("no_bias", (1, 4, 5, 4), 4, (3, 3), padding=(1, 1), bias=False)
    conv_transpose("pointwise", (2, 4, 5, 8), 6, (1, 1))
    conv_transpose("output_padding", (2, 4, 5, 3), 4, (3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))
    conv_transpose("uneven", (2, 3, 4, 2), 3, (5, 2), (3, 1), (2, 0), (2, 1), (1, 3))
    conv_transpose("grouped", (2, 4, 4, 6), 8, (3, 3), stride=(2, 2), groups=2)
    conv_transpose("depthwise", (1, 5, 4, 8), 8, (4, 4), stride=(2, 2), padding=(1, 1), groups=8)
    conv_transpose("padding_beyond_stride", (1, 4, 4, 2), 3, (1, 1), output_padding=(1, 2), dilation=(2, 3))
    conv_transpose("wide_channels", (1, 4, 4, 33), 17, (3, 3), padding=(1, 1))


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


def group_norm(name, x, groups, affine=True, eps=1e-5):
    c = (x[-1],)
    op = "group_norm" if groups else "instance_norm"

    def compute(t):
        images, gamma, beta = t["x"].movedim(-1, 1), t.get("gamma"), t.get("beta")
        if groups:
            return F.group_norm(images, groups, gamma, beta, eps).movedim(1, -1)
        return F.instance_norm(images, weight=gamma, bias=beta, eps=eps).movedim(1, -1)

    case(f"{op}_{name}", op, {"x": x} | ({"gamma": c, "beta": c} if affine else {}), compute,
         {"eps": eps} | ({"groups": groups} if groups else {}))


def norms():
    group_norm("images", (2, 4, 5, 6), 3)
    group_norm("one_group", (3, 3, 4, 5), 1)
    group_norm("no_affine", (2, 5, 4, 8), 4, affine=False)
    group_norm("sequence_eps", (2, 7, 6), 2, eps=0.1)
    group_norm("rows", (5, 12), 4)
    group_norm("affine", (2, 4, 5, 3), 0)
    group_norm("plain", (3, 5, 4, 7), 0, affine=False)
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
    case("max_pool2d_dilated", "max_pool2d", {"x": (2, 9, 8, 3)},
         lambda t: nhwc(F.max_pool2d(nchw(t["x"]), (3, 2), (2, 1), (1, 1), (2, 3))),
         {"window": (3, 2), "stride": (2, 1), "padding": (1, 1), "dilation": (2, 3)})
    images = torch.randn((2, 3, 6, 8), generator=torch.Generator().manual_seed(1))
    case("max_unpool2d", "max_unpool2d", {"x": (2, 3, 4, 3)},
         lambda t: nhwc(F.max_unpool2d(nchw(t["x"]), nchw(t["indices"]), 2, output_size=(6, 8))),
         {"out_h": 6, "out_w": 8}, given={"indices": nhwc(F.max_pool2d(images, 2, return_indices=True)[1])})
    for name, size in (("global", (1, 1)), ("uneven", (3, 2)), ("larger", (9, 7))):
        case(f"adaptive_avg_pool2d_{name}", "adaptive_avg_pool2d", {"x": (2, 7, 5, 3)},
             lambda t, size=size: nhwc(F.adaptive_avg_pool2d(nchw(t["x"]), size)),
             {"out_h": size[0], "out_w": size[1]})


def resampling():
    def resample(name, x, mode, align_corners=None, size=None, scale=None):
        attributes = {"mode": mode} | ({"align_corners": True} if align_corners else {})
        attributes |= {"size": size} if size else {"scale": [float(s) for s in scale]}
        case(f"interpolate_{mode}_{name}", "interpolate", {"x": x},
             lambda t: nhwc(F.interpolate(nchw(t["x"]), size, scale, mode, align_corners)), attributes)

    for mode in ("nearest", "bilinear"):
        resample("doubled", (2, 4, 5, 3), mode, scale=(2, 2))
        resample("scales", (1, 6, 4, 2), mode, scale=(1.7, 0.6))
        resample("size", (1, 5, 7, 4), mode, size=(8, 3))
    resample("aligned", (2, 4, 3, 3), "bilinear", True, size=(7, 9))
    resample("aligned_smaller", (1, 6, 5, 2), "bilinear", True, size=(1, 3))
    case("pixel_shuffle", "pixel_shuffle", {"x": (2, 3, 4, 18)}, lambda t: nhwc(F.pixel_shuffle(nchw(t["x"]), 3)),
         {"r": 3})
    case("pixel_unshuffle", "pixel_unshuffle", {"x": (2, 4, 6, 3)},
         lambda t: nhwc(F.pixel_unshuffle(nchw(t["x"]), 2)), {"r": 2})


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


def attentions():
    def attention(name, attributes=None, mask=None, q=(2, 3, 4, 5), k=(2, 3, 6, 5), v=(2, 3, 6, 7)):
        def compute(t):
            return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], t.get("mask"), 0.0,
                                                  (attributes or {}).get("causal", False),
                                                  scale=(attributes or {}).get("scale"))

        case(f"scaled_dot_product_attention_{name}", "scaled_dot_product_attention", {"q": q, "k": k, "v": v},
             compute, attributes, given=mask)

    attention("plain")
    attention("scaled", {"scale": 0.3})
    attention("causal", {"causal": True})
    attention("causal_fewer_keys", {"causal": True}, k=(2, 3, 2, 5), v=(2, 3, 2, 7))
    attention("added_mask", mask=lambda g: {"mask": torch.randn(3, 1, 6, generator=g)})
    attention("bool_mask", mask=lambda g: {"mask": torch.rand(2, 1, 4, 6, generator=g) > 0.4})
    attention("query_without_keys", mask={"mask": torch.tensor([1, 0, 1, 1]).bool()[:, None].expand(4, 6)})
    attention("one_head", q=(4, 5), k=(6, 5), v=(6, 3))


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
    for op, function in (("floor_divide", lambda a, b: torch.div(a, b, rounding_mode="floor")),
                         ("remainder", torch.remainder)):
        case(op, op, {}, lambda t, f=function: f(t["a"], t["b"]),
             given=lambda g: {"a": 5 * torch.randn(5, 1, 7, generator=g), "b": torch.randn(3, 7, generator=g)})
        case(f"{op}_number", op, {}, lambda t, f=function: f(t["a"], -1.5), {"number": -1.5},
             given=lambda g: {"a": 5 * torch.randn(5, 7, generator=g)})
        case(f"{op}_integers", op, {}, lambda t, f=function: f(t["a"], t["b"]),
             given=lambda g: {"a": torch.randint(-50, 50, (6, 7), generator=g),
                              "b": torch.tensor([[1], [-1], [7], [-7], [2], [-60]])})
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


def views():
    def view(op, function, attributes, x=(2, 3, 4)):
        case(op, op, {"x": x}, lambda t: function(t["x"]), attributes)

    view("reshape", lambda x: x.reshape(4, 6), {"shape": [4, -1]})
    view("flatten", lambda x: x.flatten(1), {})
    view("permute", lambda x: x.permute(2, 0, 1), {"order": [2, 0, 1]})
    view("narrow", lambda x: x.narrow(2, 1, 2), {"axis": -1, "start": 1, "length": 2})
    view("select", lambda x: x.select(1, -1), {"axis": 1, "index": -1})
    view("squeeze", lambda x: x.squeeze(1), {"axis": 1}, (2, 1, 4))
    view("unsqueeze", lambda x: x.unsqueeze(-1), {"axis": -1})
    view("expand", lambda x: x.expand(2, 3, 4), {"shape": [2, 3, 4]}, (3, 1))
    view("contiguous", torch.clone, {})
    view("clone", torch.clone, {})
    view("cast", torch.clone, {"dtype": "f32"})
    view("neg", torch.neg, {})
    for op, function in (("cat", torch.cat), ("stack", torch.stack)):
        case(op, op, {"x0": (2, 3), "x1": (2, 3)}, lambda t, f=function: f([t["x0"], t["x1"]], 1), {"axis": 1})


if __name__ == "__main__":
    for old in FOLDER.glob("*.safetensors"):
        old.unlink()
    for family in (convolutions, transposed_convolutions, norms, pools, resampling, products, losses, similarities, attentions,
                   pointwise, reductions, comparisons, shapes, views):
        family()
    files = list(FOLDER.glob("*.safetensors"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files) / 1024:.0f} KiB")
