# Turns the ```cpp blocks of a chapter into the body of one test, line numbers kept for error messages.
# Usage: awk -v chapter=tensors -v source=/path/docs/tensors.md -f extract.awk docs/tensors.md > out.cpp
BEGIN {
  print "#include \"tests/docs/prelude.h\""
  printf "TEST(Docs, %s) {\n", chapter
}
/^```cpp$/ { inside = 1; printf "#line %d \"%s\"\n", NR + 1, source; next }
/^```/ { inside = 0; next }
inside { print }
END { print "}" }
