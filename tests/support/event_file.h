#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "data/formats/detail/record_frame.h"
#include "tests/support/temp_dir.h"

// TensorBoard's event files, read back.

namespace athanor::test {

/// A message's fields: number to what is in them. The little of protobuf that event files have.
inline std::multimap<int, std::string> fields_of(std::string_view text) {
  std::multimap<int, std::string> fields;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text.at(0));
      text.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!text.empty()) {
    const std::uint64_t key = varint();
    const auto number = static_cast<int>(key >> 3);
    if ((key & 7) == 0) {
      fields.emplace(number, std::to_string(varint()));
      continue;
    }
    const std::size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
    fields.emplace(number, text.substr(0, size));
    text.remove_prefix(size);
  }
  return fields;
}

template <class T> T number(const std::string& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// What TensorBoard would show of a file.
struct Events {
  std::vector<std::int64_t> sessions;                            // the step each begins with
  std::map<std::string, std::map<std::int64_t, float>> scalars;  // by tag and step
  std::map<std::string, int> histograms, pictures;
  std::int64_t records = 0;
};

/// A session takes back what the ones before it have said of its steps: TensorBoard drops that, too. What is
/// left must be there once.
inline Events events_in(const std::filesystem::path& file) {
  Events all;
  const std::string text = read_file(file);
  std::span<const std::byte> rest = std::as_bytes(std::span(text));
  while (!rest.empty()) {
    const auto data = athanor::detail::framed_record(rest);
    EXPECT_TRUE(data) << "a record that is not whole, after " << all.records;
    if (!data) break;
    rest = rest.subspan(data->size() + athanor::detail::kRecordHead + athanor::detail::kRecordTail);
    ++all.records;
    const auto event = fields_of(athanor::detail::text_of(*data));
    const std::int64_t step = std::stoll(event.find(2)->second);
    EXPECT_GT(number<double>(event.find(1)->second), 1.6e9) << "the time of day";
    if (event.contains(3)) {
      EXPECT_EQ(event.find(3)->second, "brain.Event:2");
    }
    if (event.contains(7)) {
      all.sessions.push_back(step);
      for (auto& [_, points] : all.scalars) points.erase(points.lower_bound(step), points.end());
    }
    if (!event.contains(5)) continue;
    const auto values = fields_of(event.find(5)->second);
    for (const auto& [_, bytes] : values) {
      const auto value = fields_of(bytes);
      const std::string tag = value.find(1)->second;
      if (value.contains(2)) {
        const bool is_new = all.scalars[tag].emplace(step, number<float>(value.find(2)->second)).second;
        EXPECT_TRUE(is_new) << tag << " twice of " << step;
      }
      if (value.contains(5)) ++all.histograms[tag];
      if (value.contains(4)) ++all.pictures[tag];
    }
  }
  return all;
}

}  // namespace athanor::test
