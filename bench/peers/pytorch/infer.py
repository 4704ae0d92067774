"""infer.py DIR: forward passes of the networks in DIR/MODEL.torch.safetensors, which `athanor convert --layout torch` has
written. bench/peers/athanor/infer.cpp is the same in Athanor.

"frozen" is torch.jit.freeze and optimize_for_inference of what torch.jit.trace finds; bf16 is a network and images in bf16.
"""

import functools
import sys
import warnings

import protocol

try:
    import torch
    from safetensors.torch import load_file
except (ImportError, OSError) as missing:
    protocol.say({"error": str(missing)})
    sys.exit()
from networks import NETWORKS
from worker import made_up, serve
from workloads import BATCHES

warnings.filterwarnings("ignore", category=DeprecationWarning)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def channels_last(network, images):
    return network.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)


def eager(network, images):
    return lambda: network(images)


def eager_channels_last(network, images):
    return eager(*channels_last(network, images))


def frozen(network, images):
    traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(network, images)))
    return lambda: traced(images)


def frozen_channels_last(network, images):
    return frozen(*channels_last(network, images))


def compiled(network, images):
    fast = torch.compile(network)
    return lambda: fast(images)


WAYS = {"eager": eager, "channels_last": eager_channels_last, "frozen": frozen,
        "frozen_channels_last": frozen_channels_last, "compile": compiled}


def prepare(folder, name, precision, batch, way):
    network = NETWORKS[name].make().eval()
    network.load_state_dict(load_file(f"{folder}/{name}.torch.safetensors"), strict=True)
    images = made_up((batch, *NETWORKS[name].image), 7).to(DTYPES[precision])
    run = way(network.to(DTYPES[precision]), images)
    return run, run().flatten().tolist()


def cases(folder):
    return {f"{name}/{precision}/infer-b{batch}":
            {label: functools.partial(prepare, folder, name, precision, batch, way) for label, way in WAYS.items()}
            for name in NETWORKS for precision in DTYPES for batch in BATCHES}


if __name__ == "__main__":
    with torch.inference_mode():
        serve(cases(sys.argv[1]))
