#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "line.h"
#include "log.h"

namespace {

using Entries = std::vector<Entry>;

std::string line(long step, const std::string& loss) {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":" + loss + "}\n";
}

// "" or what is thrown.
std::string refusal(const std::string& text) {
  try {
    (void)read(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

const std::string kWhole = line(1, "2.50") + line(2, "2.25") + line(3, "1.75");

TEST(Log, ReadsWholeLines) {
  EXPECT_EQ(read(""), Entries{}) << "no line yet";
  EXPECT_EQ(read(kWhole), (Entries{{1, 2.5}, {2, 2.25}, {3, 1.75}}));
}

TEST(Log, LeavesOutATornLine) {
  const std::string next = line(4, "1.5");
  for (std::size_t length = 0; length < next.size(); ++length) {
    const std::string text = kWhole + next.substr(0, length);
    ASSERT_EQ(refusal(text), "") << "a torn last line is what a kill leaves, and no damage";
    EXPECT_EQ(read(text).size(), 3u) << "the last line has no newline yet, after " << length << " of "
                                     << next.size()
                                     << " characters: that it can be parsed does not mean that it is whole";
  }
}

TEST(Log, RefusesDamageInTheMiddle) {
  const std::string damaged = line(1, "2.5") + "{\"step\":2,\"lo\n" + line(3, "1.75");
  EXPECT_NE(refusal(damaged), "") << "line 2 is damaged, and was left out without a word";
  EXPECT_NE(refusal(damaged).find('2'), std::string::npos)
      << "the error must name line 2, but says: " << refusal(damaged);
  EXPECT_NE(refusal(line(1, "2.5") + "nonsense\n"), "")
      << "a last line with its newline is whole, so that it must be right";
}

TEST(Log, IsCutBackToTheCheckpoint) {
  EXPECT_EQ(kept(kWhole, 2), line(1, "2.50") + line(2, "2.25"))
      << "step 3 came after the checkpoint, and will be made again";
  EXPECT_EQ(kept(kWhole, 3), kWhole)
      << "nothing came after the checkpoint: every byte stays, 2.50 does not become 2.5";
  EXPECT_EQ(kept(kWhole, 9), kWhole);
  EXPECT_EQ(kept(kWhole, 0), "") << "from the beginning";
  EXPECT_EQ(kept(kWhole + "{\"step\":4,\"lo", 9), kWhole)
      << "a torn line must go, or the next one is appended to its middle";
  EXPECT_EQ(kept(kWhole + "{\"step\":4,\"loss\":1}", 9), kWhole)
      << "a torn line must go, even if it can be parsed";
}

TEST(Log, HasNoStepTwiceAfterAResume) {
  const std::string killed = kWhole + line(4, "1.5") + "{\"step\":5,\"los";
  const std::string resumed = kept(killed, 2) + line(3, "1.75") + line(4, "1.5") + line(5, "1.25");
  EXPECT_EQ(read(resumed), (Entries{{1, 2.5}, {2, 2.25}, {3, 1.75}, {4, 1.5}, {5, 1.25}}))
      << "each step once, as without a stop";
}

}  // namespace
