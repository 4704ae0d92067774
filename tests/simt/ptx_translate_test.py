"""What the translator of PTX says of what it does not know, and what it writes for what it does: one line of C++ for each of PTX."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../simt/ptx"))
from translate import translated

KERNEL = """.version 8.0
.target sm_80
.address_size 64

.visible .entry kernel_of_test(
	.param .u64 kernel_of_test_param_0
)
{
	.reg .pred 	%%p<3>;
	.reg .b16 	%%rs<3>;
	.reg .b32 	%%r<5>;
	.reg .f32 	%%f<5>;
	.reg .b64 	%%rd<5>;
	%s
	ret;
}
"""
LINE = 14  # of the instruction


def translate(ptx):
    """The errors, and the lines of C++."""
    unit = translated("k.ptx", ptx, "k.cu")
    return unit.errors, "\n".join(unit.output).split("\n")


class Translate(unittest.TestCase):
    def code_of(self, instruction):
        errors, lines = translate(KERNEL % instruction)
        self.assertEqual(errors, [])
        [line] = [line for line in lines if line.endswith("// " + instruction)]
        return line.split("//")[0].strip()

    def error_of(self, instruction):
        errors, _ = translate(KERNEL % instruction)
        self.assertEqual(len(errors), 1)
        return errors[0]

    def test_an_unknown_instruction_names_kernel_file_and_line(self):
        error = self.error_of("frobnicate.u32 %r1, %r2;")
        for part in ("k.ptx:%d: " % LINE, "kernel kernel_of_test", "frobnicate.u32 %r1, %r2"):
            self.assertIn(part, error)

    def test_nothing_is_guessed(self):
        for instruction in (
                "add.sat.s32 %r1, %r2, %r3;",               # a modifier
                "add.ftz.f32 %f1, %f2, %f3;",
                "ld.global.newest.u32 %r1, [%rd1];",
                "cvt.rn.satfinite.f16.f32 %rs1, %f1;",
                "setp.lt.nand.s32 %p1, %r1, %r2, %p2;",
                "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
                "call.uni somewhere, (%r1);",               # a name
                "mov.u64 %rd1, somewhere;",
                "mov.u32 %r1, %clock;",
                "add.s32 %r1, %r2;",                        # too few operands
                "add.s64 %rd1, %r2, %rd3;",                 # a narrower register
                "add.s64 %r1, %rd2, %rd3;",
                "cvt.s32.f32 %r1, %f1;",                    # without its rounding
                "setp.lt.s32 %r1, %r2, %r3;",               # a register of another kind
                "mov.b32 %rd1, %f1, %f2;",
                ".unheard_of %r1;"):
            with self.subTest(instruction):
                self.assertIn("k.ptx:%d: " % LINE, self.error_of(instruction))

    def test_instructions(self):
        for instruction, code in (
                ("add.s32 %r1, %r2, -1;", "r1 = r2 + 0xffffffffu;"),
                ("mad.lo.s32 %r1, %r2, %r3, %r4;", "r1 = r2 * r3 + r4;"),
                ("mul.wide.s32 %rd1, %r2, -4;", "rd1 = s64(s32(r2)) * s64(-4);"),
                ("shr.s32 %r1, %r2, 31;", "r1 = s32(r2) >> 31u;"),
                ("shl.b32 %r1, %r2, 32;", "r1 = shift_left<u32>(r2, 32u);"),
                ("setp.lt.s32 %p1, %r1, -5;", "p1 = s32(r1) < -5;"),
                ("setp.ltu.f32 %p1, %f1, %f2;", "p1 = !(f1 >= f2);"),
                ("setp.ne.f32 %p1, %f1, %f2;", "p1 = f1 < f2 || f1 > f2;"),
                ("setp.gt.and.f32 %p1|%p2, %f1, 0f3F800000, %p1;", 
                 "{ const bool holds = (f1 > 1.0f) && p1, not_so = (!(f1 > 1.0f)) && p1; p1 = holds; p2 = not_so; }"),
                ("selp.b32 %r1, %r2, 0, !%p1;", "r1 = !p1 ? r2 : 0u;"),
                ("fma.rn.f32 %f1, %f2, 0fBF000000, %f3;", "f1 = fma(f2, -0.5f, f3);"),
                ("mov.f32 %f1, 0fFF800000;", "f1 = as<f32>(0xFF800000u);"),
                ("mov.b32 %f1, %r1;", "f1 = as<f32>(b32(r1));"),
                ("mov.b32 %r1, %f1;", "r1 = as<b32>(f1);"),
                ("mov.b64 {%r1, %r2}, %rd1;", "r1 = rd1; r2 = rd1 >> 32;"),
                ("mov.u32 %r1, %ctaid.y;", "r1 = blockIdx.y;"),
                ("cvt.s64.s32 %rd1, %r1;", "rd1 = s64(s32(r1));"),
                ("cvt.rzi.s32.f32 %r1, %f1;", "r1 = to_integer<s32>(truncated(f1));"),
                ("cvt.rn.f16.f32 %rs1, %f1;", "rs1 = to_f16(f1);"),
                ("ld.global.nc.s8 %rs1, [%rd1+-3];", "rs1 = s8(load<s8>(rd1 - 3));"),
                ("dp4a.u32.s32 %r1, %r2, %r3, -1;", "r1 = dot_of_four(r2, s32(r3), -1);"),
                ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};",
                 "{ b32* const d[] = {&r1}; const b32 a[] = {r2}, b[] = {r3}, c[] = {r4}; mma_u8_s8(d, a, b, c); }"),
                ("ld.shared.f32 %f1, [%r1+4];", "f1 = load<f32>(shared(r1 + 4, 4));"),
                ("st.global.v2.f32 [%rd1], {%f1, 0f00000000};", "store<f32>(rd1, {f1, 0.0f});"),
                ("@!%p1 bra $L__BB0_1; $L__BB0_1:", "if (!p1) goto L__BB0_1; L__BB0_1:;"),
                ("@%p1 red.global.add.f32 [%rd1], %f1;", "if (p1) atomic_add<f32>(rd1, f1);"),
                ("bar.sync 1, 128;", "bar_sync(1u, 128u);"),
                ("shfl.sync.down.b32 %r1|%p1, %r2, 16, 31, -1;",
                 "r1 = shfl_sync(Shuffle::down, r2, 16u, 31u, 0xffffffffu, &p1);")):
            with self.subTest(instruction):
                self.assertEqual(self.code_of(instruction), code)

    def test_each_line_has_its_own(self):
        ptx = KERNEL % "mov.u32 %r1, 1;\n\tmov.u32 %r2, 2;"
        _, lines = translate(ptx)
        begin = next(i for i, line in enumerate(lines) if line == '#line 5 "k.ptx"') + 1
        for number, text in enumerate(ptx.split("\n")[4:-1], begin):
            if text.strip():
                self.assertTrue(lines[number].endswith("// " + " ".join(text.split()).replace("kernel_of_test_param", "param")),
                                "%s, not %s" % (lines[number], text))


if __name__ == "__main__":
    unittest.main()
