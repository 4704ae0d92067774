"""Diagrams of how an algorithm moves its numbers, for chapters that need a second figure: the function NAME draws docs/img/NAME.svg."""

from diagram import Diagram


def blocking():
    """What `blocked` of matrix_product.md reads for one k, and where it goes."""
    d = Diagram(760, 420, "A block of 6 x 32 results, and what one k adds to it")
    side, ax, bx, by, ay = 150, 30, 200, 70, 240
    for x, y in ((ax, ay), (bx, by), (bx, ay)):
        d.box(x, y, side, side, "", "plain")
    d.words(ax + side / 2, ay - 8, "a", "head", "middle").words(bx - 12, by + 14, "b", "head", "end")
    d.words(bx + side - 8, ay + side - 8, "y", "head", "end")
    row, column, k = 54, 52, 84
    d.fill(ax, ay + row, side, 18, "warm").fill(ax + k, ay + row, 6, 18, "c3")
    d.fill(bx + column, by, 46, side, "box").fill(bx + column, by + k, 46, 6, "c3")
    d.fill(bx + column, ay + row, 46, 18, "good")
    d.words(ax + 4, ay + row + 36, "6 rows", "tick").words(bx + column + 23, by - 6, "32 columns", "tick", "middle")
    d.words(ax + k + 3, ay + row - 6, "k", "tick", "middle").words(bx + column - 8, by + k + 7, "k", "tick", "end")
    d.rule(bx + column + 50, ay + row + 9, 396, 250, "mark")
    d.words(400, 86, "For one k, the red numbers:", "head")
    for i in range(2):
        d.box(476 + 130 * i, 104, 122, 26, ("b[k], 16 columns", "b[k], the next 16")[i], "box", "tick")
    for i in range(6):
        d.box(400, 142 + 32 * i, 66, 26, f"a[i+{i}][k]" if i else "a[i][k]", "warm", "tick")
        for j in range(2):
            d.box(476 + 130 * j, 142 + 32 * i, 122, 26, "16 sums", "good", "tick")
    d.words(400, 356, "The 12 green vectors stay in registers for all k.", "muted")
    d.words(400, 374, "2 vectors and 6 numbers are loaded: 8 loads", "muted")
    d.words(400, 392, "for 12 vector multiply-adds.", "muted")
    return d.done()


def im2col():
    """The rows of im2col for an image of 4 x 4 with one channel: numbers are pixels of the image."""
    d = Diagram(760, 420, "Im2col: each row holds the window of one pixel")
    side = 30
    d.words(30, 66, "the image, 4 x 4", "head")
    for pixel in range(16):
        d.box(30 + side * (pixel % 4), 80 + side * (pixel // 4), side - 2, side - 2, f"{pixel}", "bad" if pixel == 5 else "box")
    d.words(30, 224, "Pixel 5, red, is in the windows", "muted").words(30, 240, "of nine pixels, so it is written", "muted")
    d.words(30, 256, "nine times. A dot is a place", "muted").words(30, 272, "outside of the image: 0.", "muted")
    d.words(250, 66, "16 rows of 9 C numbers (C = 1)", "head")
    for p in range(16):
        d.words(244, 93 + 19 * p, f"{p}", "tick", "end")
        for place in range(9):
            row, column = p // 4 + place // 3 - 1, p % 4 + place % 3 - 1
            inside = 0 <= row < 4 and 0 <= column < 4
            pixel = 4 * row + column
            d.box(250 + 26 * place, 80 + 19 * p, 25, 18, f"{pixel}" if inside else "·", "plain" if not inside else "bad" if pixel == 5 else "box", "tick")
    d.words(500, 150, "x", "head", "middle").words(560, 66, "filters, 9 C x K", "head")
    for place in range(9):
        for filter_ in range(2):
            d.box(530 + 32 * filter_, 80 + 19 * place, 31, 18, "w", "warm", "tick")
    d.words(620, 150, "=", "head", "middle").words(652, 92, "", "tick")
    for p in range(16):
        for filter_ in range(2):
            d.box(650 + 32 * filter_, 80 + 19 * p, 31, 18, "y", "good", "tick")
    d.words(30, 408, "One row times one column of filters is the sum of products that the definition asks for.", "muted")
    return d.done()


def winograd_tile():
    """F(4, 3) in two dimensions: the tile, and what is multiplied."""
    d = Diagram(760, 330, "Winograd's tile: 36 multiplications for 4 x 4 results")
    cell = 13

    def grid(x, y, rows, style):
        for i in range(rows * rows):
            d.box(x + cell * (i % rows), y + cell * (i // rows), cell - 1, cell - 1, "", style)

    d.words(30, 66, "the image: tiles of 6 x 6", "head")
    for i in range(14 * 10):
        column, row = i % 14, i // 14
        style = "box" if column < 6 and row < 6 else "warm" if 4 <= column < 10 and row < 6 else "plain"
        d.box(30 + cell * column, 80 + cell * row, cell - 1, cell - 1, "", "good" if 4 <= column < 6 and row < 6 else style)
    d.words(30, 228, "Blue and yellow: two tiles.", "muted").words(30, 244, "They share the two green", "muted")
    d.words(30, 260, "columns, because the results", "muted").words(30, 276, "of one tile are 4 x 4.", "muted")
    grid(270, 92, 6, "box")
    d.words(309, 84, "data", "tick", "middle")
    grid(289, 228, 3, "warm")
    d.words(309, 282, "filter, 3 x 3", "tick", "middle")
    grid(430, 92, 6, "box")
    d.words(469, 84, "transformed", "tick", "middle")
    grid(430, 208, 6, "warm")
    d.words(469, 302, "transformed, once for all images", "tick", "middle")
    d.arrow(354, 131, 424, 131, "way", "sums").arrow(336, 247, 424, 247, "way", "sums")
    grid(556, 150, 6, "good")
    d.words(595, 142, "36 products", "tick", "middle")
    d.arrow(514, 140, 550, 168).arrow(514, 238, 550, 214)
    grid(684, 163, 4, "good")
    d.words(710, 155, "4 x 4 results", "tick", "middle")
    d.arrow(640, 189, 678, 189, "way", "sums")
    d.words(30, 322, "The definition multiplies 9 numbers for each of 16 results: 144.", "muted")
    return d.done()


def winograd_transposed():
    """Why F(4, 3) has six multiplications: a product of polynomials, read backwards."""
    d = Diagram(760, 312, "Six multiplications, forwards and backwards")
    stages = (("B\n6 x 4", "evaluates at 6 points"), ("D\n6 numbers", "multiplies"), ("A\n6 x 6", "interpolates"))
    for y, title, ends, backwards in ((100, "a product of two polynomials: A D B", ("4 coefficients", "6 coefficients"), False),
                                      (220, "the same three matrices, transposed: 4 results of a filter of 3", ("4 results", "6 data"), True)):
        d.words(24, y - 32, title, "head")
        for x, words, is_result in ((24, ends[0], backwards), (620, ends[1], not backwards)):
            d.box(x, y - 16, 116, 40, words, "good" if is_result else "plain")
        for i, (name, does) in enumerate(stages):
            x = 190 + 148 * i
            d.box(x, y - 20, 88, 48, name.replace("\n", "ᵀ\n", 1).replace("6 x 4", "4 x 6") if backwards and i != 1 else name, "warm" if i == 1 else "box")
            if not backwards:
                d.words(x + 44, y + 46, does, "tick", "middle")
        for left, right in ((140, 190), (278, 338), (426, 486), (574, 620)):
            if backwards:
                d.arrow(right, y + 4, left, y + 4, "back")
            else:
                d.arrow(left, y + 4, right, y + 4)
    d.words(24, 276, "D holds the values of the filter at the 6 points. In both directions it is the only place where data", "muted")
    d.words(24, 294, "are multiplied by what depends on the filter: 6 multiplications, not 12. A and B are fixed numbers.", "muted")
    return d.done()


def shuffle_tree():
    """The sum of eight numbers by halving in shared memory, and by exchanges in registers."""
    d = Diagram(760, 360, "Eight threads add eight numbers, in two ways")
    values = [3, 1, 4, 1, 5, 9, 2, 6]
    d.words(24, 64, "rung 3: halving, in shared memory", "head").words(404, 64, "rung 4: exchanges, in registers", "head")
    for x, exchange in ((24, False), (404, True)):
        held, distance = list(values), 4
        for level in range(4):
            y = 80 + 64 * level
            for i in range(8):
                live = exchange or i < 8 >> level
                d.box(x + 42 * i, y, 34, 24, f"{held[i]}" if live else "", ("good" if level == 3 else "box") if live else "plain")
            if level == 3:
                break
            for i in range(8):
                if exchange or i < distance:
                    partner = i ^ distance if exchange else i + distance
                    d.rule(x + 42 * i + 17, y + 26, x + 42 * i + 17, y + 62, "axis")
                    d.rule(x + 42 * partner + 17, y + 26, x + 42 * i + 17, y + 62, "back")
            if not exchange:
                d.words(x + 42 * 8 - 8, y + 48, "barrier", "tick", "end")
            old = list(held)
            for i in range(8):
                if exchange:
                    held[i] = old[i] + old[i ^ distance]
                elif i < distance:
                    held[i] = old[i] + old[i + distance]
            distance //= 2
    d.words(24, 324, "Red: a number that another thread reads. Left, half of", "muted").words(24, 342, "the threads stop after each step, and one has the sum.", "muted")
    d.words(404, 324, "Right, thread i reads from i ^ 4, i ^ 2 and i ^ 1. All", "muted").words(404, 342, "add in every step, and all have the sum at the end.", "muted")
    return d.done()


def producer_and_consumers():
    """When four stages are copied and multiplied: a copy takes 5 units of time, a product 2."""
    d = Diagram(820, 400, "Copies and products in time: one pair of tiles, and four")
    unit, left, copy, product = 18, 84, 5, 2

    def bar(start, length, y, words, style):
        d.box(left + unit * start, y, unit * length - 1, 22, words, style, "tick")

    d.words(24, 66, "rung 3: one pair of tiles", "head")
    for name, y in (("copy", 80), ("multiply", 106)):
        d.words(24, y + 15, name, "tick")
    for step in range(5):
        start = step * (copy + product)
        bar(start, copy, 80, f"{step}", "warm")
        bar(start + copy, product, 106, f"{step}", "good")
    d.words(24, 164, "rungs 4 and 5: four stages", "head")
    free, done, end = [0] * 4, 0, 0
    for step in range(16):
        stage = step % 4
        begin_copy = free[stage]
        begin_product = max(begin_copy + copy, done)
        done = free[stage] = begin_product + product
        if done > 39:
            break
        y = 178 + 30 * stage
        bar(begin_copy, copy, y, f"{step}", "warm")
        if begin_product > begin_copy + copy:
            bar(begin_copy + copy, begin_product - begin_copy - copy, y, "", "plain")
        bar(begin_product, product, y, f"{step}", "good")
        end = done
    for stage in range(4):
        d.words(24, 178 + 30 * stage + 15, f"stage {stage}", "tick")
    y = 178 + 30 * 4 + 6
    full, empty = left + unit * copy, left + unit * (copy + product)
    d.rule(full, 178, full, y, "mark").rule(empty, 178, empty, y, "mark")
    d.words(full - 4, y + 12, "full", "tick", "end").words(empty + 4, y + 12, "empty", "tick")
    d.words(24, 346, "Yellow: tiles are on their way. Green: they are multiplied. White: they have arrived and wait. Numbers are steps.", "muted")
    d.words(24, 364, "full: the bytes of stage 0 have arrived, and the consumers may read. empty: they have read, and the producer may copy step 4.", "muted")
    d.words(24, 382, f"Time runs to the right. In {end} units, one pair of tiles allows {end // (copy + product)} products and four allow {(end - copy) // product}.", "muted")
    return d.done()


def valley_map():
    import valley
    return valley.draw_map()


def tensor_split():
    """Two linear layers on two ranks: the first split by columns, the second by rows."""
    d = Diagram(800, 360, "A pair of layers on two ranks")
    for rank, y in ((0, 80), (1, 196)):
        half = rank + 1
        d.words(24, y + 36, f"rank {rank}", "head")
        d.box(84, y, 84, 60, "x\n[S, d]", "plain")
        d.box(206, y, 104, 60, f"A{half}\n[d, h/2]\n{'left' if rank == 0 else 'right'} half", "box")
        d.box(348, y, 96, 60, "relu\n[S, h/2]", "plain")
        d.box(482, y, 104, 60, f"B{half}\n[h/2, d]\n{'upper' if rank == 0 else 'lower'} half", "box")
        d.box(686, y, 90, 60, "y\n[S, d]", "good")
        for left, right in ((168, 206), (310, 348), (444, 482)):
            d.arrow(left, y + 30, right, y + 30)
        d.arrow(586, y + 30, 606, y + 30).arrow(658, y + 30, 686, y + 30)
    d.box(608, 80, 50, 176, "sum\nof the\ntwo", "bad")
    d.words(633, 72, "all-reduce", "tick", "middle")
    d.words(24, 292, "Both ranks have the whole x. A rank computes half of the columns of x A, and relu needs no other rank.", "muted")
    d.words(24, 310, "These columns meet exactly the rows of B that the rank holds, so its product is one term of y.", "muted")
    d.words(24, 328, "Only the sum of the terms is sent: one all-reduce of [S, d] for two layers. Backwards, dL/dx is summed in the same way.", "muted")
    return d.done()
