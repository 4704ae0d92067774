"""Operators that move elements: how each is made of our ops."""

import numpy as np

from run_op import Cannot


def integers(values):
    return [int(v) for v in values]


def reshape(node, run):
    x, sizes = node.input(0), integers(node.input(1))
    if not node.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return run("reshape", x, shape=sizes)


def flatten(node, run):
    x = node.input(0)
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return run("reshape", x, shape=[int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))])


def transpose(node, run):
    x = node.input(0)
    return run("permute", x, order=integers(node.get("perm", range(x.ndim)[::-1])))


def axes_of(node):
    return node.get("axes") if node.input(1) is None else integers(node.input(1))


def squeeze(node, run):
    y = node.input(0)
    axes = axes_of(node)
    if axes is None:
        axes = [i for i, size in enumerate(y.shape) if size == 1]
    for axis in sorted((a % y.ndim for a in axes), reverse=True):
        y = run("squeeze", y, axis=axis)
    return y


def unsqueeze(node, run):
    y, axes = node.input(0), axes_of(node)
    for axis in sorted(a % (y.ndim + len(axes)) for a in axes):
        y = run("unsqueeze", y, axis=axis)
    return y


def concat(node, run):
    return run("cat", axis=node.get("axis"), **{f"x{i}": x for i, x in enumerate(node.inputs)})


def split(node, run):
    x, axis = node.input(0), node.get("axis", 0)
    sizes = node.get("split") if node.input(1) is None else integers(node.input(1))
    if sizes is None:
        parts, size = len(node.outputs), x.shape[axis]
        each = -(-size // parts)
        sizes = [min(each, size - i * each) for i in range(parts)]
    starts = np.cumsum([0, *sizes])
    return [run("narrow", x, axis=axis, start=int(start), length=int(size)) for start, size in zip(starts, sizes)]


def cut(node, run):
    y = node.input(0)
    starts, ends = integers(node.input(1)), integers(node.input(2))
    axes = integers(node.input(3)) if node.input(3) is not None else range(len(starts))
    steps = integers(node.input(4)) if node.input(4) is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        at = np.arange(y.shape[axis])[start:end:step]
        y = run("index_select", y, axis=axis, index=at.astype(np.int64))
    return y


def gather(node, run):
    x, index, axis = node.input(0), node.input(1), node.get("axis", 0) % node.input(0).ndim
    flat = np.mod(index, x.shape[axis]).reshape(-1)
    y = run("index_select", x, axis=axis, index=flat)
    return run("reshape", y, shape=[*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])


def gather_elements(node, run):
    x, axis = node.input(0), node.get("axis", 0)
    return run("gather", x, axis=axis, index=np.mod(node.input(1), x.shape[axis]))


def expand(node, run):
    x = node.input(0)
    return run("expand", x, shape=list(np.broadcast_shapes(x.shape, tuple(integers(node.input(1))))))


def tile(node, run):
    y = node.input(0)
    for axis, times in enumerate(integers(node.input(1))):
        y = run("cat", axis=axis, **{f"x{i}": y for i in range(times)})
    return y


def matmul(node, run):
    if node.input(0).dtype.kind in "iu":
        raise Cannot("of integers")
    return run.pair("matmul", node.input(0), node.input(1))


def gemm(node, run):
    a, b = (x.T if node.get(flag, 0) else x for x, flag in ((node.input(0), "transA"), (node.input(1), "transB")))
    y = run("affine", run.pair("matmul", a, b), scale=node.get("alpha", 1.0))
    if node.input(2) is None:
        return y
    return run.pair("add", y, run("affine", node.input(2), scale=node.get("beta", 1.0)))


CONVERTERS = {
    "Reshape": reshape, "Flatten": flatten, "Transpose": transpose, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
    "Concat": concat, "Split": split, "Slice": cut, "Gather": gather, "GatherElements": gather_elements,
    "Expand": expand, "Tile": tile, "MatMul": matmul, "Gemm": gemm,
}
