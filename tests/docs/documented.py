#!/usr/bin/env python3
"""documented.py SOURCE: every symbol at namespace scope of a public header (scripts/public_headers.sh) has a comment.

A comment documents the declaration below it, and the ones that follow without an empty line: `eq(a, b)` and `eq(a, double)` share one.
So does a comment at the end of its line. These need none: specialisations, forward declarations, deduction guides; structs of options
(`...Options`, `...Params`) and of results whose fields have comments. Members of classes are not looked at: Doxygen shows them beside
their class."""
import pathlib
import re
import subprocess
import sys

KEYWORDS = ("struct", "class", "enum", "using", "inline constexpr", "constexpr")


def public_headers(root):
    return subprocess.run([root / "scripts/public_headers.sh", root], check=True, capture_output=True, text=True).stdout.split()


def without_strings(line):
    return re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'', '""', line)


def declarations(text):
    """(line number, whether documented, first line, all lines) of each declaration at namespace scope outside of `detail`."""
    depth, detail_at, documented, start, lines, parens = 0, None, False, None, [], 0
    namespaces, macro = [], False
    for number, line in enumerate(text.split("\n"), 1):
        bare = without_strings(line)
        code = re.sub(r"//.*$", "", bare).rstrip()
        if macro or code.startswith("#"):
            macro = bare.endswith("\\")
            continue
        if start is None:
            if not line.strip():
                documented = False
                continue
            if line.lstrip().startswith("//"):
                documented = True
                continue
            found = re.match(r"(?:inline )?namespace ([\w:]*) ?\{$", code)
            if found and depth == len(namespaces):
                namespaces.append(found[1])
                depth += 1
                documented = False
                continue
            if code == "}" and depth == len(namespaces) and namespaces:
                namespaces.pop()
                depth -= 1
                continue
            if re.match(r'extern "" \{$', code):
                return
            start, lines, parens = number, [], 0
        lines.append(line)
        depth += code.count("{") - code.count("}")
        parens += code.count("(") - code.count(")")
        if depth == len(namespaces) and parens == 0 and (code.endswith(";") or code.endswith("}")):
            if "detail" not in namespaces and "" not in namespaces:
                yield number if len(lines) == 1 else start, documented or "///<" in line or "///<" in lines[0], lines
            documented = documented or "///<" in line
            start = None


def needs_none(lines):
    text = " ".join(line.strip() for line in lines)
    if re.match(r"template <> |friend |struct \w+;|class \w+;|enum class \w+(?: : [\w:]+)?;|template class |extern template |static_assert|using namespace|using \w+(?:::\w+)+;"
                r"|using enum|template struct ", text):
        return True
    if re.match(r"template <[^;{]*> ?(?:struct|class) \w+;", text) or re.match(r"(?:explicit )?\w+\([^;]*\) -> ", text) or re.match(r"template <.*> \w+\(.*\) -> ", text):
        return True
    if re.match(r"(?:struct|class) \w+ ?(?:final )?\{", text) and re.match(r"(?:struct|class) \w*(?:Options|Params)\b", text):
        return "//" in text
    if re.match(r"struct \w+ (?:: [\w:]+ )?\{", text) and text.count("///<") >= 1:
        return True
    if re.match(r"(?:template <[^>]*> )?[\w:<>& ]+ \w+::\w+\(", text):  # a member, outside of its class
        return True
    return text.startswith("ATH_") or text == ";"


def check(root):
    for header in public_headers(root):
        for number, documented, lines in declarations((root / header).read_text(encoding="utf-8")):
            if not documented and not needs_none(lines):
                yield f"{header}:{number}: needs a comment: {lines[0].strip()}"


def itself():
    """What must be found, and what not."""
    text = """namespace athanor {
/// Both of a kind.
Tensor eq(const Tensor& a);
Tensor eq(double a);

Tensor bare(const Tensor& a,
            int b);
struct Bare {
  int a = 0;
};
struct Told {
  int a = 0;  ///< what it is
};
template <> struct DTypeOf<float> { int x; };
namespace detail {
void hidden();
}
/// Told, too.
inline int late() {
  return 1;
}
int last;
}
"""
    found = [lines[0].strip() for _, documented, lines in declarations(text) if not documented and not needs_none(lines)]
    assert found == ["Tensor bare(const Tensor& a,", "struct Bare {"], found


def main():
    itself()
    missing = list(check(pathlib.Path(sys.argv[1])))
    print("\n".join(missing))
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
