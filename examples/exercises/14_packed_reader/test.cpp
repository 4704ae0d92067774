#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bytes.h"
#include "reader.h"

namespace {

using File = std::vector<unsigned char>;

void put(File& file, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) file[at + i] = static_cast<unsigned char>(value >> 8 * i);
}

File written(const std::vector<std::string>& records) {
  const std::string magic = "ATHEX001";
  File file(magic.begin(), magic.end());
  file.resize(16 + 24 * records.size() + 8);
  put(file, 8, records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    put(file, 16 + 24 * i, file.size());
    put(file, 24 + 24 * i, records[i].size());
    file.insert(file.end(), records[i].begin(), records[i].end());
    put(file, 32 + 24 * i, checksum(part_of(file, file.size() - records[i].size(), records[i].size())));
  }
  const std::size_t table = 16 + 24 * records.size();
  put(file, table, checksum(part_of(file, 0, table)));
  return file;
}
void sign(File& file, std::uint64_t count) {  // makes the checksum of the table right again
  put(file, 16 + 24 * count, checksum(part_of(file, 0, 16 + 24 * count)));
}

// "" if it is refused by a runtime_error; else what happened.
std::string refusal(const File& file, std::uint64_t record = 0) {
  try {
    const Reader reader(file);
    (void)reader.record(record);
  } catch (const std::runtime_error&) {
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "it was read as if nothing were wrong";
}

TEST(Reader, ReadsEveryRecord) {
  const std::vector<std::string> records{"first", "", std::string(300, 'x')};
  const File file = written(records);
  const Reader reader(file);
  ASSERT_EQ(reader.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Bytes bytes = reader.record(i);
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), records[i]) << "record " << i;
  }
  EXPECT_EQ(Reader(written({})).size(), 0u) << "a file without records is a file";
  EXPECT_EQ(refusal(file, 3), "") << "there is no record 3";
}

TEST(Reader, RefusesShortAndForeignFiles) {
  const File file = written({"abc"});
  for (std::size_t length = 0; length < file.size(); ++length)
    ASSERT_EQ(refusal(File(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length))), "")
        << "a file cut at byte " << length;
  File foreign = file;
  foreign[7] = '2';
  sign(foreign, 1);
  EXPECT_EQ(refusal(foreign), "") << "this is another format: the letters at its start must be checked";
}

TEST(Reader, RefusesAnOversizedCount) {
  for (const std::uint64_t count : {std::uint64_t{2}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    File file = written({"abc"});
    put(file, 8, count);
    EXPECT_EQ(refusal(file), "") << "a count of " << count;
  }
  // 24 * count wraps around to 24, so that a sum of unsigned numbers looks small.
  File wraps = written({"abc"});
  put(wraps, 8, (std::uint64_t{1} << 61) + 1);
  sign(wraps, 1);
  EXPECT_EQ(refusal(wraps), "") << "24 times this count is 24, modulo 2^64: divide instead of multiplying";
}

TEST(Reader, RefusesRecordsOutside) {
  const std::uint64_t most = ~std::uint64_t{0};
  for (const auto& [offset, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {1'000'000, 3}, {48, 1'000'000}, {most, 1}, {most - 2, 3}, {48, most - 40}, {most - 7, 16}}) {
    File file = written({"abc"});
    put(file, 16, offset);
    put(file, 24, length);
    sign(file, 1);
    EXPECT_EQ(refusal(file), "")
        << "offset " << offset << ", length " << length
        << ": their sum may wrap around; compare length with what is left after the offset";
  }
}

TEST(Reader, NoticesEveryFlippedBit) {
  const File file = written({"abc", "defgh"});
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      File flipped = file;
      flipped[at] = static_cast<unsigned char>(flipped[at] ^ 1 << bit);
      const bool noticed = refusal(flipped, 0).empty() || refusal(flipped, 1).empty();
      ASSERT_TRUE(noticed) << "bit " << bit << " of byte " << at << " of " << file.size()
                           << " was flipped, and both records were read as if nothing were wrong: compare "
                           << (at < 72 ? "the table's checksum" : "the record's checksum");
    }
  }
}

}  // namespace
