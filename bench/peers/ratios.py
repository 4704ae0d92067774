"""Ratios of times that were measured in turns: their interval, and what else took the processors meanwhile."""
import math
import pathlib
import re


def interval(ratios, outside_at_most=0.05):
    """What holds their median with a probability of 1 - outside_at_most, whatever their distribution: two of them, in order."""
    ratios, outside = sorted(ratios), 0
    for low in range(len(ratios) // 2):
        outside += 2 * math.comb(len(ratios), low) / 2 ** len(ratios)
        if outside > outside_at_most:
            return [ratios[max(low - 1, 0)], ratios[len(ratios) - max(low, 1)]]
    return [ratios[0], ratios[-1]]


def stolen_and_all():
    """Ticks of all processors so far: those that other machines on this host took, and all."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def processor():
    """Its name, and the sets of vector instructions that its first core has."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = re.search(r"^flags\s*:(.*)$", text, re.M)[1].split()
    known = ("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)[1]
    family, number = (re.search(rf"^{name}\s*:\s*(\d+)$", text, re.M)[1] for name in ("cpu family", "model"))
    return f"{model} (family {family}, model {number})", [flag for flag in known if flag in flags]
