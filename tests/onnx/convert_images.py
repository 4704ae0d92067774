"""Operators on images, [N, C, H, W] there and [N, H, W, C] here: how each is made of our ops."""

import numpy as np

from run_op import Cannot


def planes(x):
    """[N, C, W] or [N, C, H, W] -> [N, H, W, C]."""
    if x.ndim not in (3, 4):
        raise Cannot(f"{x.ndim - 2} axes of space")
    return np.moveaxis(x if x.ndim == 4 else x[:, :, None], 1, -1)


def back(y, like):
    y = np.moveaxis(y, -1, 1)
    return y if like.ndim == 4 else y[:, :, 0]


def pair(values, fallback=1):
    """Of two axes of space, where there may be one."""
    values = [int(v) for v in values] if values else [fallback] * 2
    return values if len(values) == 2 else [fallback, values[0]]


def padding(node, sizes, window, stride, dilation):
    """As much on either side, or the case cannot be expressed."""
    mode, pads = node.get("auto_pad", "NOTSET"), node.get("pads")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        both = [max((-(-n // s) - 1) * s + d * (w - 1) + 1 - n, 0)
                for n, w, s, d in zip(sizes, window, stride, dilation)]
        begin = [b // 2 if mode == "SAME_UPPER" else b - b // 2 for b in both]
        end = [b - c for b, c in zip(both, begin)]
    else:
        pads = [int(p) for p in pads] if pads else [0, 0, 0, 0]
        half = len(pads) // 2
        begin, end = pair(pads[:half], 0), pair(pads[half:], 0)
    if begin != end:
        raise Cannot("more padding on one side")
    return begin


def convolution(node, run):
    x, w = node.input(0), node.input(1)
    filters = planes(w)
    stride, dilation = pair(node.get("strides")), pair(node.get("dilations"))
    images = planes(x)
    padded = padding(node, images.shape[1:3], filters.shape[1:3], stride, dilation)
    y = run.all("conv2d", {"x": images, "w": filters, "bias": node.input(2)}, stride=stride, padding=padded,
                dilation=dilation, groups=node.get("group", 1))["y"]
    return back(y, x)


def transposed_convolution(node, run):
    x, w = node.input(0), node.input(1)
    images, filters = planes(x), planes(w)
    stride, dilation = pair(node.get("strides")), pair(node.get("dilations"))
    more = pair(node.get("output_padding"), 0)
    window, shape = filters.shape[1:3], node.get("output_shape")
    if shape or node.get("auto_pad", "NOTSET").startswith("SAME"):
        wanted = pair(shape) if shape else [n * s for n, s in zip(images.shape[1:3], stride)]
        total = [(n - 1) * s + m + d * (k - 1) + 1 - size
                 for n, s, m, d, k, size in zip(images.shape[1:3], stride, more, dilation, window, wanted)]
        if any(t < 0 for t in total):
            more, total = [m - min(t, 0) for m, t in zip(more, total)], [max(t, 0) for t in total]
        if any(t % 2 for t in total):
            raise Cannot("more padding on one side")
        padded = [t // 2 for t in total]
    else:
        padded = padding(node, images.shape[1:3], window, stride, dilation)
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation)):
        raise Cannot("output_padding beyond the stride")
    y = run.all("conv_transpose2d", {"x": images, "w": filters, "bias": node.input(2)}, stride=stride, padding=padded,
                dilation=dilation, output_padding=more, groups=node.get("group", 1))["y"]
    return back(y, x)


def pool_attributes(node, images):
    window, stride = pair(node.get("kernel_shape")), pair(node.get("strides"))
    dilation = pair(node.get("dilations"))
    padded = padding(node, images.shape[1:3], window, stride, dilation)
    if any(2 * p > w for p, w in zip(padded, window)):
        raise Cannot("padding of more than half the window")
    return {"window": window, "stride": stride, "padding": padded, "dilation": dilation,
            "ceil_mode": bool(node.get("ceil_mode", 0))}


def max_pool(node, run):
    x = node.input(0)
    if x.dtype.kind in "iu":
        raise Cannot(f"of {x.dtype}")
    images = planes(x)
    attributes = pool_attributes(node, images)
    y = back(run("max_pool2d", images, **attributes), x)
    if len(node.outputs) < 2:
        return y
    if node.get("storage_order", 0):
        raise Cannot("indices by column")
    # There an index counts through all images and channels.
    indices = back(run("max_pool2d", images, result="indices", **attributes), x)
    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2] + (1,) * (x.ndim - 2)) * int(np.prod(x.shape[2:]))
    return [y, indices + first]


def avg_pool(node, run):
    images = planes(node.input(0))
    attributes = pool_attributes(node, images)
    if attributes["dilation"] != [1, 1]:
        raise Cannot("dilated averages")
    return back(run("avg_pool2d", images, count_padding=bool(node.get("count_include_pad", 0)), **attributes),
                node.input(0))


def global_avg(node, run):
    return back(run("adaptive_avg_pool2d", planes(node.input(0)), out_h=1, out_w=1), node.input(0))


def global_max(node, run):
    images = planes(node.input(0))
    return back(run("max_pool2d", images, window=list(images.shape[1:3]), stride=[1, 1]), node.input(0))


def max_unpool(node, run):
    x, indices = node.input(0), node.input(1)
    shape = [int(s) for s in node.input(2)] if node.input(2) is not None else None
    if shape is None:
        size = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(x.shape[2:], pair(node.get("strides")),
                                                              pair(node.get("kernel_shape")), pair(node.get("pads"), 0)[:2])]
        shape = [*x.shape[:2], *size]
    else:
        raise Cannot("indices of another shape than the result's")
    places = np.mod(indices, shape[2] * shape[3])
    return back(run("max_unpool2d", planes(x), indices=planes(places), out_h=shape[2], out_w=shape[3]), x)


def batch_norm(node, run):
    x = node.input(0)
    tensors = {"x": np.moveaxis(x, 1, -1), "gamma": node.input(1), "beta": node.input(2), "running_mean": node.input(3),
               "running_var": node.input(4)}
    training = bool(node.get("training_mode", 0))
    if training:  # its running variance is biased, ours, as PyTorch's, is not
        raise Cannot("running variances that are biased")
    y = run.all("batch_norm", tensors, training=training, eps=node.get("epsilon", 1e-5))["y"]
    return np.moveaxis(y, -1, 1)


def group_norm(node, run):
    x = np.moveaxis(node.input(0), 1, -1)
    tensors = {"x": x, "gamma": node.input(1), "beta": node.input(2)}
    y = run.all("group_norm", tensors, groups=node.get("num_groups"), eps=node.get("epsilon", 1e-5))["y"]
    return np.moveaxis(y, -1, 1)


def instance_norm(node, run):
    tensors = {"x": np.moveaxis(node.input(0), 1, -1), "gamma": node.input(1), "beta": node.input(2)}
    return np.moveaxis(run.all("instance_norm", tensors, eps=node.get("epsilon", 1e-5))["y"], -1, 1)


def depth_to_space(node, run):
    x, r = node.input(0), node.get("blocksize")
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "DCR":  # blocks outside the channels
        x = x.reshape(n, r * r, c // (r * r), h, w).swapaxes(1, 2).reshape(n, c, h, w)
    return back(run("pixel_shuffle", planes(x), r=r), x)


def space_to_depth(node, run):
    x, r = node.input(0), node.get("blocksize")
    y = back(run("pixel_unshuffle", planes(x), r=r), x)
    n, c, h, w = y.shape
    if node.get("mode", "DCR") == "DCR":
        y = y.reshape(n, c // (r * r), r * r, h, w).swapaxes(1, 2).reshape(n, c, h, w)
    return y


def resize(node, run):
    x = node.input(0)
    scales, sizes = (node.input(1), None) if node.op == "Upsample" else (node.input(2), node.input(3))
    mode, place = node.get("mode", "nearest"), node.get("coordinate_transformation_mode", "half_pixel")
    if node.op == "Upsample":
        place = "asymmetric"
    if node.get("axes") is not None or node.get("antialias", 0) or node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Cannot("axes, antialiasing or a ratio to keep")
    if x.ndim != 4:
        raise Cannot(f"{x.ndim - 2} axes of space")
    where = {"size": [int(s) for s in sizes[2:]]} if sizes is not None and sizes.size else {
        "scale": [float(s) for s in scales[2:]]}
    if mode == "nearest":
        if place != "asymmetric" or node.get("nearest_mode", "floor" if node.op == "Upsample" else "round_prefer_floor") != "floor":
            raise Cannot(f"nearest by {place}, {node.get('nearest_mode', 'round_prefer_floor')}")
        return back(run("interpolate", planes(x), mode="nearest", **where), x)
    if mode != "linear" or place not in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        raise Cannot(f"{mode} by {place}")
    if place == "align_corners" and "scale" in where:
        wanted = [n * s for n, s in zip(x.shape[2:], where["scale"])]
        if any(size != int(size) for size in wanted):
            raise Cannot("aligned corners of a size that is no integer")
        where = {"size": [int(size) for size in wanted]}
    if place == "pytorch_half_pixel" and 1 in where.get("size", []):
        raise Cannot("one pixel taken from the corner")
    return back(run("interpolate", planes(x), mode="bilinear", align_corners=place == "align_corners", **where), x)


CONVERTERS = {
    "Conv": convolution, "ConvTranspose": transposed_convolution, "MaxPool": max_pool, "AveragePool": avg_pool,
    "GlobalAveragePool": global_avg, "GlobalMaxPool": global_max, "MaxUnpool": max_unpool,
    "BatchNormalization": batch_norm, "GroupNormalization": group_norm, "InstanceNormalization": instance_norm,
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth, "Resize": resize, "Upsample": resize,
}
