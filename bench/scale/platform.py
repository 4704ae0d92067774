#!/usr/bin/env python3
"""Makes up a cluster for SimGrid: bench/scale/platform.py --ranks 64 OUT writes OUT.xml and OUT.hosts, and prints what it is.

Nodes of some GPUs, each with a link of its own to the node's switch (as NVLink) and a link of its own to the network (as
InfiniBand on rails). Switches and the core of the network are never the bottleneck. One rank per GPU; neighbouring ranks share a
node.
"""

import argparse

SWITCH = "1e15Bps"  # never what limits


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--node-size", type=int, default=8, help="GPUs per node")
    parser.add_argument("--node-us", type=float, default=2, help="latency between GPUs of a node")
    parser.add_argument("--node-gb", type=float, default=450, help="GB/s of a GPU within its node, each way")
    parser.add_argument("--net-us", type=float, default=7, help="latency between GPUs of different nodes")
    parser.add_argument("--net-gb", type=float, default=50, help="GB/s of a GPU's link to the network, each way")
    parser.add_argument("out")
    return parser.parse_args()


def pair(source, to, links):
    """A way there, over the links' upper lanes, and back over the lower ones."""
    up = "".join(f'<link_ctn id="{link}"{" direction=" + chr(34) + "UP" + chr(34) if lanes else ""}/>' for link, lanes in links)
    down = "".join(f'<link_ctn id="{link}"{" direction=" + chr(34) + "DOWN" + chr(34) if lanes else ""}/>' for link, lanes in reversed(links))
    return [f'<route src="{source}" dst="{to}" symmetrical="NO">{up}</route>',
            f'<route src="{to}" dst="{source}" symmetrical="NO">{down}</route>']


def node(number, size, options):
    lines = [f'<zone id="n{number}" routing="Floyd">']
    gpus = [f"n{number}g{gpu}" for gpu in range(size)]
    lines += [f'<host id="{gpu}" speed="1Tf"/>' for gpu in gpus]
    lines += [f'<router id="n{number}switch"/>', f'<router id="n{number}out"/>']
    for gpu in gpus:
        lines.append(f'<link id="{gpu}nv" bandwidth="{options.node_gb}GBps" latency="{options.node_us / 2}us" sharing_policy="SPLITDUPLEX"/>')
        lines.append(f'<link id="{gpu}nic" bandwidth="{options.net_gb}GBps" latency="{options.net_us / 4}us" sharing_policy="SPLITDUPLEX"/>')
    lines.append(f'<link id="n{number}leaf" bandwidth="{SWITCH}" latency="0us" sharing_policy="FATPIPE"/>')
    for gpu in gpus:
        # The way out has one link more, so that the shortest way to a neighbour is the switch.
        lines += pair(gpu, f"n{number}switch", [(gpu + "nv", True)])
        lines += pair(gpu, f"n{number}out", [(gpu + "nic", True), (f"n{number}leaf", False)])
    return lines + ["</zone>"]


def platform(options):
    nodes = (options.ranks + options.node_size - 1) // options.node_size
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1">', '<zone id="world" routing="Floyd">']
    hosts = []
    for number in range(nodes):
        size = min(options.node_size, options.ranks - number * options.node_size)
        lines += node(number, size, options)
        hosts += [f"n{number}g{gpu}" for gpu in range(size)]
    lines.append('<zone id="core" routing="Full"><router id="middle"/></zone>')
    lines += [f'<link id="n{number}trunk" bandwidth="{SWITCH}" latency="{options.net_us / 4}us" sharing_policy="FATPIPE"/>'
              for number in range(nodes)]
    for number in range(nodes):
        for source, to, gw_source, gw_to in ((f"n{number}", "core", f"n{number}out", "middle"), ("core", f"n{number}", "middle", f"n{number}out")):
            lines.append(f'<zoneRoute src="{source}" dst="{to}" gw_src="{gw_source}" gw_dst="{gw_to}" symmetrical="NO">'
                         f'<link_ctn id="n{number}trunk"/></zoneRoute>')
    return lines + ["</zone>", "</platform>"], hosts


def main():
    options = arguments()
    lines, hosts = platform(options)
    for suffix, rows in ((".xml", lines), (".hosts", hosts)):
        with open(options.out + suffix, "w", encoding="utf-8") as file:
            file.write("\n".join(rows) + "\n")
    print(f"uncalibrated network: nodes of {options.node_size} ranks; within a node {options.node_us:g} us and {options.node_gb:g} GB/s per rank,"
          f" between nodes {options.net_us:g} us and {options.net_gb:g} GB/s per rank; switches never limit")


if __name__ == "__main__":
    main()
