"""One image through a network that is frozen for inference: bench/peers/athanor/infer.cpp is the same in Athanor.

"frozen" is torch.jit.freeze and optimize_for_inference; ONNX Runtime and OpenVINO take the network from PyTorch's export
to ONNX, where their packages are installed (pip install onnx onnxruntime openvino).
"""

import functools
import importlib.util
import io
import math

import torch
from torch import nn
from torch.nn import functional

from worker import made_up, serve

torch.set_grad_enabled(False)


class LeNet5(nn.Module):
    image = (1, 1, 28, 28)

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + shortcut)


class ResNet(nn.Module):
    image = (1, 3, 32, 32)

    def __init__(self, width, blocks):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inputs, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            outputs = width << stage
            layers = [Block(inputs if i == 0 else outputs, outputs, 2 if i == 0 and stage > 0 else 1) for i in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
            inputs = outputs
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


NETWORKS = {
    "lenet5": LeNet5,
    "resnet20": functools.partial(ResNet, 16, (3, 3, 3)),
    "resnet18_cifar": functools.partial(ResNet, 64, (2, 2, 2, 2)),
}


def network_of(name):
    network = NETWORKS[name]().eval()
    state = network.state_dict()
    names = sorted(entry for entry in state if not entry.endswith("num_batches_tracked"))
    for i, entry in enumerate(names):
        values = made_up(tuple(state[entry].shape), 1000 * i)
        if values.dim() > 1:
            values = values * math.sqrt(6 / (values.numel() // values.shape[0]))
        elif entry.endswith("running_var") or entry.endswith(".weight"):
            values = values * 0.3 + 1
        else:
            values = values * 0.1
        state[entry].copy_(values)
    return network, made_up(network.image, 7)


def frozen(network, image):
    traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(network, image)))
    return lambda: traced(image)


def exported(network, image):
    file = io.BytesIO()
    torch.onnx.export(network, (image,), file, input_names=["image"], dynamo=False)
    return file.getvalue()


def onnxruntime(network, image):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(exported(network, image), options, providers=["CPUExecutionProvider"])
    pixels = image.numpy()
    return lambda: torch.from_numpy(session.run(None, {"image": pixels})[0])


def openvino(network, image):
    import openvino
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(io.BytesIO(exported(network, image))), "CPU", settings)
    request, pixels = compiled.create_infer_request(), image.numpy()
    return lambda: torch.from_numpy(next(iter(request.infer([pixels]).values())))


def prepare(name, way):
    run = way(*network_of(name))
    logits = run().flatten().double()
    return run, (logits / logits.abs().max()).tolist()


def cases():
    ways = {"frozen": frozen}
    for way in (onnxruntime, openvino):
        if importlib.util.find_spec(way.__name__) and importlib.util.find_spec("onnx"):
            ways[way.__name__] = way
    return {f"{name}/f32/{kind}-b1": {label: functools.partial(prepare, name, way) for label, way in ways.items()}
            for name in NETWORKS for kind in ("infer", "unpacked")}


if __name__ == "__main__":
    serve(cases())
