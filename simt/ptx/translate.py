#!/usr/bin/env python3
# Explained in docs/what_nvcc_wrote.md.
"""PTX, as nvcc writes it, to C++ that the emulator runs: translate.py FILE.ptx SOURCE.cu -o FILE.cpp

Each .entry becomes a function that one thread of a launch executes, each .func a function that those call. The C++ has
a line for each line of the PTX, with its text beside it; #line makes a debugger show, and errors name, the line of
the PTX. A register is a variable of the same name: %rd4 is rd4, of the type b64. What an instruction computes is said
by the table INSTRUCTIONS, if it is an expression; by a method of Body, named after it, if it is more. Those call
arithmetic.h and memory.h for what C++ lacks, and instructions.h for what threads do together or asynchronously.

Memory: .global, .const and .local addresses, and generic ones, are those of the host. .shared addresses are offsets into
the window that instructions.h keeps for each block. A .param is a pointer to its bytes.

What is not known is an error that names the kernel, the file and the line; nothing is guessed or left out.
"""

import argparse
import os
import re
import struct
import sys

# ---- types

BITS = {kind + str(bits): bits for kind in "bus" for bits in (8, 16, 32, 64)}
BITS.update(f16=16, bf16=16, f32=32, f64=64, pred=1)


def is_float(type_):
    return type_ in ("f32", "f64")


def variable_type(type_):
    """What a register of that type is in C++: integers have no sign, as in b32."""
    return type_ if is_float(type_) or type_ == "pred" else "b%d" % BITS[type_]


# ---- instructions that are an expression

# An instruction matches its pattern, in which I is an integer type, F f32 or f64, B a type of bits; each is `t` in what
# follows. Then come the types of the result and of the operands: t; u, s and b: unsigned, signed and bits, as wide; w: twice as
# wide; or a type's name. Then the expression, with operands a, b, c, ..., and types by their letters in capitals.
INSTRUCTIONS = [
    ("add.I", "u", "u u", "{a} + {b}"),
    ("sub.I", "u", "u u", "{a} - {b}"),
    ("mul.lo.I", "u", "u u", "{a} * {b}"),
    ("mul.wide.I", "w", "t t", "{W}({a}) * {W}({b})"),
    ("mul.hi.I", "t", "t t", "multiply_high<{T}>({a}, {b})"),
    ("mad.lo.I", "u", "u u u", "{a} * {b} + {c}"),
    ("mad.wide.I", "w", "t t w", "{W}({a}) * {W}({b}) + {c}"),
    ("div.I", "t", "t t", "divide<{T}>({a}, {b})"),
    ("rem.I", "t", "t t", "remainder<{T}>({a}, {b})"),
    ("min.I", "t", "t t", "{a} < {b} ? {a} : {b}"),
    ("max.I", "t", "t t", "{a} > {b} ? {a} : {b}"),
    ("neg.I", "u", "u", "-{a}"),
    ("abs.I", "t", "t", "{a} < 0 ? -{a} : {a}"),
    ("dp2a.(lo|hi).u32.u32", "u32", "u32 u32 u32", "dot_of_two_{1}({a}, {b}, {c})"),
    ("dp4a.u32.s32", "s32", "u32 s32 s32", "dot_of_four({a}, {b}, {c})"),
    ("and.B", "t", "t t", "{a} & {b}"),
    ("or.B", "t", "t t", "{a} | {b}"),
    ("xor.B", "t", "t t", "{a} ^ {b}"),
    ("not.pred", "pred", "pred", "!{a}"),
    ("not.B", "t", "t", "~{a}"),
    ("shl.B", "u", "u u32", "shift_left<{U}>({a}, {b})"),  # clamps the distance
    ("shr.I", "t", "t u32", "shift_right<{T}>({a}, {b})"),
    ("shr.B", "u", "u u32", "shift_right<{U}>({a}, {b})"),
    ("bfi.B", "u", "u u u32 u32", "field_inserted<{U}>({a}, {b}, {c}, {d})"),
    ("bfind(.shiftamt)?.I", "u32", "t", "highest_bit<{T}>({a}, {1})"),
    ("brev.B", "u", "u", "reversed<{U}>({a})"),
    ("prmt.b32", "u32", "u32 u32 u32", "bytes_permuted({a}, {b}, {c})"),
    ("add(.rn)?.F", "t", "t t", "{a} + {b}"),
    ("sub(.rn)?.F", "t", "t t", "{a} - {b}"),
    ("mul(.rn)?.F", "t", "t t", "{a} * {b}"),
    ("div(.rn|.approx).F", "t", "t t", "{a} / {b}"),  # .approx is allowed errors, and need not make any
    ("fma.rn.F", "t", "t t t", "fma({a}, {b}, {c})"),
    ("fma.(rz|rm|rp).F", "t", "t t t", "fma_rounded(Rounding::{1}, {a}, {b}, {c})"),
    ("min.F", "t", "t t", "minimum<{T}>({a}, {b})"),
    ("max.F", "t", "t t", "maximum<{T}>({a}, {b})"),
    ("neg.F", "t", "t", "-{a}"),
    ("abs.F", "t", "t", "absolute({a})"),
    ("copysign.F", "t", "t t", "copy_sign({b}, {a})"),
    ("sqrt.rn.F", "t", "t", "square_root({a})"),
    ("rcp.rn.F", "t", "t", "1 / {a}"),
    ("ex2.approx.ftz.f32", "f32", "f32", "flushed(std::exp2(flushed({a})))"),
    ("rcp.approx.ftz.f32", "f32", "f32", "flushed(1 / flushed({a}))"),
    ("rcp.approx.ftz.f64", "f64", "f64", "reciprocal_of_high_word({a})"),
    ("cvt.rna.tf32.f32", "u32", "f32", "to_tf32({a})"),
    ("cvt.rn.f16.(f32|f64)", "b16", "{1}", "to_f16({a})"),
    ("cvt.rn.bf16.f32", "b16", "f32", "to_bf16({a})"),
    ("cvt.(f32|f64).(f16|bf16)", "{1}", "b16", "from_{2}({a})"),
    ("cvt.rn.(f16|bf16)x2.f32", "b32", "f32 f32", "b32(to_{1}({a})) << 16 | to_{1}({b})"),
    ("vote.sync.(all|any).pred", "pred", "pred u32", "vote_{1}({a}, {b})"),
    ("vote.sync.ballot.b32", "u32", "pred u32", "vote_ballot({a}, {b})"),
    ("cvta.(global|const|local|param).u64", "u64", "u64", "{a}"),
    ("cvta.to.(global|const|local|param).u64", "u64", "u64", "{a}"),
    ("cvta.shared.u64", "u64", "u64", "shared_to_generic({a})"),
    ("cvta.to.shared.u64", "u64", "u64", "generic_to_shared({a})"),
]

# The same for what has no result.
STATEMENTS = [
    ("trap", "", "trap()"),
    ("(bar.sync|barrier.sync(.aligned)?)", "u32 u32?", "bar_sync({all})"),
    ("bar.warp.sync", "u32", "bar_warp_sync({a})"),
    ("(fence|membar)(.acq_rel|.sc)?.(cta|gpu|sys|gl)", "", "(void)0"),  # one thread of the host runs all threads
    ("fence.proxy.async(.shared::cta|.global)?", "", "fence_proxy_async()"),
    ("fence.mbarrier_init.release.cluster", "", "fence_mbarrier_init()"),
    ("griddepcontrol.(wait|launch_dependents)", "", "(void)0"),  # launches run one after the other
    ("mbarrier.init(.shared|.shared::cta).b64", "[shared] u32", "mbarrier_init({all})"),
    ("mbarrier.arrive(.shared|.shared::cta).b64", "_ [shared]", "mbarrier_arrive({all})"),
    ("mbarrier.arrive.expect_tx(.shared|.shared::cta).b64", "_ [shared] u32", "mbarrier_arrive_expect_tx({all})"),
    ("mbarrier.try_wait.parity(.shared|.shared::cta).b64", "=pred [shared] u32", "mbarrier_try_wait({all})"),
    ("cp.async.(ca|cg).shared.global", "[shared] [global] u32 u32?", "cp_async({all})"),
    ("cp.async.commit_group", "", "cp_async_commit()"),
    ("cp.async.wait_group", "u32", "cp_async_wait_group({a})"),
    ("cp.async.wait_all", "", "cp_async_wait_all()"),
    ("cp.async.bulk.shared::c(luster|ta).global.mbarrier::complete_tx::bytes", "[shared] [global] u32 [shared]",
     "cp_async_bulk({all})"),
    ("setmaxnreg.inc.sync.aligned.u32", "u32", "setmaxnreg(true, {a})"),
    ("setmaxnreg.dec.sync.aligned.u32", "u32", "setmaxnreg(false, {a})"),
    ("wgmma.fence.sync.aligned", "", "wgmma_fence()"),
    ("wgmma.commit_group.sync.aligned", "", "wgmma_commit()"),
    ("wgmma.wait_group.sync.aligned", "u32", "wgmma_wait({a})"),
]

LETTERS = {
    "I": r"(?P<t>[us](?:16|32|64))",
    "F": r"(?P<t>f32|f64)",
    "B": r"(?P<t>b16|b32|b64|pred)",
}


def compiled(pattern):
    pattern = re.sub(r"\.([IFB])\b", lambda letter: "." + LETTERS[letter.group(1)], pattern)
    return re.compile(pattern.replace(".", r"\."))


INSTRUCTIONS = [(compiled(pattern), result, operands, text) for pattern, result, operands, text in INSTRUCTIONS]
STATEMENTS = [(compiled(pattern), operands, text) for pattern, operands, text in STATEMENTS]

SPECIAL_REGISTERS = {"%laneid": "lane()"}
for axis in "xyz":
    SPECIAL_REGISTERS["%tid." + axis] = "threadIdx." + axis
    SPECIAL_REGISTERS["%ntid." + axis] = "blockDim." + axis
    SPECIAL_REGISTERS["%ctaid." + axis] = "blockIdx." + axis
    SPECIAL_REGISTERS["%nctaid." + axis] = "gridDim." + axis

# a and b as floats: the first of each pair holds for numbers alone, the other (with a u) also if one is NaN.
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
               "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
OPPOSITES = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}

# What says how, or how far, an access is seen by others; nothing else runs meanwhile here.
ACCESS_QUALIFIERS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta", "gpu", "sys", "nc", "ca", "cg",
                     "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first",
                     "L2::128B", "L2::256B", "L2::64B"}
SPACES = {"global", "shared", "shared::cta", "param", "local", "const"}


class Unknown(Exception):
    """The translator does not know what it was given."""


# ---- the text

class Statement:
    def __init__(self, line, text, kind):
        self.line, self.text, self.kind = line, text, kind  # kind: "", "label", "{" or "}"


TOKEN = re.compile(r"\s+|//[^\n]*|([\w$]+)\s*:(?!:)|([{}])|([^;{}]*(?:\{[^}]*\}[^;{}]*)*);")


def statements(text, line):
    """Statements of a body, each with its line."""
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if not found:
            raise Unknown("no statement begins here: " + text[position:position + 60].split("\n")[0])
        label, brace, instruction = found.groups()
        if label:
            yield Statement(line, label, "label")
        elif brace:
            yield Statement(line, "", brace)
        elif instruction:
            yield Statement(line, " ".join(instruction.split()), "")
        line += found.group().count("\n")
        position = found.end()


def split(text):
    """At commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return parts + [last] if last else parts


# What a register cannot be called: %f32 becomes f32_.
CPP_WORDS = set("""alignas and asm auto bool break case catch char class const continue default delete do double else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new not operator or private
    protected public register return short signed sizeof static struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile while xor""".split()) | set(BITS)


def identifier(name):
    found = re.search(r"_(param_\d+)$", name)  # NAME_OF_FUNCTION_param_0
    if found:
        return found.group(1)
    name = name.lstrip("%").replace("$", "_").replace(".", "_")
    return name + "_" if name in CPP_WORDS else name.lstrip("_") if name.startswith("_L__") else name


def function_name(name):
    """Of the C++ function: sqrt and the like must not be those of the C library."""
    return name if name.startswith("_") else name + "_ptx"


DECLARATION = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?"
    r"\.(\w+)\s+(?:\.ptr(?:\s+\.(?!align)\w+)?(?:\s+\.align\s+\d+)?\s+)?([\w$%]+)(?:\[(\d*)\])?\s*(?:=\s*(.*))?$", re.S)


class Declared:
    """.align 8 .b8 name[24] = {...}: a variable, or a parameter."""

    def __init__(self, text):
        found = DECLARATION.match(text.strip())
        if not found:
            raise Unknown("declaration: " + text)
        self.space, align, type_, self.name, count, self.value = found.groups()
        if type_ not in BITS:
            raise Unknown("declaration: " + text)
        self.element = BITS[type_] // 8
        self.align = int(align or self.element)
        self.type = type_
        self.bytes = self.element * int(count or 1) if count != "" else 0


def aligned(offset, alignment):
    return -(-offset // alignment) * alignment


def initialiser(variable):
    """Of an array of its elements."""
    values = split(variable.value.strip().strip("{}"))
    words = [literal(value, variable.type) for value in values]
    if None in words:  # addresses of other variables
        raise Unknown("initialiser of " + variable.name)
    return ", ".join(words)


def literal(text, type_):
    """An immediate operand of that type in C++; None if it is none."""
    found = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text)
    if found:
        single, double = found.groups()
        value = struct.unpack(">f", bytes.fromhex(single))[0] if single else struct.unpack(">d", bytes.fromhex(double))[0]
        suffix = "f" if single else ""
        if type_ != ("f32" if single else "f64") or value != value or value in (float("inf"), -float("inf")):
            return "as<%s>(0x%s)" % (type_, single + "u" if single else double + "ull")
        return repr(value) + suffix
    if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return None
    value = int(text.rstrip("U"), 0 if "x" in text.lower() else 10)
    if type_ == "pred":
        return "true" if value else "false"
    if is_float(type_):
        raise Unknown("the operand %s, which should be a %s" % (text, type_))
    bits = BITS[type_]
    if type_[0] == "s":
        value = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        if value == -(1 << bits - 1):
            return "%s(0x%xull)" % (type_, 1 << bits - 1)
        return str(value) if bits == 32 else "%dll" % value if bits == 64 else "%s(%d)" % (type_, value)
    value %= 1 << bits
    number = "0x%x" % value if value > 0xffff else str(value)
    return number + "u" if bits == 32 else number + "ull" if bits == 64 else "%s(%s)" % (variable_type(type_), number)


# ---- a body

class Body:
    """The statements of one function. Names are looked up in scopes, the innermost last."""

    def __init__(self, unit):
        self.unit = unit
        self.scopes = [{}]  # register or parameter -> its type; "param" for those that are pointers to bytes
        self.tables = {}    # name of a table of labels -> these
        self.prototypes = set()

    # Operands.

    def lookup(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def value(self, operand, type_):
        """An expression of that type."""
        number = literal(operand, type_)
        if number is not None:
            return number
        if operand.startswith("!"):
            return "!" + self.value(operand[1:], type_)
        if operand in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[operand] if type_ in ("u32", "b32") else "%s(%s)" % (type_, SPECIAL_REGISTERS[operand])
        declared = self.lookup(operand)
        if declared == "param":
            return "address_of(%s)" % identifier(operand)
        if declared is None:
            variable = self.unit.variables.get(operand)
            if variable is None and operand in self.unit.functions:
                return "address_of(&%s)" % function_name(operand)
            if variable is None:
                raise Unknown("the operand " + operand)
            if variable.space == "shared":
                return "%s(%s)" % (type_, identifier(operand))
            return "address_of(%s)" % identifier(operand)
        name = identifier(operand)
        if declared == type_ or variable_type(type_) == declared and type_[0] in "ub":
            return name
        if is_float(declared) or is_float(type_):
            if BITS[declared] != BITS[type_]:
                raise Unknown("the operand %s, a %s, as a %s" % (operand, declared, type_))
            return "as<%s>(%s)" % (type_, name)
        if BITS[declared] < BITS[type_] or declared == "pred" or type_ == "pred":
            raise Unknown("the operand %s, a %s, as a %s" % (operand, declared, type_))
        return "%s(%s)" % (type_, name)

    def assign(self, target, type_, expression):
        if target == "_":
            return "(void)(%s);" % expression
        declared = self.lookup(target)
        if declared is None or declared == "param":
            raise Unknown("the result " + target)
        if (declared == "pred") != (type_ == "pred") or BITS[declared] < BITS[type_]:
            raise Unknown("the result %s, a %s, of a %s" % (target, declared, type_))
        if is_float(declared) != is_float(type_):
            expression = "as<%s>(%s(%s))" % (declared, type_, expression)
        elif type_[0] == "s" and BITS[declared] > BITS[type_]:  # sign extension
            expression = "%s(%s)" % (type_, expression)
        elif declared != type_ and BITS[declared] > BITS[type_]:
            expression = "%s(%s)" % (variable_type(type_), expression)
        return "%s = %s;" % (identifier(target), expression)

    def address(self, operand, space):
        """Of [%rd1+8] or [name]: a number, or for .param a pointer."""
        found = re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
        if not found:
            raise Unknown("the address " + operand)
        base, offset = found.group(1), int(found.group(2) or 0)
        if space == "param" and self.lookup(base) == "param":
            text = identifier(base)
        else:
            text = self.value(base, "u32" if space.startswith("shared") and self.lookup(base) == "b32" else "u64")
        return text + (" + %d" % offset if offset > 0 else " - %d" % -offset if offset < 0 else "")

    def pointer(self, operand, space, bytes_):
        """What load() and store() take."""
        address = self.address(operand, space)
        return "shared(%s, %d)" % (address, bytes_) if space.startswith("shared") else address

    # Instructions.

    def translate(self, text):
        found = re.fullmatch(r"(?:@(!?)([\w%$]+) )?([a-z][\w.:]*) ?(.*)", text, re.S)
        if not found:
            raise Unknown("the statement " + text)
        negated, predicate, opcode, operands = found.groups()
        code = self.instruction(opcode, operands)
        if predicate:
            code = "if (%s) %s" % (self.value(negated + predicate, "pred"), code if code.count(";") == 1 else "{ %s }" % code)
        return code

    def instruction(self, opcode, operands):
        method = getattr(self, "do_" + opcode.split(".")[0], None)
        parts = split(operands)
        if method:
            code = method(opcode.split("."), parts)
            if code is not None:
                return code
        for pattern, result, types, text in INSTRUCTIONS:
            found = pattern.fullmatch(opcode)
            if found:
                return self.expression(found, result, types.split(), text, parts)
        for pattern, types, text in STATEMENTS:
            found = pattern.fullmatch(opcode)
            if found:
                return self.effect(found, types.split(), text, parts)
        raise Unknown("the instruction " + opcode)

    @staticmethod
    def type_names(found):
        groups = found.groupdict()
        t = groups.get("t")
        names = {}
        if t and t != "pred":
            bits = BITS[t]
            names = {"t": t, "u": "u%d" % bits, "s": "s%d" % bits, "b": "b%d" % bits, "w": "%s%d" % (t[0], 2 * bits)}
        elif t:
            names = {"t": t, "u": t}
        return names

    @staticmethod
    def group(found, number):
        """Without its dot; of one that is optional, whether it is there."""
        text = found.group(number)
        return "false" if text is None else "true" if text == ".shiftamt" else text.lstrip(".")

    def expression(self, found, result, types, text, parts):
        names = self.type_names(found)
        words = [""] + [self.group(found, i + 1) for i in range(found.re.groups)]
        resolve = lambda word: names.get(word) or word.format(*words)
        if len(parts) != len(types) + 1:
            raise Unknown("%d operands of %s" % (len(parts), found.group()))
        values = {letter: self.value(part, resolve(type_)) for letter, part, type_ in zip("abcd", parts[1:], types)}
        if text.startswith("shift_") and parts[2].isdigit() and int(parts[2]) < BITS[resolve(result)]:
            text = "{a} << {b}" if "left" in text else "{a} >> {b}"
        values.update({name.upper(): type_ for name, type_ in names.items()})
        return self.assign(parts[0], resolve(result), text.format(*words, **values))

    def effect(self, found, types, text, parts):
        words = [""] + [self.group(found, i + 1) for i in range(found.re.groups)]
        required = [type_ for type_ in types if not type_.endswith("?")]
        if not len(required) <= len(parts) <= len(types):
            raise Unknown("%d operands of %s" % (len(parts), found.group()))
        values, result = [], None
        for part, type_ in zip(parts, types):
            type_ = type_.rstrip("?")
            if type_ == "_":
                continue  # a state that is not used
            if type_.startswith("="):
                result = part
            else:
                values.append(self.address(part, type_[1:-1]) if type_.startswith("[") else self.value(part, type_))
        named = dict(zip("abcd", values), all=", ".join(values))
        code = text.format(*words, **named)
        return self.assign(result, "pred", code) if result else code + ";"

    def do_mov(self, opcode, parts):
        if len(opcode) != 2 or len(parts) != 2:
            return None
        type_, (target, source) = opcode[1], parts
        if target.startswith("{"):  # apart
            targets = split(target[1:-1])
            bits = BITS[type_] // len(targets)
            whole = self.value(source, "u%d" % BITS[type_])
            code = [self.assign(to, "u%d" % bits, "%s >> %d" % (whole, i * bits) if i else whole)
                    for i, to in enumerate(targets) if to != "_"]
            if len(targets) > 1 and source in targets[:-1]:
                raise Unknown("a vector that overwrites its source")
            return " ".join(code)
        if source.startswith("{"):  # together
            sources = split(source[1:-1])
            bits = BITS[type_] // len(sources)
            words = ["%s(%s)" % (variable_type(type_), self.value(part, "u%d" % bits)) for part in sources]
            return self.assign(target, "b%d" % BITS[type_],
                               " | ".join("%s << %d" % (word, i * bits) if i else word for i, word in enumerate(words)))
        return self.assign(target, type_, self.value(source, type_))

    def do_selp(self, opcode, parts):
        type_ = opcode[1]
        values = self.value(parts[1], type_), self.value(parts[2], type_)
        return self.assign(parts[0], type_, "%s ? %s : %s" % (self.value(parts[3], "pred"), *values))

    def do_setp(self, opcode, parts):
        """setp.lt.and.f32 p|q, a, b, c: p = a < b && c, q = !(a < b) && c"""
        compare, type_, combine = opcode[1], opcode[-1], opcode[2] if len(opcode) == 4 else None
        if len(opcode) > 4 or combine not in (None, "and", "or", "xor"):
            return None
        test = self.comparison(compare, type_, self.value(parts[1], type_), self.value(parts[2], type_))
        combined = lambda holds: holds
        if combine:
            sign, other = {"and": "&&", "or": "||", "xor": "!="}[combine], self.value(parts[3], "pred")
            combined = lambda holds: "(%s) %s %s" % (holds, sign, other)
        p, *q = parts[0].split("|")
        if not q:
            return self.assign(p, "pred", combined(test))
        return "{ const bool holds = %s, not_so = %s; %s %s }" % (  # p may be c
            combined(test), combined("!(%s)" % test), self.assign(p, "pred", "holds"), self.assign(q[0], "pred", "not_so"))

    def comparison(self, compare, type_, a, b):
        if is_float(type_):
            if compare in OPPOSITES:
                return "!(%s)" % self.comparison(OPPOSITES[compare], type_, a, b)
            if compare == "num":
                return "%s == %s && %s == %s" % (a, a, b, b)
            if compare == "nan":
                return "%s != %s || %s != %s" % (a, a, b, b)
            if compare == "ne":
                return "%s < %s || %s > %s" % (a, b, a, b)
        if compare not in COMPARISONS:
            raise Unknown("the comparison " + compare)
        return "%s %s %s" % (a, COMPARISONS[compare], b)

    def do_cvt(self, opcode, parts):
        *modifiers, to, of = opcode[1:]
        if to not in BITS or of not in BITS or "f16" in (to, of) or "bf16" in (to, of):
            return None
        a = self.value(parts[1], of)
        rounding = [word for word in modifiers if re.fullmatch(r"r[nzmp]i?", word)]
        if modifiers not in ([], rounding) or len(rounding) > 1:
            return None
        rounding = rounding[0] if rounding else None
        to_whole = {"rni": "to_nearest(%s)", "rzi": "truncated(%s)", "rmi": "floor_of(%s)", "rpi": "ceiling(%s)"}
        if is_float(of) and (to == of or not is_float(to)) and rounding not in to_whole:
            return None
        if is_float(of) and not is_float(to):
            return self.assign(parts[0], to, "to_integer<%s>(%s)" % (to, to_whole[rounding] % a))
        if is_float(of) and to == of:
            return self.assign(parts[0], to, to_whole[rounding] % a)
        if rounding in (None, "rn"):
            return self.assign(parts[0], to, "%s(%s)" % (to, a))
        return None

    def access(self, opcode):
        """The space, the number of elements and the type of a load, a store, or an atomic operation; and what else it says."""
        *modifiers, type_ = opcode[1:]
        space, count, rest = "generic", 1, []
        for word in modifiers:
            if word in SPACES:
                space = word
            elif word in ("v2", "v4", "v8"):
                count = int(word[1])
            elif word not in ACCESS_QUALIFIERS:
                rest.append(word)
        if type_ not in BITS:
            raise Unknown("the type " + type_)
        return space, count, type_, rest

    def do_ld(self, opcode, parts):
        space, count, type_, rest = self.access(opcode)
        if rest:
            return None
        pointer = self.pointer(parts[1], space, count * BITS[type_] // 8)
        if count == 1:
            return self.assign(parts[0].strip("{}"), type_, "load<%s>(%s)" % (type_, pointer))
        targets = split(parts[0][1:-1])
        code = [self.assign(target, type_, "v[%d]" % i) for i, target in enumerate(targets) if target != "_"]
        return "{ const auto v = load<%s, %d>(%s); %s }" % (type_, count, pointer, " ".join(code))

    def do_st(self, opcode, parts):
        space, count, type_, rest = self.access(opcode)
        if rest:
            return None
        pointer = self.pointer(parts[0], space, count * BITS[type_] // 8)
        values = [self.value(part, type_) for part in (split(parts[1][1:-1]) if parts[1].startswith("{") else [parts[1]])]
        if count != len(values):
            raise Unknown("%d elements of a vector of %d" % (len(values), count))
        return "store<%s>(%s, %s);" % (type_, pointer, values[0] if count == 1 else "{%s}" % ", ".join(values))

    def do_atom(self, opcode, parts):
        """atom.add.f32 old, [to], value, and red.add.f32 [to], value"""
        space, _, type_, operation = self.access(opcode)
        returns = opcode[0] == "atom"
        where, *operands = parts[returns:]
        if len(operation) != 1 or operation[0] not in ("add", "min", "max", "and", "or", "xor", "exch", "cas"):
            return None
        values = [self.value(part, type_) for part in operands]
        code = "atomic_%s<%s>(%s)" % (operation[0], type_,
                                      ", ".join([self.pointer(where, space, BITS[type_] // 8)] + values))
        return self.assign(parts[0], type_, code) if returns else code + ";"

    do_red = do_atom

    def do_bra(self, opcode, parts):
        if opcode not in (["bra"], ["bra", "uni"]):
            return None
        return "goto %s;" % identifier(parts[0])

    def do_brx(self, opcode, parts):
        """brx.idx %r1, table"""
        if opcode[:2] != ["brx", "idx"] or parts[1] not in self.tables:
            return None
        cases = " ".join("case %d: goto %s;" % (i, identifier(label)) for i, label in enumerate(self.tables[parts[1]]))
        return "switch (%s) { %s default: trap(); }" % (self.value(parts[0], "u32"), cases)

    def do_ret(self, opcode, parts):
        return "return;"

    def do_pragma(self, opcode, parts):
        return ""

    def do_call(self, opcode, parts):
        """call.uni (result), name, (arguments): pointers to what is in .param space; or call (result), %rd1, (arguments), prototype"""
        if opcode not in (["call"], ["call", "uni"]):
            return None
        results = split(parts[0][1:-1]) if parts[0].startswith("(") else []
        name, *rest = parts[bool(results):]
        arguments = split(rest[0][1:-1]) if rest else []
        if any(self.lookup(part) != "param" for part in results + arguments):
            raise Unknown("an argument that is a register")
        if name in self.unit.functions:
            function = function_name(name)
        elif len(rest) == 2 and rest[1] in self.prototypes:
            types = ["std::byte*"] * len(results) + ["const std::byte*"] * len(arguments)
            function = "reinterpret_cast<void (*)(%s)>(%s)" % (", ".join(types), self.value(name, "u64"))
        else:
            raise Unknown("the function " + name)
        return "%s(%s);" % (function, ", ".join(identifier(part) for part in results + arguments))

    def do_shfl(self, opcode, parts):
        """shfl.sync.bfly.b32 value|is_in_range, a, b, c, mask"""
        if opcode[:2] != ["shfl", "sync"] or opcode[2] not in ("up", "down", "bfly", "idx") or opcode[3:] != ["b32"]:
            return None
        target, *predicate = parts[0].split("|")
        operands = ", ".join(self.value(part, "u32") for part in parts[1:5])
        found = "&" + identifier(predicate[0]) if predicate else "nullptr"
        return self.assign(target, "u32", "shfl_sync(Shuffle::%s, %s, %s)" % (opcode[2], operands, found))

    def registers(self, operand):
        """Pointers to the registers of a vector."""
        names = split(operand[1:-1])
        return ", ".join(("bits_of(%s)" if is_float(self.lookup(name)) else "&%s") % identifier(name) for name in names)

    def vector(self, operand):
        return ", ".join(self.value(part, "b32") for part in split(operand[1:-1]))

    def do_ldmatrix(self, opcode, parts):
        found = re.fullmatch(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16", ".".join(opcode))
        if not found:
            return None
        return "{ b32* const to[] = {%s}; ldmatrix(%s, %s, %s, to); }" % (
            self.registers(parts[0]), found.group(1), "true" if found.group(2) else "false", self.address(parts[1], "shared"))

    def do_mma(self, opcode, parts):
        if ".".join(opcode) == "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32":
            return "{ b32* const d[] = {%s}; const b32 a[] = {%s}, b[] = {%s}, c[] = {%s}; mma_u8_s8(d, a, b, c); }" % (
                self.registers(parts[0]), *(self.vector(part) for part in parts[1:]))
        found = re.fullmatch(r"mma\.sync\.aligned\.m16n8k(8|16)\.row\.col\.f32\.(f16|bf16|tf32)\.(\2)\.f32", ".".join(opcode))
        if not found:
            return None
        d, a, b, c = parts
        return "{ b32* const d[] = {%s}; const b32 a[] = {%s}, b[] = {%s}, c[] = {%s}; mma(MmaType::%s, %s, d, a, b, c); }" % (
            self.registers(d), self.vector(a), self.vector(b), self.vector(c), found.group(2), found.group(1))

    def do_wgmma(self, opcode, parts):
        found = re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(?:8|16)\.f32\.(f16|bf16|tf32)\.(\2)", ".".join(opcode))
        if not found:
            return None
        d, a, b, scale_d, scale_a, scale_b, *transposed = parts
        if a.startswith("{") or len(split(d[1:-1])) != int(found.group(1)) // 2:
            raise Unknown("these registers of a wgmma")
        return "{ b32* const d[] = {%s}; wgmma(%s, MmaType::%s, d, %s, %s, %s, %s); }" % (
            self.registers(d), found.group(1), found.group(2), self.value(a, "u64"), self.value(b, "u64"),
            self.value(scale_d, "pred"), ", ".join([scale_a, scale_b] + (transposed or ["0", "0"])))

    def do_cp(self, opcode, parts):
        found = re.fullmatch(r"cp\.async\.bulk\.tensor\.([1-5])d\.shared::(?:cluster|cta)\.global(?:\.tile)?\.mbarrier::complete_tx::bytes",
                             ".".join(opcode))
        if not found:
            return None
        source = re.fullmatch(r"\[\s*([\w%]+)\s*,\s*\{(.*)\}\s*\]", parts[1])
        at = [self.value(part, "s32") for part in split(source.group(2))]
        if len(at) != int(found.group(1)):
            raise Unknown("%d coordinates" % len(at))
        return "{ const s32 at[] = {%s}; cp_async_bulk_tensor(%s, %s, %d, at, %s); }" % (
            ", ".join(at), self.address(parts[0], "shared"), self.value(source.group(1), "u64"), len(at),
            self.address(parts[2], "shared"))


# ---- a file

FUNCTION = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s*(?:\(([^()]*)\))?\s*([\w$]+)\s*(?:\(([^()]*)\))?"
                      r"((?:\s*(?:\.(?:maxntid|minnctapersm|reqntid|maxnreg|noreturn|explicitcluster)\b[^\n{;]*|//[^\n]*))*)\s*([{;])")


class Function:
    def __init__(self, found, line):
        self.kind, result, self.name, parameters, self.directives, end = found.groups()
        self.line = line
        self.parameters = [Declared(text) for text in split(re.sub(r"//[^\n]*", "", parameters or ""))]
        self.results = [Declared(text) for text in split(result or "")]
        self.has_body = end == "{"
        self.begin_of_body = found.end()


class Unit:
    """A file of PTX."""

    def __init__(self, path, text, source):
        self.path, self.text, self.source = path, text, source
        self.name = os.path.basename(path)
        self.variables = {}
        self.functions = {}
        self.entries = []
        self.errors = []
        self.shared_end = 16  # instructions.h: kSharedBegin
        self.output = []

    def fail(self, line, where, why):
        self.errors.append("%s:%d: %s: unknown to the translator: %s" % (self.path, line, where, why))

    def line_of(self, position):
        return self.text.count("\n", 0, position) + 1

    def end_of_body(self, position):
        depth = 1
        for brace in re.compile(r"//[^\n]*|[{}]").finditer(self.text, position):
            if brace.group() in "{}":
                depth += 1 if brace.group() == "{" else -1
                if depth == 0:
                    return brace.start()
        raise Unknown("a body without an end")

    def read(self):
        position, line, counted = 0, 1, 0
        items = []
        skip = re.compile(r"\s+|//[^\n]*|\.(version|target|address_size|file|pragma)\b[^\n]*")
        while position < len(self.text):
            blank = skip.match(self.text, position)
            if blank:
                position = blank.end()
                continue
            line += self.text.count("\n", counted, position)
            counted = position
            found = FUNCTION.match(self.text, position)
            if found:
                function = Function(found, line)
                if function.kind == "func":
                    self.functions.setdefault(function.name, function)
                position = found.end()
                if function.has_body:
                    end = self.end_of_body(position)
                    function.end = end
                    items.append(function)
                    position = end + 1
                continue
            end = self.text.find(";", position)
            declared = Declared(re.sub(r"//[^\n]*", "", self.text[position:end]))
            self.variables[declared.name] = declared
            position = end + 1
        return items

    def place(self, variable, offset):
        variable.offset = aligned(offset, variable.align)
        return variable.offset + variable.bytes

    def translate(self):
        functions = self.read()
        # Static shared variables of the file, then of each kernel, then the dynamic ones, which are no better aligned than
        # they say.
        end = 16
        for variable in self.variables.values():
            if variable.space == "shared" and variable.bytes:
                end = self.place(variable, end)
        file_end, longest = end, end
        for function in functions:
            function.statements = []
            try:
                line = self.line_of(function.begin_of_body)
                function.statements = list(statements(self.text[function.begin_of_body:function.end], line))
            except Unknown as error:
                self.fail(function.line, function.name, error)
            end = file_end
            for statement in function.statements:
                if statement.text.startswith(".shared"):
                    variable = Declared(statement.text)
                    self.variables[variable.name] = variable
                    end = self.place(variable, end)
            function.static_bytes = end - 16
            longest = max(longest, end)
        self.dynamic_begin = aligned(longest, 16)
        if self.dynamic_begin % 32 == 0:
            self.dynamic_begin += 16
        for variable in self.variables.values():
            if variable.space == "shared" and not variable.bytes:
                variable.offset = aligned(self.dynamic_begin, variable.align)

        write = self.output.append
        write("// Written by simt/ptx/translate.py from %s: not to be changed.\n" % self.name)
        for header in ("arithmetic", "instructions", "kernels", "memory"):
            write('#include "simt/ptx/%s.h"' % header)
        write("namespace simt::ptx {\nnamespace {\n")
        for variable in self.variables.values():
            if variable.space == "shared":
                write("constexpr b32 %s = %d;  // shared, %d bytes" % (identifier(variable.name), variable.offset, variable.bytes))
            else:
                write("alignas(%d) %s%s %s[%d]%s;" % (
                    variable.align, "const " if variable.space == "const" else "", variable_type(variable.type),
                    identifier(variable.name), max(variable.bytes // variable.element, 1),
                    " = {%s}" % initialiser(variable) if variable.value else "{}"))
        for function in functions:
            if function.kind == "func":
                write("void %s(%s);" % (function_name(function.name), self.signature(function)))
        for function in functions:
            self.function(function)
            if function.kind == "entry":
                self.entries.append(function)
        if self.entries:
            self.table()

    def table(self):
        """Of the entries, for kernels.h."""
        write = self.output.append
        write('\n#line %d "%s.cpp"' % (len("\n".join(self.output).split("\n")) + 3, self.name))
        for i, entry in enumerate(self.entries):
            parameters = ["{%d, %d, false}" % (each.offset, each.bytes) for each in entry.parameters]
            write("constexpr std::array<Parameter, %d> parameters_%d = {{%s}};" % (len(parameters), i, ", ".join(parameters)))
        write("const Entry entries[] = {")
        for i, entry in enumerate(self.entries):
            limit = re.search(r"\.maxntid\s+([\d, ]+)", entry.directives)
            threads = 1024
            if limit:
                threads = 1
                for number in limit.group(1).split(","):
                    threads *= int(number)
            write('    {"%s", &%s, parameters_%d, %d, %d, %d},' % (
                entry.name, function_name(entry.name), i, entry.static_bytes, self.dynamic_begin, threads))
        write("};")
        write('const Module module("%s", entries);' % self.source)

    @staticmethod
    def signature(function):
        return ", ".join(["std::byte* " + identifier(result.name) for result in function.results] +
                         ["const std::byte* " + identifier(parameter.name) for parameter in function.parameters])

    def function(self, function):
        """Its lines of C++, one for each of PTX."""
        first = function.line
        last = self.line_of(function.end)
        lines = self.text.split("\n") if not hasattr(self, "lines") else self.lines
        self.lines = lines
        code = {}
        body = Body(self)
        if function.kind == "entry":
            code[first] = ["void %s(const void*, const std::byte* parameters) {" % function_name(function.name)]
            offset = 0
            for parameter in function.parameters:
                parameter.offset = aligned(offset, parameter.align)
                offset = parameter.offset + parameter.bytes
                code[first].append("const std::byte* const %s = parameters + %d;" % (identifier(parameter.name), parameter.offset))
        else:
            code[first] = ["void %s(%s) {" % (function_name(function.name), self.signature(function))]
        for parameter in function.parameters + function.results:
            body.scopes[0][parameter.name] = "param"
        for i, statement in enumerate(function.statements):
            if statement.text.startswith(".branchtargets"):
                body.tables[function.statements[i - 1].text] = split(statement.text[len(".branchtargets"):])
            elif statement.text.startswith(".callprototype"):
                body.prototypes.add(function.statements[i - 1].text)
        for statement in function.statements:
            to = code.setdefault(statement.line, [])
            try:
                self.statement(body, statement, to)
            except Unknown as error:
                self.fail(statement.line, "kernel " + function.name, "%s, in `%s`" % (error, statement.text))
        code.setdefault(last, []).append("}")
        self.output.append('\n#line %d "%s"' % (first, self.name))
        for number in range(first, last + 1):
            text = " ".join(code.get(number, []))
            original = " ".join(lines[number - 1].split()).rstrip("\\").replace(function.name + "_param", "param")
            comment = original if original.startswith("//") else "// " + original if original else ""
            self.output.append("%-60s %s" % (text, comment) if text else comment)

    def statement(self, body, statement, to):
        text = statement.text
        if statement.kind == "label":
            if text not in body.tables and text not in body.prototypes:
                to.append(identifier(text) + ":;")
        elif statement.kind == "{":
            body.scopes.append({})
            to.append("{")
        elif statement.kind == "}":
            body.scopes.pop()
            to.append("}")
        elif text.startswith(".reg"):
            self.registers(body, text, to)
        elif text.startswith(".local") or text.startswith(".param"):
            declared = Declared(text)
            body.scopes[-1][declared.name] = "param"
            to.append("alignas(%d) std::byte %s[%d];" % (declared.align, identifier(declared.name), declared.bytes))
        elif text.startswith((".shared", ".branchtargets", ".callprototype", ".pragma")):
            pass
        elif text.startswith("."):
            raise Unknown("the directive " + text.split()[0])
        else:
            to.append(body.translate(text))

    @staticmethod
    def registers(body, text, to):
        found = re.fullmatch(r"\.reg \.(\w+) (.*)", text)
        type_, names = found.groups()
        if type_ not in BITS:
            raise Unknown("registers of the type " + type_)
        declared = []
        for name in split(names):
            range_ = re.fullmatch(r"(%?\w+)<(\d+)>", name)
            declared += [range_.group(1) + str(i) for i in range(1, int(range_.group(2)))] if range_ else [name]
        for name in declared:
            body.scopes[-1][name] = variable_type(type_)
        to.append("%s %s;" % (variable_type(type_), ", ".join(identifier(name) for name in declared)))


def translated(path, text, source):
    """What the C++ is, as a Unit; or why there is none: its errors."""
    unit = Unit(path, text, os.path.basename(source))
    try:
        unit.translate()
    except Unknown as error:
        unit.fail(1, "file", error)
    unit.output.append("}  // namespace\n}  // namespace simt::ptx\n")
    return unit


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("ptx")
    arguments.add_argument("source", help="the .cu that nvcc compiled")
    arguments.add_argument("-o", dest="output", required=True)
    options = arguments.parse_args()
    with open(options.ptx) as file:
        unit = translated(options.ptx, file.read(), options.source)
    if unit.errors:
        for error in unit.errors[:20]:
            print(error, file=sys.stderr)
        print("%d errors" % len(unit.errors), file=sys.stderr)
        return 1
    code = "\n".join(unit.output)
    if not os.path.exists(options.output) or open(options.output).read() != code:  # else it need not be compiled again
        with open(options.output, "w") as file:
            file.write(code)
    print("%s: %d kernels, %d functions, %d lines" % (unit.name, len(unit.entries), len(unit.functions), len(unit.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
