#!/usr/bin/env python3
"""Draws the figures of the chapters, from what the code does.

    docs/figures/draw.py FOLDER [NAME...] [--bin DIR]     ring data_parallel_bytes zero1_layout overlap; all if none is named
    docs/figures/draw.py FOLDER gradient_histogram --from FILE   FILE of gradient_histogram --out
    docs/figures/draw.py FOLDER conv_roofs --from FILE           FILE of bench_conv_choices --json
    docs/figures/draw.py FOLDER around_a_step             needs no program, like all of CONCEPTS, MECHANISMS and MEASURED
    docs/figures/draw.py FOLDER gradcheck --measure       first runs book_figures, which writes docs/figures/data/gradcheck.json

A program in DIR, build/cpu/bin, does what is shown; here it is drawn, to FOLDER/NAME.svg, and its table printed. Python alone
does it: nothing else is needed.
"""

import argparse
import importlib
import json
import pathlib
import subprocess
import sys

TRACED = ("ring", "data_parallel_bytes", "zero1_layout", "overlap")
FROM_FILE = {"gradient_histogram": "gradient_histogram --out", "conv_roofs": "bench_conv_choices --json"}
OTHERS = (*FROM_FILE, "around_a_step")
# Diagrams, by their function in concepts.py.
CONCEPTS = {
    "a_kernel_five_times": "coalescing", "a_run_from_flag_to_file": "run_flow", "autograd": "autograd", "coming_from_lightning": "lightning",
    "feeding_the_furnace": "loader_ring", "from_photos_to_a_url": "photos", "kill_nine": "kills", "loss_scale": "loss_scale", "one_step_by_hand": "one_step", "optimizers_and_schedules": "valley", "own_op": "own_op",
    "packed_file": "packed_layout", "stepping_through_a_kernel": "gdb_threads", "tensors": "tensors", "what_comes_after": "after",
    "what_emulation_cannot_see": "emulation", "what_nvcc_wrote": "nvcc_wrote", "step_without_a_host": "step_calls", "when_a_rank_dies": "waiting_chain",
}
# Second figures of a chapter: the function NAME of mechanisms.py, and the page that shows it.
MECHANISMS = {
    "blocking": "matrix_product", "im2col": "convolution_three_ways", "producer_and_consumers": "tensor_cores_by_hand",
    "shuffle_tree": "a_kernel_five_times", "tensor_split": "what_comes_after", "valley_map": "optimizers_and_schedules",
    "winograd_tile": "convolution_three_ways", "winograd_transposed": "convolution_three_ways",
}
# Charts of data/NAME.json, or of a table in the chapter, by their function in measured.py.
MEASURED = {
    "activation_memory": "activation_memory", "attention": "attention", "batch_norm": "batch_norm", "batch_size_and_noise": "batch_size",
    "convolution_three_ways": "convolution_three_ways", "determinism": "determinism", "early_stopping": "early_stopping",
    "emptying_the_cache": "emptying", "gradcheck": "gradcheck", "inference_mode": "inference", "initialisation": "initialisation",
    "matrix_product": "matrix_product", "measuring_under_noise": "measuring_under_noise",
    "reading_a_profile": "profile", "tensor_cores_by_hand": "tensor_cores", "what_the_articles_say": "articles", "where_time_goes_on_a_cpu": "cpu_roofs",
}
PAGES = (*CONCEPTS, *MECHANISMS, *MEASURED)
DATA = pathlib.Path(__file__).resolve().parent / "data"


def refuse(why):
    print(f"draw.py: {why}", file=sys.stderr)
    sys.exit(2)


def output_of(program, name, args):
    path = pathlib.Path(args.bin, program)
    if not path.is_file():
        refuse(f"{path} must be a program, but is not there; cmake --build --preset cpu --target {program} builds it")
    return subprocess.run([path.resolve(), name], check=True, capture_output=True, text=True).stdout


def trace_of(name, args):
    if name in FROM_FILE:
        if not args.file:
            refuse(f"{name} needs --from FILE, which {FROM_FILE[name]} writes")
        return pathlib.Path(args.file).read_text(encoding="utf-8")
    if name == "around_a_step":
        return "null"
    return output_of("dist_traces", name, args)


def draw_page(name, args):
    """The figure of that name: a chapter's, or one of MECHANISMS."""
    if args.measure:
        (DATA / f"{name}.json").write_text(rounded(json.loads(output_of("book_figures", name, args))), encoding="utf-8")
    if name in MECHANISMS:
        module, function = "mechanisms", name
    else:
        module, function = ("concepts", CONCEPTS[name]) if name in CONCEPTS else ("measured", MEASURED[name])
    path = args.folder / f"{name}.svg"
    path.write_text(getattr(importlib.import_module(module), function)(), encoding="utf-8")
    print(path)


def rounded(value):
    """The JSON text of `value` with four digits of each number, a row a line."""
    def short(x):
        if isinstance(x, float):
            return float(f"{x:.4g}")
        return {k: short(v) for k, v in x.items()} if isinstance(x, dict) else [short(v) for v in x] if isinstance(x, list) else x
    return json.dumps(short(value)).replace('], "', '],\n"').replace("}, {", "},\n{") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = refuse
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--bin", default="build/cpu/bin")
    parser.add_argument("--from", dest="file")
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    if not args.folder.is_dir():
        refuse(f"{args.folder} must be a folder, but is not")
    known = (*TRACED, *OTHERS, *PAGES)
    for name in args.names:
        if name not in known:
            refuse(f"'{name}' must be one of {', '.join(known)}")
    for name in args.names or TRACED:
        if name in PAGES:
            draw_page(name, args)
            continue
        picture, table = importlib.import_module(name).draw(json.loads(trace_of(name, args)))
        path = args.folder / f"{name}.svg"
        path.write_text(picture, encoding="utf-8")
        print(f"{path}\n{table}")


if __name__ == "__main__":
    main()
