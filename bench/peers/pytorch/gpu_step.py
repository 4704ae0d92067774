"""gpu_step.py [--json FILE] [--seconds N] [--device cuda|cpu] MODEL:BATCH[:PRECISION]...: steps of training on a GPU, in the ways that
PyTorch has to make them fast. bench_step measures the same in Athanor: noise that lies on the device, forward, backward and update.

    eager       autocast and GradScaler, channels_last, cuDNN tries all its algorithms, fused SGD
    graph       the same step, captured as a CUDA graph
    half        eager, with weights and images in f16 and norms in f32: no casts in the step
    compile     torch.compile of network and loss, mode max-autotune-no-cudagraphs
    reduced     torch.compile, mode reduce-overhead: its own CUDA graphs

A line of JSON for each network and way, as soon as it is measured: images/s of steady steps, which are the best to compare with. Ways that
take long come last, so that a run that is cut off has the others of all networks.
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
except (ImportError, OSError) as missing:
    print(f"gpu_step.py: {missing}", file=sys.stderr)
    sys.exit(3)
from torch import nn
from torch.nn import functional

from networks import NETWORKS

WARM, STEADY, BLOCKS = 10, 20, 3
WAYS = ("eager", "graph", "half", "compile", "reduced")


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.relu(self.bn2(self.conv2(y)), inplace=True)
        return functional.relu(self.bn3(self.conv3(y)) + shortcut, inplace=True)


class ResNet50(nn.Module):
    """Of torchvision, which need not be installed."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        layers, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for i in range(count):
                layers.append(Bottleneck(inputs, width, 2 if i == 0 and stage > 0 else 1))
                inputs = 4 * width
        self.layers, self.fc = nn.Sequential(*layers), nn.Linear(inputs, 1000)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(self.layers(x), 1), 1))


def network(name):
    """(module, image, classes)"""
    kind = NETWORKS[name]
    return (ResNet50() if name == "resnet50" else kind.make()), kind.image, kind.classes


class Training:
    def __init__(self, name, batch, precision, way, device):
        torch.manual_seed(0)
        self.device, self.way = device, way
        self.model, image, classes = network(name)
        self.model = self.model.to(device, memory_format=torch.channels_last).train()
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(precision)
        self.pure = way == "half"
        self.images = torch.randint(0, 256, (batch, *image), dtype=torch.uint8, device=device).to(memory_format=torch.channels_last)
        self.labels = torch.arange(batch, device=device) % classes
        if self.pure:
            self.model = self.model.to(self.dtype)
            for module in self.model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.float()
        fused = {"fused": True} if device.type == "cuda" else {}
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4, **fused)
        scales = self.dtype == torch.float16 and not self.pure and device.type == "cuda"
        self.scaler = torch.amp.GradScaler(device.type, enabled=scales)
        mode = {"compile": "max-autotune-no-cudagraphs", "reduced": "reduce-overhead"}.get(way)
        self.loss = torch.compile(self.loss_of, mode=mode, dynamic=False) if mode else self.loss_of
        self.graph = None

    def loss_of(self, images, labels):
        return functional.cross_entropy(self.model(images).float(), labels)

    def work(self):
        """A step, but for zeroing the gradients."""
        images = self.images.to(self.dtype if self.pure else torch.float32).div_(255).sub_(0.5).div_(0.25)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None and not self.pure):
            loss = self.loss(images, self.labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def step(self):
        if self.graph:
            return self.graph.replay()
        self.optimizer.zero_grad(set_to_none=True)
        return self.work()

    def capture(self):
        """Forward, backward, update. The fused optimizer skips a step whose gradients are not finite on the device, but
        GradScaler.step() asks the host, which a graph cannot: so the scale stays, and the loss is scaled by hand."""
        scale = 1024.0 if self.scaler.is_enabled() else 1.0
        self.optimizer.grad_scale = torch.full((), scale, device=self.device)
        self.optimizer.found_inf = torch.zeros((), device=self.device)

        def work():
            images = self.images.float().div_(255).sub_(0.5).div_(0.25)
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
                loss = self.loss(images, self.labels)
            (loss * scale).backward()
            self.optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.optimizer.zero_grad(set_to_none=True)
                work()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        self.graph = graph


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(name, batch, precision, way, device):
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    training = Training(name, batch, precision, way, device)
    if way == "graph":
        training.capture()
    training.step()
    wait(device)
    first_s = time.monotonic() - began
    for _ in range(WARM if device.type == "cuda" else 1):
        training.step()
    wait(device)
    times = []
    steps = STEADY if device.type == "cuda" else 2
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(steps):
            training.step()
        wait(device)
        times.append((time.perf_counter() - start) / steps)
    seconds = statistics.median(times)
    peak = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    return {"images_per_s": batch / seconds, "step_ms": 1e3 * seconds, "least_ms": 1e3 * min(times), "most_ms": 1e3 * max(times),
            "first_s": first_s, "peak_gb": peak}


def ways_of(device, precision):
    if device.type != "cuda":
        return [way for way in WAYS if way != "graph" and way != "half"]
    return [way for way in WAYS if way != "half" or precision in ("f16", "bf16")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=1e9, help="begins no way after that")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ways", help="a list, by commas")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu_step.py: PyTorch sees no GPU; --device cpu tries the script", file=sys.stderr)
        return 3
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0  # all of them
    torch.set_float32_matmul_precision("high")
    began = time.monotonic()
    workloads = []
    for text in arguments.workload:
        words = text.split(":") + ["f16"]
        if words[0] not in NETWORKS or not words[1].isdigit() or words[2] not in ("f32", "bf16", "f16"):
            parser.error(f"a workload must be MODEL:BATCH[:f32|bf16|f16], with a model of {', '.join(NETWORKS)}, but is '{text}'")
        workloads.append((words[0], int(words[1]), words[2]))
    chosen = arguments.ways.split(",") if arguments.ways else WAYS
    for way, (name, batch, precision) in ((way, workload) for way in chosen for workload in workloads):
        if way not in ways_of(device, precision) or time.monotonic() - began > arguments.seconds:
            continue
        row = {"workload": f"{name}:{batch}:{precision}", "way": way, "torch": torch.__version__, "device": arguments.device,
               "began_s": time.time()}
        try:
            row.update(measure(name, batch, precision, way, device))
        except Exception as error:  # one way that does not run must not cost the others
            row["error"] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        row["ended_s"] = time.time()
        print(json.dumps(row), flush=True)
        if arguments.json:
            with open(arguments.json, "a") as file:
                file.write(json.dumps(row) + "\n")
        torch._dynamo.reset()
    return 0


if __name__ == "__main__":
    sys.exit(main())
