"""What is compared of whole networks, for every script here; athanor/networks.cpp has the same batches and steps."""

# Steps of a run of training, by network and batch size; a forward pass is one.
STEPS = {("lenet5", 64): 100, ("lenet5", 512): 20, ("resnet20", 128): 5, ("resnet18_cifar", 64): 2, ("resnet50", 16): 2,
         ("mobilenet_v2", 16): 1, ("cifarnet", 500): 1}
# One of each family, with a batch whose step takes some tenths of a second on one core of 2024: what zoo.py measures.
ZOO = {"resnet20": 64, "resnet18_cifar": 16, "resnet50": 2, "mobilenet_v2": 8, "mobilenet_v3_small": 16, "efficientnet_b0": 4,
       "regnet_y_400mf": 8, "densenet121": 2, "convnext_tiny": 2, "vit_tiny": 4}
STEPS |= {one: 1 for one in ZOO.items()}
BATCHES = sorted({1, 64} | {batch for _, batch in STEPS})  # of forward passes

# How workloads may call networks, too.
OTHER_NAMES = {"resnet18": "resnet18_cifar", "mobilenetv2": "mobilenet_v2"}
NAMES = sorted({network for network, _ in STEPS} | {*OTHER_NAMES})
