"""Operators that go element by element, reductions and norms: how each is made of our ops."""

import numpy as np

from run_op import OURS, Cannot


def unary(op, **attributes):
    return lambda node, run: run(op, node.input(0), **attributes)


def binary(op):
    return lambda node, run: run.pair(op, node.input(0), node.input(1))


def floating(x):
    if x.dtype.kind in "biu":
        raise Cannot(f"of {x.dtype}")
    return x


def divide(node, run):
    return run.pair("div", floating(node.input(0)), node.input(1))


def power(node, run):
    a, b = floating(node.input(0)), node.input(1)
    if b.dtype != a.dtype:
        b = run("cast", b, dtype=OURS[a.dtype])
    return run.pair("pow", a, b)


def folded(op):
    def convert(node, run):
        y = node.input(0)
        for other in node.inputs[1:]:
            y = run.pair(op, y, other)
        return run("clone", y) if len(node.inputs) == 1 else y
    return convert


def mean_of_inputs(node, run):
    return run("affine", folded("add")(node, run), scale=1 / len(node.inputs))


def clip(node, run):
    bound = [None if node.input(i) is None else float(node.input(i)) for i in (1, 2)]
    bound = [float(node.get(n)) if b is None and node.get(n) is not None else b for b, n in zip(bound, ("min", "max"))]
    if bound == [None, None]:
        return run("clone", node.input(0))
    return run("clamp", node.input(0), low=bound[0], high=bound[1])


def elu(node, run, alpha=1.0, gamma=None):
    y = run("elu", node.input(0), alpha=node.get("alpha", alpha))
    return y if gamma is None else run("affine", y, scale=node.get("gamma", gamma))


def celu(node, run):
    alpha = node.get("alpha", 1.0)
    return run("affine", run("elu", run("affine", node.input(0), scale=1 / alpha)), scale=alpha)


def hard_sigmoid(node, run):
    line = run("affine", node.input(0), scale=node.get("alpha", 0.2), shift=node.get("beta", 0.5))
    return run("clamp", line, low=0.0, high=1.0)


def gelu(node, run):
    return run("gelu", node.input(0), form="tanh" if node.get("approximate", "none") == "tanh" else "erf")


def swish(node, run):
    alpha = node.get("alpha", 1.0)
    if alpha == 1:
        return run("silu", node.input(0))
    return run.pair("mul", node.input(0), run("sigmoid", run("affine", node.input(0), scale=alpha)))


def thresholded_relu(node, run):
    x = node.input(0)
    return run("where", condition=run("gt", a=x, number=node.get("alpha", 1.0)), a=x, b=np.zeros((), x.dtype))


def prelu(node, run):
    x, slope = floating(node.input(0)), node.input(1)
    return run("where", condition=run("ge", a=x, number=0.0), a=x, b=run.pair("mul", x, slope))


def sign(node, run):
    x, zero = node.input(0), np.zeros((), node.input(0).dtype)
    above, below = (run("cast", run.pair(op, x, zero), dtype=OURS[x.dtype]) for op in ("gt", "lt"))
    return run.pair("sub", above, below)


def cast(node, run, to=None):
    import onnx
    wanted = to if to is not None else onnx.helper.tensor_dtype_to_np_dtype(node.get("to"))
    if np.dtype(wanted) not in OURS or node.input(0).dtype not in OURS:
        raise Cannot(f"{node.input(0).dtype} to {np.dtype(wanted)}")
    return run("cast", node.input(0), dtype=OURS[np.dtype(wanted)])


def where(node, run):
    return run("where", condition=node.input(0), a=node.input(1), b=node.input(2))


def along_axis(op):
    def convert(node, run):
        x = floating(node.input(0))
        if node.opset < 13:
            raise Cannot("softmax of flattened axes")
        return run(op, x, axis=node.get("axis", -1))
    return convert


def reduced_axes(node):
    """(axes, keepdim), the axes from the attribute or the second input; None where nothing is reduced."""
    given = node.get("axes")
    if given is None and node.input(1) is not None:
        given = [int(a) for a in node.input(1)]
    if not given and node.get("noop_with_empty_axes", 0):
        return None, True
    rank = node.input(0).ndim
    axes = sorted(a % rank for a in given) if given else list(range(rank))
    return axes, bool(node.get("keepdims", 1))


def reduction(op, before=(), after=()):
    def convert(node, run):
        y = floating(node.input(0))
        axes, keepdim = reduced_axes(node)
        for name in before:
            y = run(name, y)
        if axes is not None:
            y = run(op, y, axes=axes, keepdim=keepdim)
        for name in after:
            y = run(name, y)
        return run("clone", y)
    return convert


def extremum(negate):
    def convert(node, run):
        y = floating(node.input(0))
        axes, keepdim = reduced_axes(node)
        if axes is None or y.size == 0:
            raise Cannot("of no elements")
        y = run("neg", y) if negate else y
        for axis in reversed(axes):
            y = run("max", y, axis=axis, keepdim=keepdim)
        return run("neg", y) if negate else run("clone", y)
    return convert


def arg_extremum(negate):
    def convert(node, run):
        x = run("neg", node.input(0)) if negate else node.input(0)
        if node.get("select_last_index", 0):
            x = x[tuple(slice(None, None, -1 if a == node.get("axis", 0) % x.ndim else 1) for a in range(x.ndim))]
            size, first = x.shape[node.get("axis", 0)], run("argmax", np.ascontiguousarray(x), axis=node.get("axis", 0),
                                                            keepdim=bool(node.get("keepdims", 1)))
            return run.pair("sub", np.asarray(size - 1, np.int64), first)
        return run("argmax", x, axis=node.get("axis", 0), keepdim=bool(node.get("keepdims", 1)))
    return convert


def topk(node, run):
    attributes = {"k": int(node.input(1).item()), "axis": node.get("axis", -1), "largest": bool(node.get("largest", 1))}
    return [run("topk", node.input(0), result=result, **attributes) for result in ("values", "indices")]


def moments(node, run, axes, eps):
    """x's mean, and 1 / sqrt(variance + eps)."""
    x = node.input(0)
    mean = run("mean", x, axes=axes, keepdim=True)
    variance = run("var", x, axes=axes, correction=0, keepdim=True)
    return mean, run("rsqrt", run("affine", variance, shift=eps))


def layer_norm(node, run):
    x, eps = node.input(0), node.get("epsilon", 1e-5)
    axes = x.ndim - node.get("axis", -1) % x.ndim
    y = run.all("layer_norm", {"x": x, "gamma": node.input(1), "beta": node.input(2)}, axes=axes, eps=eps)["y"]
    return [y, *moments(node, run, list(range(x.ndim - axes, x.ndim)), eps)]


def rms_norm(node, run):
    x = node.input(0)
    axes = list(range(node.get("axis", -1) % x.ndim, x.ndim))
    mean = run("mean", run("square", x), axes=axes, keepdim=True)
    rate = run("rsqrt", run("affine", mean, shift=node.get("epsilon", 1e-5)))
    return run.pair("mul", run.pair("mul", x, rate), node.input(1))


def lp_norm(node, run):
    x, axes = node.input(0), [node.get("axis", -1)]
    if node.get("p", 2) == 1:
        length = run("sum", run("abs", x), axes=axes, keepdim=True)
    else:
        length = run("sqrt", run("sum", run("square", x), axes=axes, keepdim=True))
    none = run("eq", a=length, number=0.0)
    return run.pair("div", x, run("where", condition=none, a=np.ones((), x.dtype), b=length))


CONVERTERS = {
    "Abs": unary("abs"), "Neg": unary("neg"), "Relu": unary("relu"), "Sigmoid": unary("sigmoid"), "Tanh": unary("tanh"),
    "Exp": unary("exp"), "Log": unary("log"), "Sqrt": unary("sqrt"), "Softplus": unary("softplus"), "Mish": unary("mish"),
    "HardSwish": unary("hardswish"), "HardSigmoid": hard_sigmoid, "Not": unary("logical_not"), "Gelu": gelu, "Swish": swish,
    "Identity": unary("clone"), "IsNaN": lambda node, run: run.pair("ne", node.input(0), node.input(0)),
    "Reciprocal": lambda node, run: run("pow", a=node.input(0), number=-1.0), "Sign": sign,
    "Elu": elu, "Selu": lambda node, run: elu(node, run, 1.67326319217681884765625, 1.05070102214813232421875),
    "Celu": celu, "LeakyRelu": lambda node, run: run("leaky_relu", node.input(0), slope=node.get("alpha", 0.01)),
    "ThresholdedRelu": thresholded_relu, "PRelu": prelu, "Clip": clip,
    "Add": binary("add"), "Sub": binary("sub"), "Mul": binary("mul"), "Div": divide, "Pow": power,
    "Max": folded("maximum"), "Min": folded("minimum"), "Sum": folded("add"), "Mean": mean_of_inputs,
    "And": binary("logical_and"), "Or": binary("logical_or"), "Xor": binary("logical_xor"), "Equal": binary("eq"),
    "Greater": binary("gt"), "GreaterOrEqual": binary("ge"), "Less": binary("lt"), "LessOrEqual": binary("le"),
    "Where": where, "Cast": cast, "CastLike": lambda node, run: cast(node, run, node.input(1).dtype),
    "Softmax": along_axis("softmax"), "LogSoftmax": along_axis("log_softmax"),
    "ReduceSum": reduction("sum"), "ReduceMean": reduction("mean"), "ReduceMax": extremum(False),
    "ReduceMin": extremum(True), "ReduceSumSquare": reduction("sum", ["square"]), "ReduceL1": reduction("sum", ["abs"]),
    "ReduceL2": reduction("sum", ["square"], ["sqrt"]), "ReduceLogSum": reduction("sum", [], ["log"]),
    "ReduceLogSumExp": reduction("sum", ["exp"], ["log"]), "ArgMax": arg_extremum(False), "ArgMin": arg_extremum(True),
    "TopK": topk, "LayerNormalization": layer_norm, "RMSNormalization": rms_norm, "LpNormalization": lp_norm,
}
