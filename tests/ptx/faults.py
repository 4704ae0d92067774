#!/usr/bin/env python3
"""faults.py FILE.ptx FAULT -o OUT.ptx: of warpgroups.cu's PTX the kernel gemm_kernel<Release::in_time>, with a fault. What is
changed must stand there as often as FAULTS says: if nvcc writes it in another way, this is an error.
"""
import argparse
import pathlib
import re
import sys

KERNEL = "gemm_kernelILNS0_7ReleaseE0"
# fault: (how often, what, by what). Addresses and distances in descriptors are without their lower 4 bits.
FAULTS = {
    "none": (0, "", ""),
    # The descriptor of a: swizzle 1 (128 bytes) at bit 62, and at bit 32 the stride of 8 rows, 1024 bytes. Now 512.
    "stride": (1, r"or\.b64 (\s*%rd\d+, %rd\d+), 4611686293305294848;(?=\s+// begin inline asm\s+wgmma\.fence)",
               r"or.b64 \1, 4611686155866341376;"),
    # The last operand: b is as it lies, K-major. Now transposed.
    "transposed": (4, r", p, 1, 1, 0, 0;", r", p, 1, 1, 0, 1;"),
    # Which round of a stage the producer waits for: not(tile / 2) & 1.
    "parity": (1, r"not\.b32 (\s*%r\d+, %r\d+;)(?=\s+and\.b32\s+%r\d+, %r\d+, 1;)", r"mov.b32 \1"),
    "no_wait": (1, r"wgmma\.wait_group\.sync\.aligned 1;", ""),
    "wait_of_3": (1, r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 3;"),
    "last_wait": (1, r"wgmma\.wait_group\.sync\.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
    # Who gives a stage back: thread 0, but not in the first step.
    "predicate": (1, r"(setp\.eq\.s32\s+%p\d+, %r\d+, 0;\s+or\.pred\s+(%p\d+), %p\d+, %p\d+;\s+)@\2 bra", r"\1@!\2 bra"),
    "bytes": (1, r"mov\.u32 (\s*%r\d+), 16384;", r"mov.u32 \1, 8192;"),
}


def kernel_of(text):
    entries = re.split(r"^(?=(?:\.visible )?\.entry )", text, flags=re.M)
    found = [entry for entry in entries[1:] if KERNEL in entry.split("(", 1)[0]]
    if len(found) != 1:
        sys.exit(f"faults.py: {len(found)} kernels are {KERNEL}")
    return entries[0] + found[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ptx", type=pathlib.Path)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("-o", dest="out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    text = kernel_of(arguments.ptx.read_text(encoding="utf-8"))
    often, what, by = FAULTS[arguments.fault]
    if often:
        text, changed = re.subn(what, by, text)
        if changed != often:
            sys.exit(f"faults.py: {arguments.fault}: {what} is there {changed} times, not {often}")
    arguments.out.write_text(text, encoding="utf-8")


main()
