#include "tensor/base/printable.h"

#include <gtest/gtest.h>

namespace athanor::printable_test {

TEST(Printable, TextStays) {
  for (const char* text :
       {"", "a plain line, with \"quotes\" \\ and ~", "Müller", "日本語", "🙂", "\u00a0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("\x1b[2Ja"), "\\x1b[2Ja");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("a\r\b\x7f"), "a\\x0d\\x08\\x7f");
  EXPECT_EQ(printable("one\ntwo\t"), "one\\ntwo\\t");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m") << "the escape of Latin-1";
}

TEST(Printable, InvalidUtf8IsEscaped) {
  EXPECT_EQ(printable("M\xfcller"), "M\\xfcller");
  EXPECT_EQ(printable("\x9b"), "\\x9b") << "an escape, on a terminal of Latin-1";
  EXPECT_EQ(printable("\xe6\x97"), "\\xe6\\x97") << "cut";
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "longer than it must be";
  EXPECT_EQ(printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(printable("\xf0\x80\x82\x9b"), "\\xf0\\x80\\x82\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last";
  EXPECT_EQ(printable("\xff"
                      "a"),
            "\\xffa");
}

}  // namespace athanor::printable_test
