"""Compiles a student's files with an exercise's tests."""
import concurrent.futures
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import time

from .description import UserError, includes

SECONDS = 300  # for one source

OPTIONS = ["-DATHANOR_ONEDNN=OFF", "-DATHANOR_HDF5=OFF", "-DATHANOR_LMDB=OFF", "-DATHANOR_LIBZIP=OFF", "-DATHANOR_WEBP=OFF",
           "-DATHANOR_SERVE=OFF", "-DATHANOR_MPI=OFF", "-DATHANOR_NCCL=OFF", "-DATHANOR_BUILD_TESTS=OFF",
           "-DATHANOR_BUILD_BENCH=OFF", "-DATHANOR_BUILD_EXAMPLES=OFF"]  # else as build/cpu: ccache has most of it
ARCHIVE = "libathanor.a"


class DoesNotCompile(Exception):
    """Holds the compiler's first errors."""


def build_folder(root):
    return pathlib.Path(os.environ.get("ATHANOR_EXERCISES_BUILD", root / "build" / "exercises"))


def library_folder(root):
    """Where the library is that exercises are linked with: in a tarball lib/, else what `build` made."""
    packed = root / "lib"
    return packed if (packed / ARCHIVE).is_file() else build_folder(root)


def build_library(root, exercises):
    """Sources that an exercise replaces are compiled alone, for the linker replaces whole objects."""
    if library_folder(root) == root / "lib":
        return
    replaced = sorted({path for exercise in exercises if exercise.library for path in exercise.tree if path.endswith(".cpp")})
    folder = build_folder(root)
    for command in ([
            ["cmake", "--preset", "cpu", "-B", folder, "-DATHANOR_REPLACEABLE=" + ";".join(replaced), *OPTIONS],
            ["cmake", "--build", folder, "--target", "athanor"]]):
        if subprocess.run(command, cwd=root).returncode != 0:
            raise UserError("build: the library does not build; its messages are above")


def compiler(kernels=False):
    """Kernels, and what is linked with them, are compiled by g++."""
    name = "g++" if kernels else os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if not path:
        raise UserError(f"check: the compiler {name} must be installed (Debian: apt install g++), or named by CXX")
    return path


def flags(root):
    found = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unknown-pragmas",
             "-D_GLIBCXX_ASSERTIONS", "-ffp-contract=off", "-pthread"]
    if platform.machine() in ("x86_64", "AMD64"):
        found.append("-march=x86-64-v3")  # as the library
    if (root / "include").is_dir():  # a tarball
        found += ["-isystem", str(root / "include")]
    return found


def precompiled_tests(root, kernels):
    """A header with GoogleTest, compiled once: without it, most of a check would be spent on that."""
    command = [compiler(kernels), *flags(root)]
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, errors="replace").stdout
    header = build_folder(root) / "checks" / f"gtest-{hashlib.sha256(str((command, version)).encode()).hexdigest()[:12]}.h"
    ready = header.with_name(header.name + ".gch")
    if not ready.is_file():
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#include <gtest/gtest.h>\n")
        partial = f"{ready}.{os.getpid()}"
        run_compiler([*command, "-x", "c++-header", str(header), "-o", partial], "GoogleTest does not compile; is it installed (Debian: libgtest-dev)?")
        os.replace(partial, ready)
    return header


def link_flags(root, exercise):
    folder = library_folder(root)
    found = [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"] if (root / "lib").is_dir() else []
    if exercise.library:
        if not (folder / ARCHIVE).is_file():
            raise UserError(f"check: exercise {exercise.number} needs the library: run scripts/exercise.sh build once")
        found += [str(folder / ARCHIVE), "-lz", "-lisal", "-fopenmp"]
    return [*found, "-lfmt", "-lgtest_main", "-lgtest", "-pthread"]


def lab_environment(root):
    folder = os.environ.get("KERNEL_LAB_BUILD", str(root / "build" / "kernel_lab"))
    return {"KERNEL_LAB_BUILD": folder}


def emulator(root):
    """What a program with kernels is compiled with, what the kernels are besides, and what it is linked with. Builds the emulator once."""
    ran = subprocess.run(["bash", str(root / "scripts" / "kernel_lab.sh"), "--emulator"], stdout=subprocess.PIPE, text=True,
                         env={**os.environ, **lab_environment(root)})
    if ran.returncode != 0:
        raise UserError("check: the emulator of scripts/kernel_lab.sh does not build; its messages are above")
    return [line.split() for line in ran.stdout.splitlines()]


def run_compiler(command, what):
    """What the compiler said. Throws DoesNotCompile where it fails, or does not end."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise DoesNotCompile(f"{what}: the compiler had not ended after {SECONDS} s") from None
    if ran.returncode != 0:
        raise DoesNotCompile(f"{what}:\n{first_errors(ran.stderr)}")
    return ran.stderr


FOLDERS = ["autograd", "data", "dist", "kernels", "nn", "optim", "tensor", "trainer"]  # of the library's headers
KEPT = 3600  # seconds for which an object is kept after its last use


def texts_of(source, places):
    """The texts of a source and of all headers that it includes from `places`, directly or not."""
    texts, waiting = {}, [source]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        texts[path] = path.read_bytes()
        for name in includes(texts[path]):
            found = [place / name for place in (path.parent, *places)]
            waiting += [header for header in found if header.is_file()][:1]
    return sorted(texts.values())


def compile_one(command, source, folder, places, common):
    """The object of a source; an earlier one where nothing that it is made of has changed. Checks may run at once."""
    state = hashlib.sha256(b"\0".join([common, *texts_of(source, places)])).hexdigest()[:24]
    target = folder / f"{source.stem}-{state}.o"
    if target.is_file():
        os.utime(target)
        return target, ""
    partial = f"{target}.{os.getpid()}"
    warnings = run_compiler([*command, "-c", str(source), "-o", partial], f"{source.name} does not compile")
    os.replace(partial, target)
    return target, warnings


def first_errors(text, most=30):
    lines = text.splitlines()
    return "\n".join(lines[:most] + ([f"... and {len(lines) - most} more lines"] if len(lines) > most else []))


def compile_tests(root, exercise, stage):
    """The test program, in `stage`, and the compiler's warnings. Objects are kept for the next time."""
    folder = build_folder(root) / "checks" / "objects"
    folder.mkdir(parents=True, exist_ok=True)
    kernels = sorted(stage.rglob("*.cu"))
    device, of_kernels, emulated = emulator(root) if kernels else ([], [], [])
    plain = [compiler(bool(kernels)), *flags(root), f"-I{stage}", f"-I{root}", *device]
    host = [*plain, "-include", str(precompiled_tests(root, bool(kernels)))]
    libraries = [*link_flags(root, exercise), *emulated]
    commands = [(source, host) for source in sorted(stage.rglob("*.cpp"))]
    commands += [(source, [*plain, *of_kernels, "-x", "c++"]) for source in kernels]

    def compiled(item):
        source, command = item
        common = str([part for part in command if str(stage) not in part]).encode()
        return compile_one(command, source, folder, [stage, root, root / "simt" / "include"], common)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(compiled, commands))
    for old in folder.glob("*.o"):
        if old.stat().st_mtime < time.time() - KEPT:
            old.unlink(missing_ok=True)
    program = stage / "tests"
    run_compiler([plain[0], *(str(target) for target, _ in done), "-o", str(program), *libraries],
                 "the files do not link")
    return program, "".join(warnings for _, warnings in done)
