#!/usr/bin/env python3
"""Runs the cases that `random_ops --dump FOLDER` has written with PyTorch, dtype for dtype, forward and backward.

FOLDER/N.safetensors -> FOLDER/N.peer.safetensors, which `random_ops --measure FOLDER` compares with its reference.
What PyTorch refuses is left out. Images are [N, H, W, C] in the files; the permutations are part of what is run.
"""

import collections
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
          "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "i8": torch.int8, "bool": torch.bool}
ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "relu6": F.relu6,
               "hardswish": F.hardswish}


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def activated(y, a):
    return ACTIVATIONS[a.get("activation", "none")](y)


def unary(f):
    return lambda t, a: f(t["x"])


def binary(f):
    return lambda t, a: f(t["a"], t["b"] if "b" in t else a["number"])


def over_axes(f):
    return lambda t, a: f(t["x"], a["axes"] or tuple(range(t["x"].dim())), a["keepdim"])


def var(t, a):
    if not a["axes"]:
        y = torch.var(t["x"], correction=a["correction"])
        return y.reshape([1] * t["x"].dim()) if a["keepdim"] else y
    return torch.var(t["x"], a["axes"], correction=a["correction"], keepdim=a["keepdim"])


def largest(t, a):
    return torch.max(t["x"], a["axis"], a["keepdim"]).values if "axis" in a else torch.max(t["x"])


def argmax(t, a):
    return torch.argmax(t["x"], a["axis"], a["keepdim"]) if "axis" in a else torch.argmax(t["x"])


def topk(t, a):
    found = torch.sort(t["x"], dim=a["axis"], descending=a["largest"], stable=True)
    chosen = found.values if a["result"] == "values" else found.indices
    return chosen.narrow(a["axis"], 0, a["k"])


def batch_norm(t, a):
    x = t["x"].movedim(-1, 1)
    y = F.batch_norm(x, t["running_mean"], t["running_var"], t.get("gamma"), t.get("beta"), a["training"],
                     a.get("momentum", 0.1), a["eps"]).movedim(1, -1)
    return activated(y + t["residual"] if "residual" in t else y, a)


def layer_norm(t, a):
    return F.layer_norm(t["x"], t["x"].shape[-a["axes"]:], t.get("gamma"), t.get("beta"), a["eps"])


def group_norm(t, a):
    x = t["x"].movedim(-1, 1)
    return F.group_norm(x, a.get("groups", x.shape[1]), t.get("gamma"), t.get("beta"), a["eps"]).movedim(1, -1)


def cross_entropy(t, a):
    logits, target = t["logits"], t["target"]
    distribution = target.is_floating_point()
    if logits.dim() > 2:
        logits = logits.movedim(-1, 1)
        target = target.movedim(-1, 1) if distribution else target
    weight = t["weight"].detach().to(logits.dtype) if "weight" in t else None
    return F.cross_entropy(logits, target if distribution else target.long(), weight, reduction=a["reduction"],
                           ignore_index=a.get("ignore_index", -100), label_smoothing=a.get("label_smoothing", 0.0))


def distance(f, **names):
    return lambda t, a: f(t["a"], t["b"], reduction=a["reduction"], **{name: a[key] for name, key in names.items()})


def kl_div(t, a):
    return F.kl_div(t["input"], t["target"], reduction=a["reduction"], log_target=a["log_target"])


def bce(t, a):
    x = t["logits"]
    target = t["target"] if "target" in t else torch.full_like(x, a["target"])
    weights = {name: t[name].detach().to(x.dtype) for name in ("weight", "pos_weight") if name in t}
    return F.binary_cross_entropy_with_logits(x, target, reduction=a["reduction"], **weights)


def cosine(t, a):
    return F.cosine_similarity(t["a"], t["b"], a["axis"], a["eps"])


def triplet(t, a):
    return F.triplet_margin_loss(t["anchor"], t["positive"], t["negative"], a["margin"], 2.0, a["eps"], a["swap"],
                                 reduction=a["reduction"])


def nt_xent(t, a):
    rows = F.normalize(torch.cat([t["a"], t["b"]]), dim=1, eps=1e-8)
    n = len(t["a"])
    logits = (rows @ rows.T / a["temperature"]).masked_fill(torch.eye(2 * n, dtype=torch.bool), -math.inf)
    return F.cross_entropy(logits, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def linear(t, a):
    return activated(F.linear(t["x"], t["w"], t.get("bias")), a)


def attention(t, a):
    return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], t.get("mask"), is_causal=a.get("causal", False),
                                          scale=a.get("scale"))


def conv2d(t, a):
    padding = "same" if a["same_padding"] else a["padding"]
    y = F.conv2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), a["stride"], padding, a["dilation"], a["groups"])
    return activated(nhwc(y), a)


def conv_transpose2d(t, a):
    return nhwc(F.conv_transpose2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), a["stride"], a["padding"],
                                   a["output_padding"], a["groups"], a["dilation"]))


def max_pool2d(t, a):
    y, indices = F.max_pool2d(nchw(t["x"]), a["window"], a["stride"], a["padding"], a["dilation"], a["ceil_mode"], True)
    return nhwc(y if a["result"] == "values" else indices)


def avg_pool2d(t, a):
    return nhwc(F.avg_pool2d(nchw(t["x"]), a["window"], a["stride"], a["padding"], a["ceil_mode"], a["count_padding"]))


def adaptive_avg_pool2d(t, a):
    return nhwc(F.adaptive_avg_pool2d(nchw(t["x"]), (a["out_h"], a["out_w"])))


def interpolate(t, a):
    corners = {"align_corners": a.get("align_corners", False)} if a["mode"] == "bilinear" else {}
    return nhwc(F.interpolate(nchw(t["x"]), a.get("size"), a.get("scale"), a["mode"], **corners))


def parts(t):
    return [t[f"x{i}"] for i in range(sum(name[0] == "x" for name in t))]


def index(t):
    return t["index"].long()


OPS = {
    "affine": lambda t, a: t["x"] * a["scale"] + a["shift"],
    "leaky_relu": lambda t, a: F.leaky_relu(t["x"], a["slope"]),
    "elu": lambda t, a: F.elu(t["x"], a["alpha"]),
    "softplus": lambda t, a: F.softplus(t["x"], a["beta"], a["threshold"]),
    "clamp": lambda t, a: torch.clamp(t["x"], a.get("low"), a.get("high")),
    "gelu": unary(F.gelu),
    "gelu_tanh": unary(lambda x: F.gelu(x, approximate="tanh")),
    "where": lambda t, a: torch.where(t["condition"], t["a"], t["b"]),
    "pow": binary(torch.pow),
    "sum": over_axes(torch.sum), "mean": over_axes(torch.mean), "var": var,
    "any": over_axes(torch.any), "all": over_axes(torch.all),
    "max": largest, "argmax": argmax, "topk": topk,
    "softmax": lambda t, a: torch.softmax(t["x"], a["axis"]),
    "log_softmax": lambda t, a: torch.log_softmax(t["x"], a["axis"]),
    "batch_norm": batch_norm, "layer_norm": layer_norm, "group_norm": group_norm, "instance_norm": group_norm,
    "cross_entropy": cross_entropy,
    "nll_loss": lambda t, a: F.nll_loss(t["log_probs"], t["target"], reduction=a["reduction"]),
    "mse_loss": distance(F.mse_loss), "l1_loss": distance(F.l1_loss),
    "smooth_l1_loss": distance(F.smooth_l1_loss, beta="beta"), "huber_loss": distance(F.huber_loss, delta="delta"),
    "kl_div": kl_div, "bce_with_logits": bce,
    "cosine_similarity": cosine, "triplet_margin_loss": triplet, "nt_xent_loss": nt_xent,
    "matmul": binary(torch.matmul), "linear": linear, "scaled_dot_product_attention": attention,
    "conv2d": conv2d, "conv_transpose2d": conv_transpose2d,
    "max_pool2d": max_pool2d, "avg_pool2d": avg_pool2d, "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "max_unpool2d": None,  # refused: PyTorch keeps one of the values that meet at an index, not their sum
    "interpolate": interpolate,
    "pixel_shuffle": lambda t, a: nhwc(F.pixel_shuffle(nchw(t["x"]), a["r"])),
    "pixel_unshuffle": lambda t, a: nhwc(F.pixel_unshuffle(nchw(t["x"]), a["r"])),
    "reshape": lambda t, a: t["x"].reshape(a["shape"]),
    "flatten": lambda t, a: t["x"].flatten(a["start"], a["end"]),
    "permute": lambda t, a: t["x"].permute(a["order"]),
    "narrow": lambda t, a: t["x"].narrow(a["axis"], a["start"], a["length"]),
    "select": lambda t, a: t["x"].select(a["axis"], a["index"]),
    "squeeze": lambda t, a: t["x"].squeeze(a["axis"]),
    "unsqueeze": lambda t, a: t["x"].unsqueeze(a["axis"]),
    "expand": lambda t, a: t["x"].expand(a["shape"]),
    "contiguous": unary(lambda x: x.contiguous()),
    "clone": unary(torch.clone),
    "cast": lambda t, a: t["x"].to(DTYPES[a["dtype"]]),
    "cat": lambda t, a: torch.cat(parts(t), a["axis"]),
    "stack": lambda t, a: torch.stack(parts(t), a["axis"]),
    "index_select": lambda t, a: t["x"].index_select(a["axis"], index(t)),
    "gather": lambda t, a: t["x"].gather(a["axis"], index(t)),
}


def hardsigmoid(t, a):
    if t["x"].dtype == torch.float64:
        raise ValueError("its gradient is rounded to f32")
    return F.hardsigmoid(t["x"])


OPS["hardsigmoid"] = hardsigmoid
for name in ("silu", "mish", "hardswish", "relu", "relu6"):
    OPS[name] = unary(getattr(F, name))
for name in ("sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "square", "abs", "neg", "logical_not"):
    OPS[name] = unary(getattr(torch, name))
# By this name of the op, its derivative is 0; torch.floor_divide refuses it.
OPS["floor_divide"] = binary(lambda a, b: torch.div(a, b, rounding_mode="floor"))
OPS["remainder"] = binary(torch.remainder)
for name in ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
             "logical_or", "logical_xor"):
    OPS[name] = binary(getattr(torch, name))


def run(call, tensors):
    dy = tensors.pop("dy", None)
    inputs = {}
    for name, value in tensors.items():
        fixed = name.startswith("running_") or name in ("weight", "pos_weight")
        inputs[name] = value.clone() if fixed else value.requires_grad_(value.is_floating_point() and dy is not None)
    for name, other in call["same"].items():  # one tensor, whose gradient is that of both names
        inputs[name] = inputs[other]
    y = OPS[call["op"]](inputs, call["attributes"])
    results = {"y": y}
    if dy is not None:
        named = [name for name, value in inputs.items() if value.requires_grad and name not in call["same"]]
        gradients = torch.autograd.grad(y, [inputs[name] for name in named], dy.to(y.dtype), allow_unused=True)
        for name, gradient in zip(named, gradients):
            results["d" + name] = torch.zeros_like(inputs[name]) if gradient is None else gradient
    results |= {name: value for name, value in inputs.items() if name.startswith("running_")}
    return results


def main():
    torch.set_num_threads(1)
    refused = collections.Counter()
    for file in sorted(pathlib.Path(sys.argv[1]).glob("?????.safetensors")):
        held = safe_open(file, "pt")
        names = collections.defaultdict(list)
        for key in held.keys():
            case, name = key.split("/")
            names[case].append(name)
        written = {}
        for call in json.loads(held.metadata()["calls"]):
            case = str(call["case"])
            tensors = {name: held.get_tensor(f"{case}/{name}") for name in sorted(names[case])}
            try:
                results = run(call, tensors)
            except Exception as error:  # noqa: BLE001 what it has no code for: a dtype, a shape, an option
                refused[call["op"], str(error).split("\n")[0][:100]] += 1
                continue
            for name, value in results.items():
                written[f"{case}/{name}"] = value.detach().contiguous().clone()
        save_file(written, file.with_suffix(".peer.safetensors"))
    for (op, why), count in sorted(refused.items(), key=str):
        print(f"{op}: {count} refused: {why}", file=sys.stderr)


if __name__ == "__main__":
    main()
