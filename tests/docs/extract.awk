# Turns the ```cpp blocks of a chapter into the body of one test, line numbers kept for error messages. A line
# `<!-- test: CODE -->` below a block adds code that readers do not see: what the block must have done.
# Usage: awk -v chapter=tensors -v source=/path/docs/tensors.md -f extract.awk docs/tensors.md > out.cpp
BEGIN {
  print "#include \"tests/docs/prelude.h\""
  printf "TEST(Docs, %s) {\n", chapter
}
/^```cpp$/ { inside = 1; printf "#line %d \"%s\"\n", NR + 1, source; next }
/^```/ { inside = 0; next }
inside { print; next }
/^<!-- test: .* -->$/ { printf "#line %d \"%s\"\n", NR, source; sub(/^<!-- test: /, ""); sub(/ -->$/, ""); print }
END { print "}" }
