"""Diagrams of ideas: each function draws one, without a program."""

from diagram import Diagram


def tensors():
    """One buffer of six numbers and three views of it."""
    d = Diagram(760, 346, "Six numbers in memory, three tensors")
    d.words(24, 70, "memory", "muted")
    for i in range(6):
        d.box(120 + 44 * i, 52, 40, 28, f"{i + 1}", "box")
        d.words(140 + 44 * i, 96, f"{i}", "tick", "middle")
    views = (("x", 24, 2, 3, 3, 1), ("transpose(x, 0, 1)", 270, 3, 2, 1, 3), ("expand(select(x, 0, 0), {2, 3})", 500, 2, 3, 0, 1))
    for title, x, rows, cols, s0, s1 in views:
        d.words(x, 138, title, "head").words(x, 156, f"shape {{{rows}, {cols}}}, strides {{{s0}, {s1}}}")
        for i in range(rows):
            for j in range(cols):
                at = i * s0 + j * s1
                d.box(x + 48 * j, 170 + 36 * i, 44, 30, f"{at + 1}", "warm" if s0 == 0 else "box")
        d.words(x, 170 + 36 * rows + 16, f"element (i, j) is at {s0} i + {s1} j", "tick")
    d.words(24, 328, "No view has numbers of its own: its strides give the place of an index in memory. A stride of 0 repeats a row.", "muted")
    return d.done()


def autograd():
    """The diamond b = a + a, c = b + b, and the visits of the two engines."""
    d = Diagram(760, 300, "c = b + b, b = a + a: dc/da is 4")
    for x, name, total, style, facts in (
            (60, "walks every path", "6", "bad", ("1", "1", "1, then 2", "1, then 2")),
            (450, "counts first, passes once", "4", "good", ("1", "1", "2", "2"))):
        d.words(x - 36, 66, name, "head")
        for at, label in ((x, "c"), (x + 110, "b"), (x + 220, "a")):
            d.box(at - 20, 130, 44, 34, label, style if label == "a" else "box", "head")
        d.curve(x + 24, 140, x + 90, 140, 16, "back", facts[0])
        d.curve(x + 24, 156, x + 90, 156, -16, "back", facts[1])
        d.curve(x + 134, 140, x + 200, 140, 16, "back", facts[2])
        d.curve(x + 134, 156, x + 200, 156, -16, "back", facts[3])
        d.words(x - 20, 208, "c.grad = 1", "tick").words(x + 90, 208, "b.grad = 2", "tick")
        d.words(x + 200, 208, f"a.grad = {total}", "tick")
    d.words(24, 258, "Red arrows carry gradients backwards. On the left, b passes on 1 when it has 1, and again 2 when it has 2.", "muted")
    d.words(24, 276, "On the right, b waits until both contributions are there: its count of users has reached zero.", "muted")
    return d.done()


def coalescing():
    """What one load of a warp touches, in rung 1 and rung 2."""
    d = Diagram(760, 330, "One load of a warp: 32 threads, 32 floats")
    for y, title, sectors, note in ((76, "rung 1: each thread in a row of its own, 4,096 bytes apart", 32, "32 sectors read for 128 bytes: 28 of every 32 bytes are wasted"),
                                    (202, "rung 2: adjacent threads read adjacent floats", 4, "4 sectors for 128 bytes: nothing is wasted")):
        d.words(24, y - 8, title, "head")
        for i in range(32):
            d.fill(24 + 22 * i, y + 4, 16, 12, f"c{i % 8}")
        d.words(24, y + 36, "threads 0 to 31", "tick")
        for i in range(32):
            if sectors == 32:
                d.box(24 + 22 * i, y + 48, 20, 20, "", "plain")
                d.fill(24 + 22 * i, y + 48, 3, 20, f"c{i % 8}")
        if sectors == 4:
            for s in range(4):
                d.box(24 + 176 * s, y + 48, 172, 20, "", "plain")
                for i in range(8):
                    d.fill(26 + 176 * s + 21.3 * i, y + 50, 19, 16, f"c{i}")
        d.words(24, y + 86, note, "muted")
    return d.done()


def gdb_threads():
    """Block 2 of the chapter's session, at the line before the barrier, in the order `forward`."""
    d = Diagram(760, 290, "A block in the debugger: 256 threads, each with a stack of its own")
    shuffles, written, barrier = 84, 232, 334
    for x, words in ((shuffles, "shuffles"), (written, "sum written"), (barrier, "barrier")):
        d.words(x, 64, words, "tick", "start" if x == shuffles else "middle")
    d.rule(written, 70, written, 242).rule(barrier, 70, barrier, 242, "axis")
    for i in range(8):
        y = 76 + 20 * i
        d.words(24, y + 12, f"warp {i}", "tick")
        d.fill(shuffles, y, (barrier if i < 2 else 270 if i == 2 else 216) - shuffles, 14, "c0")
        if i == 2:
            d.fill(262, y, 8, 14, "c3")
    d.arrow(420, 92, 340, 92, "way").words(426, 96, "warps 0 and 1 wait at __syncthreads()")
    d.arrow(420, 123, 276, 123, "way").words(426, 127, "thread 70, stopped in gdb: step, print, look around")
    d.arrow(420, 154, 222, 154, "way").words(426, 158, "warps 3 to 7: their sums are not written yet")
    d.words(426, 190, "g++ compiles the kernel as a function. The emulator")
    d.words(426, 206, "calls it once for each thread, and switches stacks at")
    d.words(426, 222, "shuffles and barriers. gdb sees ordinary frames.")
    d.words(24, 270, "Time runs to the right. All bars of the block must reach the barrier before any of them continues.", "muted")
    return d.done()


def emulation():
    d = Diagram(760, 322, "One source, two compilers, and what each proves")
    d.box(24, 136, 130, 50, "a kernel in\nkernels/cuda/", "plain")
    d.box(230, 66, 130, 46, "g++", "good", "head")
    d.box(230, 198, 130, 46, "nvcc: PTX", "box", "head")
    d.arrow(154, 151, 230, 92).arrow(154, 171, 230, 218)
    d.box(440, 60, 290, 58, "emulator: results, races, bounds,\nbarriers, missing waits, counted sectors", "good")
    d.box(440, 140, 290, 42, "preset ptx: nvcc's code, inline assembly", "box")
    d.box(440, 192, 290, 42, "ptxas: registers, spills, launch limits", "box")
    d.box(440, 244, 290, 42, "a GPU: time, overlap, real rounding", "warm")
    d.arrow(360, 89, 440, 89).arrow(360, 208, 440, 166).arrow(360, 218, 440, 213).arrow(360, 230, 440, 260)
    d.words(24, 308, "Green runs on any machine. Blue needs the CUDA toolkit, but no GPU. Yellow needs a GPU.", "muted")
    return d.done()


def nvcc_wrote():
    d = Diagram(760, 300, "One kernel, two ways to the CPU")
    d.box(24, 126, 120, 50, "a kernel\n.cu", "plain")
    d.box(196, 66, 100, 42, "g++", "good", "head")
    d.box(196, 190, 100, 42, "nvcc", "box", "head")
    d.arrow(144, 140, 196, 92).arrow(144, 162, 196, 206)
    d.box(348, 66, 170, 42, "x86, and calls of\nsimt/emulator/", "good")
    d.box(348, 190, 64, 42, "PTX", "box")
    d.box(454, 190, 110, 42, "C++, and calls\nof simt/ptx/", "good")
    d.arrow(296, 87, 348, 87).arrow(296, 211, 348, 211).arrow(412, 211, 454, 211)
    d.words(433, 182, "translate.py", "tick", "middle")
    d.box(620, 126, 116, 50, "the same tests,\non the CPU", "good")
    d.arrow(518, 92, 620, 140).arrow(564, 206, 620, 166)
    d.box(348, 252, 64, 30, "SASS", "warm")
    d.arrow(380, 232, 380, 252)
    d.words(420, 271, "ptxas; runs on a GPU alone", "muted")
    d.words(24, 54, "Two compilers, and two readings of what tensor cores, TMA and barriers do, must agree.", "muted")
    return d.done()


def loss_scale():
    """What becomes of the scale after a step: update_ops.h as a flow chart."""
    d = Diagram(760, 380, "After each step: one test, three ends")
    d.box(290, 56, 180, 34, "gradients of scale · loss", "plain")
    d.arrow(380, 90, 380, 112)
    d.box(240, 112, 280, 34, "is the sum of their squares finite?", "box")
    d.arrow(300, 146, 150, 196, "way", "no").arrow(460, 146, 560, 180, "way", "yes")
    d.box(450, 180, 250, 34, "is their norm an outlier?", "box")
    d.arrow(520, 214, 430, 252, "way", "yes").arrow(610, 214, 630, 252, "way", "no")
    d.words(24, 190, "overflow", "head")
    d.box(24, 196, 264, 112, "the step is skipped\nscale = max(floor, scale · backoff)\ncounter = 0\nstuck: 0 if the scale went down,\nelse stuck + 1", "bad")
    d.box(320, 252, 150, 72, "the step is skipped\nnothing else\nchanges", "warm")
    d.box(500, 252, 236, 92, "the step is applied\nstuck = 0, counter = counter + 1\ncounter = growth_interval? then\nscale = min(ceiling, scale · growth)\nand counter = 0", "good")
    d.words(24, 366, "It begins with scale 65536; backoff 1/2, growth 2, growth_interval 2000, floor 1, ceiling 2^24.", "muted")
    return d.done()


def own_op():
    d = Diagram(760, 250, "The parts of an op")
    d.box(24, 70, 150, 60, "check\nshapes, dtypes", "plain")
    d.box(214, 70, 150, 60, "compute y\nkernel, CPU or CUDA", "box")
    d.box(404, 70, 150, 60, "record\ny, inputs, closure", "box")
    d.box(594, 70, 142, 60, "return y", "plain")
    for x in (174, 364, 554):
        d.arrow(x, 100, x + 40, 100)
    d.box(404, 168, 150, 46, "closure: dy to dx", "bad")
    d.arrow(479, 130, 479, 168, "way", "")
    d.words(488, 154, "holds Saved(x)", "tick")
    d.arrow(736, 191, 554, 191, "back", "later: dL/dy", True)
    d.arrow(404, 191, 214, 191, "back", "dL/dx for each input", True)
    return d.done()


def loader_ring():
    d = Diagram(760, 330, "Four slots, filled in order; tickets count rows")
    states = (("step 7", "gggg", "the caller's"), ("step 8", "ggwg", "one row missing"), ("step 9", "gwpp", "being filled"), ("step 10", "pppp", "not begun"))
    styles = {"g": "good", "w": "warm", "p": "plain"}
    for s, (name, rows, note) in enumerate(states):
        x = 40 + 180 * s
        d.words(x, 70, name, "head").words(x, 88, f"slot {(s + 3) % 4}", "tick")
        for r, row in enumerate(rows):
            d.box(x, 98 + 26 * r, 140, 22, "next ticket" if (s, r) == (2, 2) else "", styles[row], "tick")
        d.words(x, 222, note, "tick")
    d.arrow(110, 240, 110, 228, "back").words(40, 256, "next() frees this slot;", "tick").words(40, 271, "until then, step 11 waits", "tick")
    d.arrow(290, 240, 290, 228, "way").words(220, 256, "the caller's next batch", "tick")
    for x, style, words in ((40, "good", "filled"), (116, "warm", "a thread is reading it"), (290, "plain", "no thread has its ticket yet")):
        d.box(x, 296, 16, 14, "", style)
        d.words(x + 22, 307, words, "muted")
    return d.done()


def packed_layout():
    d = Diagram(760, 270, "A packed file, from its first byte to its last")
    parts = (("header", 62, "warm"), ("data: samples, each at a multiple of 64", 280, "box"), ("index", 74, "good"), ("class\nnames", 66, "good"),
             ("fields\n(version 2)", 76, "good"), ("page\nCRCs", 56, "good"), ("footer", 62, "warm"))
    x, left = 24, []
    for name, width, style in parts:
        d.box(x, 76, width, 54, name, style)
        left.append(x)
        x += width + 6
    d.words(left[2] + 37, 58, "of each sample: offset, length, CRC, label", "tick", "middle")
    d.curve(left[2] + 20, 76, left[1] + 160, 76, -14, "back", "")
    for first, last, words in ((0, 0, "1st read"), (6, 6, "2nd read"), (2, 5, "3rd read, to the page CRCs"), (1, 1, "then one read for each sample")):
        end = left[last] + parts[last][1]
        d.fill(left[first], 138, end - left[first], 3, "c0").words((left[first] + end) / 2, 156, words, "tick", "middle")
    d.words(24, 192, "A reader checks all parts but the data when it opens the file, and a sample when it is fetched.", "muted")
    d.words(24, 212, "The footer holds the CRCs of header, index, names with fields, and page CRCs; header and footer end with their own.", "muted")
    d.words(24, 232, "A file gets its final name only when all its bytes are on the disk, so a killed writer leaves none with that name.", "muted")
    d.words(24, 252, "The data are divided into pages, usually of 8 MiB; no sample that fits into a page crosses its end.", "muted")
    return d.done()


def run_flow():
    d = Diagram(760, 250, "A run: what reads what")
    top = (("flags, recipe", "plain"), ("TrainerConfig", "box"), ("Run", "box"), ("the loop", "good"), ("run folder", "warm"))
    for i, (name, style) in enumerate(top):
        d.box(24 + 148 * i, 74, 118, 50, name, style, "head")
        if i:
            d.arrow(24 + 148 * i - 30, 99, 24 + 148 * i, 99)
    for i, words in enumerate(("checked once,\nerrors name the flag", "one struct,\nno globals", "model, data,\noptimizer, ranks", "steps, validation,\nlimits, callbacks", "metrics, checkpoints,\nweights, report")):
        for k, row in enumerate(words.split("\n")):
            d.words(83 + 148 * i, 146 + 16 * k, row, "tick", "middle")
    d.curve(675, 176, 350, 176, 20, "back", "")
    d.words(512, 222, "--resume: the newest valid checkpoint", "tick", "middle")
    return d.done()


def kills():
    d = Diagram(760, 260, "A checkpoint is written under another name, then renamed")
    d.arrow(24, 110, 736, 110)
    steps = ((60, "step 30", "saved", "good"), (250, "write", "40.tmp grows", "warm"), (420, "fsync", "bytes on disk", "warm"), (560, "rename", "one instant", "good"), (680, "remove old", "", "plain"))
    for x, name, note, style in steps:
        d.box(x - 34, 92, 82, 36, name, style)
        d.words(x + 7, 146, note, "tick", "middle")
    for x, words in ((160, "killed here:\nresume from step 30"), (345, "killed here: .tmp is\nignored and removed"), (624, "killed here:\nresume from step 40")):
        d.arrow(x, 64, x, 104, "back")
        for k, row in enumerate(words.split("\n")):
            d.words(x, 182 + 16 * k, row, "tick", "middle")
        d.curve(x, 168, x, 112, 0.01, "back")
    d.words(24, 244, "From the first checkpoint on, a valid one always has its final name.", "muted")
    return d.done()


def waiting_chain():
    d = Diagram(760, 290, "Which rank waits for which: rank 2 has stopped")
    places = ((120, 150), (320, 80), (520, 150), (320, 220))
    names = ("rank 0\nwaits for 3", "rank 1\nwaits for 0", "rank 2\nsilent", "rank 3\nwaits for 2")
    for (x, y), name, style in zip(places, names, ("box", "box", "bad", "box")):
        d.box(x - 56, y - 24, 112, 48, name, style)
    d.arrow(280, 104, 176, 140, "back").arrow(166, 174, 264, 214, "back").arrow(376, 206, 464, 164, "back")
    d.words(600, 130, "Three ranks report a wait,", "tick").words(600, 146, "each for another rank.", "tick")
    d.words(600, 168, "Follow the arrows: they", "tick").words(600, 184, "end at the rank that", "tick").words(600, 200, "waits for none.", "tick")
    d.words(24, 274, "An arrow points from the rank that waits to the rank it waits for.", "muted")
    return d.done()


def photos():
    d = Diagram(760, 200, "Four commands")
    for i, (name, note) in enumerate((("photos/", "a folder for each class"), ("train_images", "a run's folder"), ("predict, evaluate", "is it good enough?"), ("serve", "a page and an API"))):
        d.box(24 + 186 * i, 74, 152, 48, name, "plain" if i == 0 else "box", "head")
        d.words(100 + 186 * i, 146, note, "tick", "middle")
        if i:
            d.arrow(24 + 186 * i - 34, 98, 24 + 186 * i, 98)
    return d.done()


def lightning():
    d = Diagram(760, 280, "Lightning on the left, Athanor on the right")
    rows = (("LightningModule", "nn::Module, and a Task for its loss"), ("training_step", "Task::training_step"), ("configure_optimizers", "flags, or Task::optimizers"),
            ("Trainer(...)", "TrainerConfig, the same flags"), ("Callback", "Callback"), ("DataLoader, DataModule", "Dataset; the Loader is built in"))
    for i, (left, right) in enumerate(rows):
        y = 62 + 34 * i
        d.box(24, y, 260, 27, left, "warm")
        d.box(420, y, 316, 27, right, "box")
        d.arrow(284, y + 13, 420, y + 13)
    return d.done()


def one_step():
    """The network of examples/one_step.cpp: what goes forward, and what comes back."""
    d = Diagram(760, 330, "One step: forward, loss, backward, update")
    boxes = (("images\n[32, 8, 8, 1]", "plain"), ("conv, relu, pool\n[32, 4, 4, 16]", "box"), ("conv, relu, pool\n[32, 2, 2, 32]", "box"), ("linear\n[32, 10]", "box"), ("loss\n[]", "warm"))
    for i, (words, style) in enumerate(boxes):
        d.box(24 + 148 * i, 84, 118, 54, words, style)
        if i:
            d.arrow(24 + 148 * i - 30, 104, 24 + 148 * i, 104)
            if i > 1:
                d.arrow(24 + 148 * i, 122, 24 + 148 * i - 30, 122, "back")
    weights = (("W1 [16, 3, 3, 1]", 1), ("W2 [32, 3, 3, 16]", 2), ("W3 [10, 128]", 3))
    for words, i in weights:
        x = 24 + 148 * i
        d.box(x, 210, 118, 34, words, "good")
        d.arrow(x + 40, 210, x + 40, 138).arrow(x + 80, 138, x + 80, 210, "back")
        d.words(x + 86, 178, "dL/dW", "tick")
    d.words(24, 66, "forward, black: each op saves what its gradient needs", "muted")
    d.words(24, 280, "backward, red: from the loss to the weights; the images need no gradient, so no arrow reaches them", "muted")
    d.words(24, 300, "update: W -= rate dL/dW, for 144 + 4,608 + 1,280 = 6,032 numbers", "muted")
    return d.done()


def step_calls():
    import step_calls as calls
    return calls.draw()


def after():
    """Memory per rank by the rules of Rajbhandari et al.: mixed precision with Adam, 16 bytes for each parameter."""
    import chart
    ranks = [2**i for i in range(0, 11)]
    series = [("DDP", [(p, 16.0) for p in ranks], "l3"), ("ZeRO-1", [(p, 4 + 12 / p) for p in ranks], "l1"),
              ("ZeRO-2", [(p, 2 + 14 / p) for p in ranks], "l0"), ("ZeRO-3", [(p, 16 / p) for p in ranks], "l2")]
    return chart.lines("Bytes of a parameter on each rank", "ranks", "bytes (AdamW, 16-bit weights, f32 masters)", series, x_log=True,
                       y_range=(0, 17), x_range=(1, 1024), x_ticks=[(p, f"{p:,}") for p in ranks],
                       note="computed: 2 weight + 2 gradient + 4 master + 8 optimizer; a stage divides more of the four by the ranks")


def valley():
    import valley as descents
    return descents.draw()
