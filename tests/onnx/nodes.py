#!/usr/bin/env python3
"""ONNX's own tests of its operators, as calls of `athanor run-op`.

    nodes.py ATHANOR [--filter REGEX] [--least N]

The installed package `onnx` makes the tests (onnx/backend/test/case/node): nothing of them is kept here. Prints how many
of the cases of operators we have can be expressed and how many pass, and of the others why not. An operator may be
several of our ops, one after the other; its inputs may be permuted and reshaped on the way in and out, for our images
are [N, H, W, C]. Ends with 1 where a case fails, or fewer than N are expressed.
"""

import argparse
import collections
import re
import sys
import warnings

try:
    import ml_dtypes
    import numpy as np
    import onnx
except ModuleNotFoundError as missing:
    print(f"{missing}; pip install onnx ml_dtypes")
    sys.exit(77)

import convert_elementwise
import convert_images
import convert_losses
import convert_shapes
from run_op import Cannot, Tool, Wrong

CONVERTERS = {**convert_elementwise.CONVERTERS, **convert_images.CONVERTERS, **convert_losses.CONVERTERS,
              **convert_shapes.CONVERTERS}


class Node:
    """A case's only node: its attributes, its inputs by position, and how many outputs it must have."""

    def __init__(self, case, inputs):
        node = case.model.graph.node[0]
        self.op = node.op_type
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = dict(zip((i.name for i in case.model.graph.input), inputs))
        self.inputs = [given.get(name) for name in node.input]
        self.outputs = [name != "" for name in node.output]
        self.opset = next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx"))

    def get(self, name, fallback=None):
        value = self.attributes.get(name, fallback)
        return value.decode() if isinstance(value, bytes) else value

    def input(self, i):
        return self.inputs[i] if i < len(self.inputs) else None


def as_array(value):
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if not isinstance(value, np.ndarray) and not np.isscalar(value):
        raise Cannot("sequences and optional values")
    return value


def close(got, wanted, case):
    wanted = np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "biu":
        return "" if np.array_equal(got, wanted) else "other integers"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    # What they expect of a half type was itself rounded at every step.
    rtol = max(case.rtol, 2 * float(ml_dtypes.finfo(wanted.dtype).eps))
    return "" if np.allclose(a, b, rtol, case.atol, equal_nan=True) else f"{np.nanmax(np.abs(a - b))} off"


def check(case, tool):
    """Nothing where all passes; raises Cannot where the case cannot be expressed."""
    for data in case.data_sets:
        inputs, outputs = ([as_array(value) for value in values] for values in data)
        node = Node(case, inputs)
        results = CONVERTERS[node.op](node, tool)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        if len(results) < len(outputs):
            raise Cannot(f"output {len(results) + 1}")
        for got, wanted in zip(results, outputs):
            if wrong := close(np.asarray(got), wanted, case):
                return wrong
    return ""


def cases(wanted):
    warnings.filterwarnings("ignore")
    from onnx.backend.test.case.node import collect_testcases
    for case in collect_testcases(None):
        nodes = case.model.graph.node if case.model else []
        if len(nodes) == 1 and nodes[0].domain == "" and nodes[0].op_type in CONVERTERS and re.search(wanted, case.name):
            yield case


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("athanor", help="the binary `athanor`")
    parser.add_argument("--filter", default="", help="regular expression for the names of cases")
    parser.add_argument("--least", type=int, default=0, help="how many cases must be expressed")
    flags = parser.parse_args()
    tool, reasons, failed, expressed, total = Tool(flags.athanor), collections.defaultdict(list), [], 0, 0
    for case in cases(flags.filter):
        total += 1
        try:
            wrong = check(case, tool)
        except Cannot as reason:
            reasons[case.model.graph.node[0].op_type, str(reason)].append(case.name)
            continue
        except Wrong as error:
            wrong = str(error)
        expressed += 1
        if wrong:
            failed.append(f"{case.name}: {wrong}")
    for (op, reason), names in sorted(reasons.items()):
        print(f"{op}: {len(names)} not expressed: {reason}")
    for line in failed:
        print(f"FAILED {line}")
    print(f"{total} cases of {len(CONVERTERS)} operators: {expressed} expressed, {expressed - len(failed)} passed, "
          f"{len(failed)} failed; {tool.calls} calls")
    return 1 if failed or expressed < flags.least else 0


if __name__ == "__main__":
    sys.exit(main())
