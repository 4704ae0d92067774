#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/formats/packed_writer.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::test {

using Samples = std::vector<OwnedSample>;

inline PackedWriterOptions small_pages(int threads = 0) {
  PackedWriterOptions options;
  options.page_bytes = 4096;
  options.threads = threads;
  return options;
}

/// Writes a packed file; returns its id.
inline std::string write(const std::filesystem::path& path, const Samples& samples,
                         const PackedWriterOptions& options = small_pages()) {
  PackedWriter writer(path, options);
  for (const OwnedSample& sample : samples) writer.add(sample.view());
  writer.finish();
  EXPECT_EQ(writer.file_bytes(), std::ssize(read_file(path)));
  return writer.content_id();
}

inline Samples uniform(int count) {
  Samples samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(raw_sample(8, 9, 3, i % 10, static_cast<std::uint64_t>(i)));
  return samples;
}

/// Every codec, sizes from nothing to several pages of 4 KiB, and page-sized ones.
inline Samples mixed() {
  return {encoded_sample(100, 3, 1),    raw_sample(20, 10, 3, 0, 2), encoded_sample(4096, 1, 3),
          encoded_sample(0, 2, 4),      encoded_sample(0, 2, 5),     encoded_sample(10'000, 4, 6, Codec::png),
          encoded_sample(64, 0, 7),     encoded_sample(4097, 1, 8),  encoded_sample(1, 1, 9),
          raw_sample(64, 64, 3, 2, 10), encoded_sample(4000, 0, 11), encoded_sample(97, 0, 12)};
}

inline void expect_same(const StoredSample& got, const OwnedSample& expected, std::int64_t i) {
  EXPECT_TRUE(std::ranges::equal(got.bytes, expected.view().bytes)) << "sample " << i;
  EXPECT_EQ(got.codec, expected.codec) << "sample " << i;
  EXPECT_EQ(got.label, expected.label) << "sample " << i;
  EXPECT_EQ(std::vector({got.height, got.width, got.channels}),
            std::vector({expected.height, expected.width, expected.channels}))
      << "sample " << i;
}

}  // namespace athanor::test
